// kv_row: the bytes of one token's KV in one layer, and of one index key. Pictures: docs/FORMATS.md
//
// Row formats (latent_dim = kv_lora_rank, rope_dim = qk_rope_head_dim), a row a multiple of 16 B:
//   f32   latent f32 | rope f32
//   bf16  latent bf16 | rope bf16                                        512+64: 1152 B
//   fp8   latent e4m3 | f32 scale per 128 latents (padded to 16 B) | rope bf16     512+64: 656 B
//         scale = max(amax, 1e-4) / 448 rounded up to a power of two (kv tiles of FlashMLA's
//         layout); stored value = e4m3(x / scale), so x ~= value * scale.
// Index key page: 64 keys of one index group, planar: keys [64, index_dim] then, for fp8 only,
// scales f32 [64]; a multiple of 16 B.
//   fp8 key: scale = max(amax, 1e-4) / 448, rounded up to a power of two.
#pragma once

#include "dhisparse/tensor.h"

namespace dhs {

inline constexpr int64_t kRowScaleGroup = 128;  // latents that share one scale

struct RowLayout {
  RowFormat format = RowFormat::kBf16;
  int32_t latent_dim = 0;
  int32_t rope_dim = 0;

  int64_t num_scales() const;     // 0 unless fp8
  int64_t scales_offset() const;  // fp8 only
  int64_t rope_offset() const;
  int64_t row_bytes() const;
};

struct IndexKeyLayout {
  RowFormat format = RowFormat::kBf16;
  int32_t index_dim = 0;
  int32_t block_tokens = 64;

  int64_t key_bytes() const;      // of one key, without its scale
  int64_t scales_offset() const;  // within a page
  int64_t page_bytes() const;
};

// f32 latent [latent_dim] and rope [rope_dim] -> row bytes, and back. Every byte of the row is
// written, padding as zero. Pure functions; rows need no alignment beyond 16 bytes.
void encode_row(const RowLayout& layout, const float* latent, const float* rope, std::byte* row);
void decode_row(const RowLayout& layout, const std::byte* row, float* latent, float* rope);

// Writes key `offset` (0..block_tokens-1) of a page; touches only that key's bytes and scale.
void encode_index_key(const IndexKeyLayout& layout, const float* key, int offset, std::byte* page);
void decode_index_key(const IndexKeyLayout& layout, const std::byte* page, int offset, float* key);

}  // namespace dhs
