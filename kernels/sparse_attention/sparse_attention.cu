// sparse_attention on CUDA: flash attention over gathered rows, cut into fixed segments. With 64
// heads and more on sm_90a, warpgroup_attention.cu takes the place of what is said here of blocks.
//
// Work. A block of 256 threads takes one query row, 16, 32 or 64 of its heads (without tensor
// cores: 8) and a run of segments of 256 selected rows. Grid: (query rows * blocks of heads, runs).
// A block that has all segments of its row merges them in `out`, in order; else each segment's sums
// go to the stream's scratch and merge_segments_kernel merges them, in the same order, to the same
// bits. A prefill tile is many query rows, each with a selection of its own: the same kernel.
//
// Stages, per tile of 64 rows:
//   load        rows -> shared memory, cp.async in 16-byte vectors from the slot or, for a miss,
//               from the host block. The next tile is on its way while this one is computed: as far
//               as the ring has room (bf16), or as stored, beside the ring (fp8).
//   fill        fused retrieval: rows that are first named here -> their slots, 16-byte stores
//   decode      fp8 -> bf16, exact
//   score       S = q k^T, mma.sync m16n8k16: a warp per 16 heads and 16 rows (64 heads: 32 rows);
//               q stays in shared memory. Two chains of sums: even and odd steps of 16 dims.
//   softmax     the largest score of each head over all warps; weights to shared memory as bf16
//   accumulate  O = O * rescale + P V, mma.sync: a warp has 64 of 512 latents of all heads, in
//               registers (128 of them at 64 heads)
// and after a segment:
//   finish      O -> out, merged, or -> scratch
//
// Shared memory: tensor_core_shared_bytes() and plain_shared_bytes() in attention_config.h. At
// 512+64 with 64 heads: 73 KB q, 73 KB per 64 bf16 rows, 41 KB of fp8 rows on their way, 17 KB of
// weights, tables and states. One block per SM.
//
// Bound: 16 heads by reading rows (656 B fp8, 1152 B bf16; all blocks of heads read them, the
// second and later ones from the second level cache); 64 heads by shared memory reads, 573 KB for
// 8.9 MFLOP of a tile. Partial results cost 8 * heads * latent_dim bytes per segment, written and
// read.
//
// Rounding. bf16 and fp8 rows: q and weights in bf16, rows exact, sums f32 (the tensor core's); the
// sum of weights is that of the rounded ones. f32 rows and dims that are no multiple of 16 go
// another way without tensor cores (plain_attention.cuh): all f32, tiles of 32 rows.
#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/sparse_attention/merge_segments.cuh"
#include "kernels/sparse_attention/plain_attention.cuh"
#include "kernels/sparse_attention/tensor_core_attention.cuh"

