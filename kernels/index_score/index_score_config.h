// How index_score runs on CUDA: a pure choice, for index_score.cu and its test.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/index_score/index_score.h"

namespace dhs {

// What the choice depends on: nothing of it is device memory.
struct IndexScoreDesc {
  IndexKeyLayout layout;
  int64_t num_heads = 0;
  int64_t num_rows = 0;
  int64_t max_keys = 0;  // no row sees more
  int32_t num_sms = 0;
};

struct IndexScoreConfig {
  bool tensor_cores = false;   // else the plain kernel
  int32_t dim_chunks = 0;      // of 32 dims, zero-padded: 2, 4 or 8. Tensor cores only
  int32_t head_warps = 1;      // warps that share the heads of a key, 32 heads each
  int32_t rows_per_block = 1;  // consecutive query rows; those of one sequence share its pages
  int32_t num_splits = 1;      // blocks that share the pages of a row
  int32_t padded_heads = 0;    // a whole number of head blocks
  int64_t shared_bytes = 0;

  constexpr int32_t head_block() const { return 32 * head_warps; }
};

inline constexpr int32_t kIndexPageKeys = 64;         // what the tensor core kernel is made for
inline constexpr int32_t kIndexPlainKeysPerWarp = 4;  // of the plain kernel, at a time
inline constexpr int32_t kIndexWarps = 4;             // of a block
// The most that every supported device can give to a block.
inline constexpr int64_t kIndexMaxSharedBytes = 163 << 10;

// Byte offsets of the parts of a block's shared memory in the tensor core kernel.
struct IndexScoreShared {
  int32_t num_stages = 0;   // pages in flight, and the one in use
  int64_t stage_bytes = 0;  // fp8: a page as it is stored; bf16: its keys as a tile
  int64_t tile = 0;         // keys as bf16; fp8 only
  int64_t queries = 0;      // rows of bf16 tiles
  int64_t query_bytes = 0;  // of one row
  int64_t weights = 0;
  int64_t sums = 0;  // two buffers, of every head warp's sums of a page
  int64_t total = 0;
};

constexpr IndexScoreShared index_score_shared(RowFormat format, const IndexScoreConfig& config) {
  const int64_t tile_bytes = int64_t{kIndexPageKeys} * config.dim_chunks * 64;
  const bool decodes = format == RowFormat::kFp8;
  IndexScoreShared shared;
  shared.num_stages = decodes ? 3 : 2;
  shared.stage_bytes = decodes ? tile_bytes / 2 + kIndexPageKeys * 4 : tile_bytes;
  shared.tile = shared.num_stages * shared.stage_bytes;
  shared.queries = shared.tile + (decodes ? tile_bytes : 0);
  shared.query_bytes = int64_t{config.padded_heads} * config.dim_chunks * 64;
  shared.weights = shared.queries + config.rows_per_block * shared.query_bytes;
  shared.sums = shared.weights + int64_t{config.rows_per_block} * config.padded_heads * 4;
  shared.total = shared.sums + 2 * int64_t{config.head_warps} * kIndexPageKeys * 4;
  return shared;
}

// Of the plain kernel: q, its weights, and the keys each warp works on, all f32.
constexpr int64_t index_score_plain_bytes(int64_t padded_heads, int64_t index_dim) {
  return 4 * (padded_heads * (index_dim + 1) +
              int64_t{kIndexWarps} * kIndexPlainKeysPerWarp * index_dim);
}

// Precondition: num_rows > 0.
constexpr IndexScoreConfig pick_index_score_config(const IndexScoreDesc& desc) {
  constexpr int64_t kQueryBytes = 32 << 10;  // of a block: more would cost a block per SM
  constexpr int64_t kBlocksPerSm = 8;        // some waves, since rows see unequal numbers of keys
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const IndexKeyLayout& layout = desc.layout;
  const int64_t dim = layout.index_dim;
  IndexScoreConfig config;
  config.tensor_cores = layout.format != RowFormat::kF32 && dim % 16 == 0 && dim <= 256 &&
                        layout.block_tokens == kIndexPageKeys;
  if (config.tensor_cores) {
    config.dim_chunks = dim <= 64 ? 2 : dim <= 128 ? 4 : 8;
    config.head_warps = desc.num_heads <= 32 ? 1 : 2;
  }
  config.padded_heads = static_cast<int32_t>(
      std::max<int64_t>(1, ceil_div(desc.num_heads, config.head_block())) * config.head_block());
  if (config.tensor_cores) {
    const int64_t row_bytes = index_score_shared(layout.format, config).query_bytes;
    config.rows_per_block = static_cast<int32_t>(
        std::clamp<int64_t>(kQueryBytes / row_bytes, 1, std::min<int64_t>(8, desc.num_rows)));
    config.shared_bytes = index_score_shared(layout.format, config).total;
  } else {
    config.shared_bytes = index_score_plain_bytes(config.padded_heads, dim);
  }
  const int64_t wanted = ceil_div(std::max(1, desc.num_sms) * kBlocksPerSm,
                                  ceil_div(desc.num_rows, config.rows_per_block));
  config.num_splits = static_cast<int32_t>(std::clamp<int64_t>(
      wanted, 1, std::max<int64_t>(1, ceil_div(desc.max_keys, kIndexPageKeys))));
  return config;
}

}  // namespace dhs
