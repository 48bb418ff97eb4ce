// The kernel that merges segments which different blocks have computed. For sparse_attention.cu.
#pragma once

#include "kernels/sparse_attention/attention_segments.cuh"

namespace dhs::cuda {

inline constexpr int kMergeThreads = 128;
inline constexpr int kMergeColumns = 4;  // of one thread

// One block per row, head and kMergeThreads * kMergeColumns latents.
__global__ void merge_segments_kernel(const __grid_constant__ AttentionLaunch launch) {
  const auto& params = launch.params;
  const int64_t num_heads = params.out.sizes[1];
  const int64_t latent_dim = params.layout.latent_dim;
  const int64_t row = static_cast<int64_t>(blockIdx.x) / num_heads;
  const int64_t head = static_cast<int64_t>(blockIdx.x) % num_heads;
  const int64_t first = int64_t{blockIdx.y} * kMergeThreads * kMergeColumns + threadIdx.x;
  Softmax run;
  float values[kMergeColumns] = {};
  for (int32_t s = 0; s < launch.partials.num_segments; ++s) {
    if (params.slots(launch.first_row + row, int64_t{s} * kAttentionSegmentRows) < 0) break;
    const int64_t unit = (row * launch.partials.num_segments + s) * num_heads + head;
    const Softmax segment{launch.partials.stats[2 * unit], launch.partials.stats[2 * unit + 1]};
    const float* sums = launch.partials.sums + unit * latent_dim;
    MergeFactors factors;
    if (s == 0) {
      run = segment;
    } else {
      factors = merge_softmax(run, segment);
    }
#pragma unroll
    for (int j = 0; j < kMergeColumns; ++j) {
      const int64_t d = first + j * kMergeThreads;
      if (d < latent_dim) values[j] = s == 0 ? sums[d] : merge_sums(values[j], sums[d], factors);
    }
  }
  const float inverse = run.sum == 0.0f ? 0.0f : inverse_of(run.sum);
  float* out = &params.out(launch.first_row + row, head, 0);
#pragma unroll
  for (int j = 0; j < kMergeColumns; ++j) {
    const int64_t d = first + j * kMergeThreads;
    if (d < latent_dim) out[d] = __fmul_rn(values[j], inverse);
  }
}

}  // namespace dhs::cuda
