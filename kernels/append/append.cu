// append on CUDA: what is encoded once goes to both tiers; the host's copy as posted writes of
// threads, in whole 16-byte vectors by consecutive threads.
//
//   rows        grid: tokens; 128 threads; shared memory: row_bytes. Stages: encode (a warp per
//               scale group of 128 latents), store.
//   index keys  grid: tokens / 4; 128 threads, a warp per token; shared memory: 4 * key_bytes,
//               rounded up. Stages: encode, store.
//   draft kv    grid: (tokens, layers * 2); 128 threads, each 16 stored bytes at a time; no shared
//               memory.
// Bound by latency in a decode step (a few rows) and by the host link's writes in a prefill chunk:
// row_bytes to the host and to the device per token, about 10 operations per value.
//
// A chunk of many rows goes the same way. The copy engine would need the encoded rows once more in
// device memory, and one strided copy per host block and layer whose addresses only the device
// knows when the launch is part of a graph. Posted writes do not wait for the host: 4096 rows of
// 656 bytes are 2.7 MB, some 60 us of link time beside a layer's milliseconds.
#include "kernels/append/append.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/gather/addresses.cuh"
#include "kernels/kv_row/encode_row.cuh"

namespace dhs {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

// Copies shared memory to both targets; `device` may be null. All are 16-byte aligned, `bytes` is a
// multiple of 16.
__device__ void store_vectors(const uint4* smem, std::byte* host, std::byte* device, int64_t bytes,
                              cuda::Team team) {
  auto* host_vectors = reinterpret_cast<uint4*>(host);
  auto* device_vectors = reinterpret_cast<uint4*>(device);
  for (int64_t i = team.thread; i < bytes / 16; i += team.num_threads) {
    const uint4 value = smem[i];
    simt::store_streaming_16(host_vectors + i, value);
    if (device != nullptr) device_vectors[i] = value;
  }
}

__global__ void __launch_bounds__(kThreads, 4)
    append_rows_kernel(AppendRowsParams params, cuda::HostRecordAddresses host_records,
                       cuda::ItemAddresses slots) {
  DHS_DYN_SHARED(uint4, smem);
  const int64_t token = blockIdx.x;
  const int64_t host_row = params.host_rows(token);
  if (host_row < 0) return;
  const int32_t slot = params.slot_of(host_row);
  std::byte* host = host_records.at(host_row) + params.row_offset;
  std::byte* device = slot == kAbsent ? nullptr : slots.at(slot) + params.row_offset;
  cuda::encode_row(params.layout, params.latents.row(token), params.ropes.row(token),
                   reinterpret_cast<std::byte*>(smem));
  __syncthreads();
  store_vectors(smem, host, device, params.layout.row_bytes(),
                {static_cast<int>(threadIdx.x), kThreads});
}

// Keys whose size is no multiple of 16 (tiny index_dim) leave byte by byte.
__device__ void store_key(const uint4* smem, std::byte* host, std::byte* device, int64_t bytes,
                          cuda::Team team) {
  if (bytes % 16 == 0) return store_vectors(smem, host, device, bytes, team);
  const auto* from = reinterpret_cast<const std::byte*>(smem);
  for (int64_t i = team.thread; i < bytes; i += team.num_threads) host[i] = device[i] = from[i];
}

// Encodes a key by one warp; its scale (fp8) comes back to every lane.
__device__ float encode_key(const IndexKeyLayout& layout, const float* key, std::byte* target,
                            cuda::Team team) {
  if (layout.format == RowFormat::kFp8) {
    return cuda::encode_e4m3_group(key, layout.index_dim, target);
  }
  cuda::encode_plain(layout.format, key, layout.index_dim, target, team);
  return 0.0f;
}

__global__ void __launch_bounds__(kThreads, 4)
    append_index_keys_kernel(AppendIndexKeysParams params, cuda::Divisor block_tokens,
                             cuda::ItemAddresses pages) {
  DHS_DYN_SHARED(uint4, smem);
  const cuda::Team warp{static_cast<int>(threadIdx.x % 32), 32};
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (token >= params.host_rows.sizes[0]) return;
  const int64_t host_row = params.host_rows(token);
  if (host_row < 0) return;
  const IndexKeyLayout& layout = params.layout;
  const int64_t key_bytes = layout.key_bytes();
  uint4* smem_key = smem + threadIdx.x / 32 * (row_aligned(key_bytes) / 16);
  const float scale =
      encode_key(layout, params.keys.row(token), reinterpret_cast<std::byte*>(smem_key), warp);
  __syncwarp();
  const int64_t block = block_tokens.quotient(host_row);
  const int64_t offset = block_tokens.remainder(host_row);
  std::byte* host_page =
      params.host_base + block * params.host_block_bytes + params.host_page_offset;
  std::byte* page = pages.at(params.item_of_token(token)) + params.page_offset;
  store_key(smem_key, host_page + offset * key_bytes, page + offset * key_bytes, key_bytes, warp);
  if (layout.format == RowFormat::kFp8 && warp.thread == 0) {
    reinterpret_cast<float*>(host_page + layout.scales_offset())[offset] = scale;
    reinterpret_cast<float*>(page + layout.scales_offset())[offset] = scale;
  }
}

// 16 stored bytes of `values`.
__device__ __forceinline__ uint4 encode_vector(DType dtype, const float* values) {
  if (dtype == DType::kF32) {
    return {__float_as_uint(values[0]), __float_as_uint(values[1]), __float_as_uint(values[2]),
            __float_as_uint(values[3])};
  }
  uint32_t pairs[4];
  for (int i = 0; i < 4; ++i) {
    pairs[i] = cuda::encode_bf16(values[2 * i]) |
               static_cast<uint32_t>(cuda::encode_bf16(values[2 * i + 1])) << 16;
  }
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

__global__ void __launch_bounds__(kThreads)
    append_draft_kv_kernel(AppendDraftKvParams params, cuda::ItemAddresses pages) {
  const DraftPageLayout& layout = params.layout;
  const int64_t token = blockIdx.x;
  const int64_t host_row = params.host_rows(token);
  if (host_row < 0) return;
  const int32_t page = params.page_of_token(token);
  const int64_t block = host_row / layout.page_tokens;
  const int64_t at = layout.offset(static_cast<int32_t>(blockIdx.y / 2), blockIdx.y % 2 == 1,
                                   host_row % layout.page_tokens);
  std::byte* host =
      params.host_base + block * params.host_block_bytes + params.host_page_offset + at;
  std::byte* device = page == kAbsent ? nullptr : pages.at(page) + at;
  const float* values = params.kv.row(token) + blockIdx.y * layout.width();
  const int values_per_vector = layout.dtype == DType::kF32 ? 4 : 8;
  for (int64_t i = threadIdx.x; i < layout.token_bytes() / 16; i += kThreads) {
    const uint4 stored = encode_vector(layout.dtype, values + i * values_per_vector);
    simt::store_streaming_16(host + i * 16, stored);
    if (device != nullptr) simt::store_16(device + i * 16, stored);
  }
}

}  // namespace

void launch_append_rows_cuda(const AppendRowsParams& params, Stream stream) {
  cuda::launch("append_rows", append_rows_kernel,
               {.grid = dim3(static_cast<unsigned>(params.host_rows.sizes[0])),
                .block = dim3(kThreads),
                .shared_bytes = params.layout.row_bytes()},
               stream, params, cuda::HostRecordAddresses(params.host),
               cuda::ItemAddresses(params.slots));
}

void launch_append_index_keys_cuda(const AppendIndexKeysParams& params, Stream stream) {
  const int64_t num_blocks = (params.host_rows.sizes[0] + kWarps - 1) / kWarps;
  cuda::launch("append_index_keys", append_index_keys_kernel,
               {.grid = dim3(static_cast<unsigned>(num_blocks)),
                .block = dim3(kThreads),
                .shared_bytes = kWarps * row_aligned(params.layout.key_bytes())},
               stream, params, cuda::Divisor(params.layout.block_tokens),
               cuda::ItemAddresses(params.pages));
}

void launch_append_draft_kv_cuda(const AppendDraftKvParams& params, Stream stream) {
  cuda::launch("append_draft_kv", append_draft_kv_kernel,
               {.grid = dim3(static_cast<unsigned>(params.host_rows.sizes[0]),
                             static_cast<unsigned>(2 * params.layout.num_layers)),
                .block = dim3(kThreads)},
               stream, params, cuda::ItemAddresses(params.pages));
}

}  // namespace dhs
