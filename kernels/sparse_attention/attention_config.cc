#include "kernels/sparse_attention/attention_config.h"

#include <algorithm>

namespace dhs {
namespace {

constexpr int32_t kHeadsPerBlock[] = {64, 32, 16};
constexpr int32_t kTilesPerSegment = kAttentionSegmentRows / kAttentionTileRows;

// Rough costs in cycles of one SM, for comparing configurations with each other only: counted from
// instructions and bytes, not measured.
constexpr int64_t kBlockCycles = 4000;   // start, table, first rows on their way
constexpr int64_t kTileCycles = 800;     // three barriers and the latencies between them
constexpr int64_t kHeadTileCycles = 60;  // one head's share of a tile: shared memory, mma.sync
constexpr int64_t kWarpgroupTileCycles = 3000;  // 64 heads: scores 1150, softmax, sums 1020
constexpr int64_t kLaunchCycles = 4000;         // of the kernel that merges segments
constexpr int64_t kBytesPerCycle = 32;          // of one SM, from and to the second level cache

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Partial results of one query row, stats included.
int64_t partial_bytes(const AttentionDesc& desc) {
  return int64_t{attention_segments(desc.top_k)} * desc.num_heads * (desc.layout.latent_dim + 2) *
         static_cast<int64_t>(sizeof(float));
}

int64_t estimated_cycles(const AttentionDesc& desc, const AttentionConfig& config) {
  const int64_t num_sms = std::max(1, desc.num_sms);
  const int64_t num_segments = std::max(1, attention_segments(desc.top_k));
  const int64_t segments = std::min<int64_t>(config.segments_per_block, num_segments);
  const int64_t runs = divide_up(num_segments, segments);
  const int64_t blocks =
      desc.num_query_rows * divide_up(desc.num_heads, config.heads_per_block) * runs;
  const int64_t tile = config.kernel == AttentionKernel::kWarpgroup
                           ? kWarpgroupTileCycles
                           : kTileCycles + config.heads_per_block * kHeadTileCycles;
  const int64_t result_bytes = int64_t{config.heads_per_block} * desc.layout.latent_dim * 4;
  const int64_t segment = kTilesPerSegment * tile + 2 * result_bytes / kBytesPerCycle;
  const int64_t attend = divide_up(blocks, num_sms) * (kBlockCycles + segments * segment);
  if (runs == 1) return attend;
  const int64_t launches = divide_up(desc.num_query_rows, config.rows_per_launch);
  return attend + launches * kLaunchCycles +
         desc.num_query_rows * partial_bytes(desc) / (kBytesPerCycle * num_sms);
}

// The rows that fit beside everything else: at least a tile, at most two. 0: not even one.
int32_t pick_ring_rows(const AttentionDesc& desc, int32_t heads_per_block) {
  const int64_t fixed = tensor_core_shared_bytes(desc.layout, heads_per_block, 0);
  const int64_t left = max_shared_bytes(desc.compute_capability) - fixed;
  const int64_t rows = left / attention_row_pitch(desc.layout) / 16 * 16;
  if (rows < kAttentionTileRows) return 0;
  // fp8 rows are prefetched as stored, beside the one tile they are decoded into.
  const bool is_fp8 = desc.layout.format == RowFormat::kFp8;
  return static_cast<int32_t>(
      std::min<int64_t>(rows, is_fp8 ? kAttentionTileRows : 2 * kAttentionTileRows));
}

// What a block is and needs, without its segments.
AttentionConfig block_config(const AttentionDesc& desc, const AttentionSpread& spread) {
  if (spread.kernel == AttentionKernel::kWarpgroup) {
    return {.kernel = spread.kernel,
            .heads_per_block = kWarpgroupHeads,
            .shared_bytes = warpgroup_shared_bytes(desc.layout)};
  }
  const bool wants_mma = spread.kernel == AttentionKernel::kMma && fits_tensor_cores(desc.layout);
  const int32_t ring_rows = wants_mma ? pick_ring_rows(desc, spread.heads_per_block) : 0;
  if (ring_rows == 0) {
    return {.kernel = AttentionKernel::kPlain,
            .heads_per_block = kPlainHeads,
            .shared_bytes = plain_shared_bytes(desc.layout)};
  }
  return {.kernel = AttentionKernel::kMma,
          .heads_per_block = spread.heads_per_block,
          .ring_rows = ring_rows,
          .shared_bytes = tensor_core_shared_bytes(desc.layout, spread.heads_per_block, ring_rows)};
}

}  // namespace

AttentionKernel pick_attention_kernel(const AttentionDesc& desc) {
  if (!fits_tensor_cores(desc.layout)) return AttentionKernel::kPlain;
  const bool has_wgmma = desc.compute_capability == 90;
  return has_wgmma && desc.num_heads >= kWarpgroupHeads && fits_warpgroups(desc.layout)
             ? AttentionKernel::kWarpgroup
             : AttentionKernel::kMma;
}

AttentionConfig make_attention_config(const AttentionDesc& desc, const AttentionSpread& spread) {
  AttentionConfig config = block_config(desc, spread);
  const int32_t num_segments = std::max(1, attention_segments(desc.top_k));
  config.segments_per_block = std::clamp(spread.segments_per_block, 1, num_segments);
  config.rows_per_launch = desc.num_query_rows;
  if (config.segments_per_block < num_segments) {
    // 512: both arrays of partial results start at multiples of 256.
    const int64_t fitting = std::max<int64_t>(0, desc.scratch_bytes - 512) / partial_bytes(desc);
    config.rows_per_launch = std::min(fitting, desc.num_query_rows);
    if (fitting == 0) {  // one block takes all segments and needs no scratch
      config.segments_per_block = num_segments;
      config.rows_per_launch = desc.num_query_rows;
    }
  }
  return config;
}

AttentionConfig pick_attention_config(const AttentionDesc& desc) {
  return pick_attention_config(desc, pick_attention_kernel(desc));
}

AttentionConfig pick_attention_config(const AttentionDesc& desc, AttentionKernel kernel) {
  const int32_t num_segments = std::max(1, attention_segments(desc.top_k));
  AttentionConfig best;
  int64_t best_cycles = 0;
  const auto consider = [&](int32_t heads, int32_t segments) {
    const AttentionConfig config = make_attention_config(desc, {kernel, heads, segments});
    const int64_t cycles = estimated_cycles(desc, config);
    const bool is_better =
        config.kernel != best.kernel ? config.kernel == kernel : cycles < best_cycles;
    if (best.heads_per_block != 0 && !is_better) return;
    best = config;
    best_cycles = cycles;
  };
  for (const int32_t heads : kHeadsPerBlock) {
    if (heads > 16 && heads / 2 >= desc.num_heads) continue;  // half of them do as well
    for (int32_t segments = 1; segments < num_segments; segments *= 2) consider(heads, segments);
    consider(heads, num_segments);
  }
  return best;
}

bool prefer_fused(const FusedChoice& choice) {
  constexpr double kLaunchUs = 3.0, kLatencyUs = 2.0;
  constexpr double kBytesPerUs = 45e3;
  if (choice.num_query_rows == 0) return false;
  const AttentionConfig config =
      pick_attention_config({.layout = {RowFormat::kBf16, 512,
                                        64},  // stands for any row: the choice hardly depends on it
                             .num_query_rows = choice.num_query_rows,
                             .num_heads = choice.num_heads,
                             .top_k = choice.top_k,
                             .num_sms = choice.num_sms,
                             .compute_capability = choice.compute_capability,
                             .scratch_bytes = int64_t{1} << 30});
  const double reads = static_cast<double>(divide_up(choice.num_heads, config.heads_per_block));
  const double misses = static_cast<double>(choice.expected_misses);
  const double record_bytes = static_cast<double>(choice.record_bytes);
  const double row_bytes = record_bytes / choice.num_layers;
  // Misses spread evenly over the query rows' segments; a block waits for them tile by tile.
  const int64_t tiles = int64_t{kTilesPerSegment} * config.segments_per_block;
  const int64_t runs =
      divide_up(std::max(1, attention_segments(choice.top_k)), config.segments_per_block);
  const int64_t waits =
      std::min(tiles, divide_up(choice.expected_misses, choice.num_query_rows * runs));
  const double gather = kLaunchUs + kLatencyUs + misses * record_bytes / kBytesPerUs;
  const double fused =
      kLatencyUs * static_cast<double>(waits) + misses * row_bytes * reads / kBytesPerUs;
  return fused < gather;
}

}  // namespace dhs
