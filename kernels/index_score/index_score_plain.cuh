// index_score without tensor cores: f32 keys, and shapes that the tensor core kernel has no tile
// for. Grid (query rows, splits), 128 threads. A warp takes 4 keys at a time: their elements
// are broadcast from shared memory, lanes are heads, dims ascend. Shared memory: q and weights
// [num_heads, index_dim + 1] and 16 keys, f32. Bound by shared memory: a load of q per 4 products.
#pragma once

#include "kernels/index_score/index_page.cuh"

namespace dhs::cuda {

// A key of the plain kernel's format as f32, without its scale, by one warp.
template <RowFormat kFormat>
__device__ void decode_key(const std::byte* key, int dim, float* target) {
  for (int d = threadIdx.x % 32; d < dim; d += 32) {
    if constexpr (kFormat == RowFormat::kF32) {
      target[d] = reinterpret_cast<const float*>(key)[d];
    } else if constexpr (kFormat == RowFormat::kBf16) {
      target[d] = decode_bf16(reinterpret_cast<const uint16_t*>(key)[d]);
    } else {
      target[d] = decode_e4m3(static_cast<uint32_t>(key[d]));
    }
  }
}

// Query row t as f32 [index_dim, padded_heads], rounded to bf16 unless keys are f32.
template <RowFormat kFormat>
__device__ void load_plain_query(const IndexScoreParams& params, int64_t t, int padded_heads,
                                 float* q, float* weights) {
  const int num_heads = static_cast<int>(params.q.sizes[1]);
  for (int i = threadIdx.x; i < padded_heads * params.layout.index_dim; i += kIndexThreads) {
    const int head = i % padded_heads;
    const int d = i / padded_heads;
    const float value = head < num_heads ? params.q(t, head, d) : 0.0f;
    q[i] = kFormat == RowFormat::kF32 ? value : decode_bf16(encode_bf16(value));
  }
  for (int head = threadIdx.x; head < padded_heads; head += kIndexThreads) {
    weights[head] = head < num_heads ? params.head_weights(t, head) * params.softmax_scale : 0.0f;
  }
}

struct PlainQuery {
  const float* q;        // [dim, padded_heads]
  const float* weights;  // [padded_heads]
  int dim;
  int padded_heads;
};

// A warp's scores of kIndexPlainKeysPerWarp keys [., dim]: every lane gets all of them.
__device__ inline void score_plain_keys(const float* keys, const PlainQuery& query, float* scores) {
  const auto [q, weights, dim, padded_heads] = query;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int j = 0; j < kIndexPlainKeysPerWarp; ++j) scores[j] = 0.0f;
  for (int head = lane; head < padded_heads; head += 32) {
    float dots[kIndexPlainKeysPerWarp] = {};
    for (int d = 0; d < dim; ++d) {
      const float element = q[d * padded_heads + head];
      for (int j = 0; j < kIndexPlainKeysPerWarp; ++j) {
        dots[j] = fmaf(keys[j * dim + d], element, dots[j]);
      }
    }
    for (int j = 0; j < kIndexPlainKeysPerWarp; ++j) {
      const float relu = dots[j] < 0.0f ? 0.0f : dots[j];  // keeps NaN
      scores[j] = fmaf(relu, weights[head], scores[j]);
    }
  }
  for (int j = 0; j < kIndexPlainKeysPerWarp; ++j) {
    for (int bits = 16; bits > 0; bits /= 2) {
      scores[j] += __shfl_xor_sync(kAllLanes, scores[j], bits);
    }
  }
}

// Key s of a sequence: its page, and which of the page's keys it is.
struct KeyPlace {
  const std::byte* page;
  int offset;
};

__device__ __forceinline__ KeyPlace place_of(const IndexScoreParams& params, const int32_t* items,
                                             int s) {
  const int block = s / params.layout.block_tokens;
  return {page_of(params, items[block]), s - block * params.layout.block_tokens};
}

template <RowFormat kFormat>
__global__ void __launch_bounds__(kIndexThreads)
    index_score_plain_kernel(const __grid_constant__ IndexScoreParams params,
                             const __grid_constant__ IndexScoreConfig config) {
  constexpr int kKeys = kIndexPlainKeysPerWarp;
  constexpr int kStep = kIndexWarps * kKeys;
  DHS_DYN_SHARED(float, shared);
  const int64_t t = blockIdx.x;
  const int visible = params.visible(t);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (int64_t{blockIdx.y} * kStep >= visible) return;
  const int dim = params.layout.index_dim;
  float* weights = shared + config.padded_heads * dim;
  float* keys = weights + config.padded_heads + warp * kKeys * dim;
  load_plain_query<kFormat>(params, t, config.padded_heads, shared, weights);
  __syncthreads();
  const int32_t* items = params.item_table.row(params.sequence_of_row(t));
  for (int64_t first = int64_t{blockIdx.y} * kStep + warp * kKeys; first < visible;
       first += int64_t{kStep} * gridDim.y) {
    const int num_keys = static_cast<int>(visible - first < kKeys ? visible - first : kKeys);
    for (int j = 0; j < kKeys; ++j) {  // what is not there repeats the last key
      const KeyPlace key =
          place_of(params, items, static_cast<int>(first) + (j < num_keys ? j : num_keys - 1));
      decode_key<kFormat>(key.page + key.offset * params.layout.key_bytes(), dim, keys + j * dim);
    }
    __syncwarp();
    float scores[kKeys];
    score_plain_keys(keys, {shared, weights, dim, config.padded_heads}, scores);
    float own = scores[0];
    for (int j = 1; j < kKeys; ++j) own = lane == j ? scores[j] : own;
    if (lane < num_keys) {
      if constexpr (kFormat == RowFormat::kFp8) {
        const KeyPlace key = place_of(params, items, static_cast<int>(first) + lane);
        own *= reinterpret_cast<const float*>(key.page + params.layout.scales_offset())[key.offset];
      }
      params.scores.row(t)[first + lane] = own;
    }
    __syncwarp();
  }
}

}  // namespace dhs::cuda
