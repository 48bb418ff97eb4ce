// kv_row on CUDA: one block of 128 threads per row.
//
// encode  the row takes shape in shared memory (row_bytes of it) and leaves in 16-byte vectors; a
//         warp takes a group of 128 latents that share a scale.
// decode  one thread per value; no shared memory.
// Both bound by memory: row_bytes + 4 * (latent_dim + rope_dim) bytes per row, about 10 integer and
// float operations per fp8 value.
#include "kernels/cuda/launch.h"
#include "kernels/kv_row/encode_row.cuh"
#include "kernels/kv_row/kv_row.h"

namespace dhs {
namespace {

constexpr int kThreads = 128;

__global__ void encode_rows_kernel(EncodeRowsParams params) {
  DHS_DYN_SHARED(uint4, smem_row);
  const int64_t i = blockIdx.x;
  cuda::encode_row(params.layout, params.latents.row(i), params.ropes.row(i),
                   reinterpret_cast<std::byte*>(smem_row));
  __syncthreads();
  auto* row = reinterpret_cast<uint4*>(params.rows.row(i));
  for (int64_t v = threadIdx.x; v < params.layout.row_bytes() / 16; v += kThreads) {
    row[v] = smem_row[v];
  }
}

__device__ void decode_latents_bf16(const RowLayout& layout, const std::byte* row, Bf16* target) {
  const bool in_fours = layout.format == RowFormat::kFp8 && layout.latent_dim % 4 == 0;
  if (!in_fours) {
    for (int64_t i = threadIdx.x; i < layout.latent_dim; i += kThreads) {
      target[i] = cuda::encode_bf16(cuda::decode_latent(layout, row, i));
    }
    return;
  }
  const auto* scales = reinterpret_cast<const float*>(row + layout.scales_offset());
  const auto* codes = reinterpret_cast<const uint32_t*>(row);
  for (int64_t four = threadIdx.x; four < layout.latent_dim / 4; four += kThreads) {
    const float scale = scales[four * 4 / kRowScaleGroup];
    const uint2 pairs = cuda::decode_e4m3x4(codes[four], cuda::scale_pair(scale));
    target[four * 4] = static_cast<Bf16>(pairs.x & 0xffffu);
    target[four * 4 + 1] = static_cast<Bf16>(pairs.x >> 16);
    target[four * 4 + 2] = static_cast<Bf16>(pairs.y & 0xffffu);
    target[four * 4 + 3] = static_cast<Bf16>(pairs.y >> 16);
  }
}

__global__ void decode_rows_kernel(DecodeRowsParams params) {
  const int64_t row_idx = blockIdx.x;
  const std::byte* row = params.rows.row(row_idx);
  float* latent = params.latents.row(row_idx);
  float* rope = params.ropes.row(row_idx);
  for (int64_t i = threadIdx.x; i < params.layout.latent_dim; i += kThreads) {
    latent[i] = cuda::decode_latent(params.layout, row, i);
  }
  for (int64_t i = threadIdx.x; i < params.layout.rope_dim; i += kThreads) {
    rope[i] = cuda::decode_rope(params.layout, row, i);
  }
  if (params.latents_bf16.data != nullptr) {
    decode_latents_bf16(params.layout, row, params.latents_bf16.row(row_idx));
  }
}

}  // namespace

void launch_encode_rows_cuda(const EncodeRowsParams& params, Stream stream) {
  cuda::launch("encode_rows", encode_rows_kernel,
               {.grid = dim3(static_cast<unsigned>(params.rows.sizes[0])),
                .block = dim3(kThreads),
                .shared_bytes = params.layout.row_bytes()},
               stream, params);
}

void launch_decode_rows_cuda(const DecodeRowsParams& params, Stream stream) {
  cuda::launch("decode_rows", decode_rows_kernel,
               {.grid = dim3(static_cast<unsigned>(params.rows.sizes[0])), .block = dim3(kThreads)},
               stream, params);
}

}  // namespace dhs
