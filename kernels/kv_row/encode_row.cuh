// Encoding of rows and index keys into shared memory, with kv_row.cc's bits.
#pragma once

#include "kernels/kv_row/kv_row_device.cuh"

namespace dhs::cuda {

// Encodes `count` values that share a scale, by one whole warp; every lane gets the scale.
__device__ inline float encode_e4m3_group(const float* values, int64_t count, std::byte* codes) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float amax = 0.0f;
  for (int64_t i = lane; i < count; i += 32) amax = fmaxf(amax, fabsf(values[i]));  // skips NaNs
  for (int bits = 16; bits > 0; bits /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, bits));
  }
  const float scale = e4m3_scale(amax);
  const float inverse = inverse_scale(scale);
  for (int64_t i = lane; i < count; i += 32) {
    codes[i] = static_cast<std::byte>(encode_e4m3(values[i], inverse));
  }
  return scale;
}

// Threads that share a piece of work, and which of them this is.
struct Team {
  int thread;
  int num_threads;
};

// Stores `count` values in f32 or bf16.
__device__ inline void encode_plain(RowFormat format, const float* values, int64_t count,
                                    std::byte* target, Team team) {
  for (int64_t i = team.thread; i < count; i += team.num_threads) {
    if (format == RowFormat::kF32) {
      reinterpret_cast<float*>(target)[i] = values[i];
    } else {
      reinterpret_cast<uint16_t*>(target)[i] = encode_bf16(values[i]);
    }
  }
}

// encode_row by a whole one-dimensional block of full warps. `row` is shared memory, 16-byte
// aligned, row_bytes() long; it is complete after the caller's next barrier.
__device__ inline void encode_row(const RowLayout& layout, const float* latent, const float* rope,
                                  std::byte* row) {
  const Team team{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
  auto* words = reinterpret_cast<uint4*>(row);
  for (int64_t i = team.thread; i < layout.row_bytes() / 16; i += team.num_threads) {
    words[i] = uint4{0, 0, 0, 0};  // what no value covers is padding
  }
  __syncthreads();
  if (layout.format != RowFormat::kFp8) {
    encode_plain(layout.format, latent, layout.latent_dim, row, team);
    encode_plain(layout.format, rope, layout.rope_dim, row + layout.rope_offset(), team);
    return;
  }
  auto* scales = reinterpret_cast<float*>(row + layout.scales_offset());
  for (int64_t group = team.thread / 32; group < layout.num_scales();
       group += team.num_threads / 32) {
    const int64_t first = group * kRowScaleGroup;
    const int64_t left = layout.latent_dim - first;
    const int64_t count = left < kRowScaleGroup ? left : kRowScaleGroup;
    const float scale = encode_e4m3_group(latent + first, count, row + first);
    if (team.thread % 32 == 0) scales[group] = scale;
  }
  encode_plain(RowFormat::kBf16, rope, layout.rope_dim, row + layout.rope_offset(), team);
}

}  // namespace dhs::cuda