namespace dhs {
namespace {

constexpr const char* kOp = "sparse_attention";

template <int kHeadTiles, bool kFp8>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    tensor_core_attention_kernel(const __grid_constant__ cuda::AttentionLaunch launch) {
  DHS_DYN_SHARED(uint4, smem);
  cuda::TensorCoreAttention<kHeadTiles, kFp8> attention(launch, reinterpret_cast<std::byte*>(smem));
  attention.run();
}

__global__ void __launch_bounds__(kAttentionThreads, 1)
    plain_attention_kernel(const __grid_constant__ cuda::AttentionLaunch launch) {
  DHS_DYN_SHARED(uint4, smem);
  cuda::PlainAttention attention(launch, reinterpret_cast<std::byte*>(smem));
  attention.run();
}

using cuda::AttentionEntry;

template <bool kFp8>
AttentionEntry tensor_core_kernel(int32_t heads_per_block) {
  switch (heads_per_block) {
    case 16:
      return tensor_core_attention_kernel<1, kFp8>;
    case 32:
      return tensor_core_attention_kernel<2, kFp8>;
    default:
      return tensor_core_attention_kernel<4, kFp8>;
  }
}

AttentionEntry kernel_of(const AttentionConfig& config, const RowLayout& layout) {
  switch (config.kernel) {
    case AttentionKernel::kPlain:
      return plain_attention_kernel;
    case AttentionKernel::kWarpgroup:
      return cuda::warpgroup_attention(layout);
    case AttentionKernel::kMma:
      break;
  }
  return layout.format == RowFormat::kFp8 ? tensor_core_kernel<true>(config.heads_per_block)
                                          : tensor_core_kernel<false>(config.heads_per_block);
}

void allow_all_shared_bytes(int32_t compute_capability) {
  const int64_t bytes = max_shared_bytes(compute_capability);
  cuda::allow_shared_bytes(kOp, plain_attention_kernel, bytes);
  for (const int32_t heads : {16, 32, 64}) {
    cuda::allow_shared_bytes(kOp, tensor_core_kernel<true>(heads), bytes);
    cuda::allow_shared_bytes(kOp, tensor_core_kernel<false>(heads), bytes);
  }
}

// What no configuration takes, and pairs of results that are not aligned.
void check_supported(const AttentionConfig& config, const SparseAttentionParams& params,
                     int32_t compute_capability) {
  const auto& out = params.out;
  const bool is_warpgroup = config.kernel == AttentionKernel::kWarpgroup;
  const bool fits = (!is_warpgroup || fits_warpgroups(params.layout)) &&
                    params.layout.latent_dim <= kMaxPlainLatent &&
                    config.shared_bytes <= max_shared_bytes(compute_capability);
  const bool is_aligned = out.strides[0] % 2 == 0 && out.strides[1] % 2 == 0 &&
                          reinterpret_cast<uintptr_t>(out.data) % sizeof(float2) == 0;
  const bool stores_pairs = config.kernel != AttentionKernel::kPlain;
  if (!fits || (stores_pairs && !is_aligned)) cuda::check(cudaErrorInvalidValue, kOp);
}

}  // namespace

void launch_sparse_attention_as(const AttentionConfig& config, const SparseAttentionParams& params,
                                Stream stream) {
  static cuda::OncePerDevice once;
  once(kOp, [&] { allow_all_shared_bytes(stream.compute_capability); });
  check_supported(config, params, stream.compute_capability);
  const auto num_heads = static_cast<int32_t>(params.out.sizes[1]);
  const int64_t head_blocks = (num_heads + config.heads_per_block - 1) / config.heads_per_block;
  cuda::AttentionLaunch launch;
  launch.params = params;
  launch.heads_per_block = config.heads_per_block;
  launch.segments_per_block = config.segments_per_block;
  launch.ring_rows = config.ring_rows;
  const int32_t num_segments =
      std::max(1, attention_segments(static_cast<int32_t>(params.slots.sizes[1])));
  const int32_t runs = (num_segments + config.segments_per_block - 1) / config.segments_per_block;
  if (runs > 1) {
    cuda::ScratchCarver scratch(stream);
    const int64_t units = config.rows_per_launch * num_segments * num_heads;
    launch.partials = {scratch.take<float>(units * params.layout.latent_dim),
                       scratch.take<float>(units * 2), num_segments};
  }
  for (int64_t row = 0; row < params.out.sizes[0]; row += config.rows_per_launch) {
    const int64_t rows = std::min(config.rows_per_launch, params.out.sizes[0] - row);
    launch.first_row = row;
    cuda::launch(
        kOp, kernel_of(config, params.layout),
        {.grid = dim3(static_cast<unsigned>(rows * head_blocks), static_cast<unsigned>(runs)),
         .block = dim3(kAttentionThreads),
         .shared_bytes = config.shared_bytes},
        stream, launch);
    if (runs == 1) continue;
    const int64_t columns = int64_t{cuda::kMergeThreads} * cuda::kMergeColumns;
    cuda::launch(
        kOp, cuda::merge_segments_kernel,
        {.grid = dim3(static_cast<unsigned>(rows * num_heads),
                      static_cast<unsigned>((params.layout.latent_dim + columns - 1) / columns)),
         .block = dim3(cuda::kMergeThreads)},
        stream, launch);
  }
}

void launch_sparse_attention_cuda(const SparseAttentionParams& params, Stream stream) {
  if (params.out.sizes[0] == 0 || params.out.sizes[1] == 0) return;
  launch_sparse_attention_as(
      pick_attention_config({.layout = params.layout,
                             .num_query_rows = params.out.sizes[0],
                             .num_heads = static_cast<int32_t>(params.out.sizes[1]),
                             .top_k = static_cast<int32_t>(params.slots.sizes[1]),
                             .num_sms = stream.num_sms,
                             .compute_capability = stream.compute_capability,
                             .scratch_bytes = stream.scratch_bytes}),
      params, stream);
}

}  // namespace dhs
