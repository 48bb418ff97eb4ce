// A page of index keys on its way into shared memory, as the tensor cores want it.
//
// A tile is rows of bf16 (keys, or heads of a query row) of kPieces pieces of 16 bytes. Odd rows
// have the halves of every 128 bytes swapped, so that the eight lanes that load 16 bytes each at a
// time, four of one row and four of the next, meet in no bank. Dims beyond index_dim are zero.
#pragma once

#include "kernels/cuda/cp_async.h"
#include "kernels/index_score/index_score_config.h"
#include "kernels/kv_row/kv_row_device.cuh"

namespace dhs::cuda {

inline constexpr int kIndexThreads = kIndexWarps * 32;

template <int kPieces, class Piece>
__device__ __forceinline__ Piece* tile_piece(Piece* tile, int row, int piece) {
  return tile + row * kPieces + (piece ^ ((row & 1) << 2));
}

// The page of one index group within an item. In 32 bits, since it is in everyone's way.
__device__ __forceinline__ const std::byte* page_of(const IndexScoreParams& params, int32_t item) {
  const ChunkedItems& pages = params.pages;
  const int32_t segment = item / pages.items_per_chunk;
  const int32_t place = item - segment * pages.items_per_chunk;
  return pages.pool + pages.chunk_offset[segment] + place * pages.item_bytes + params.group_offset;
}

// Clears what no key of a tile covers; nothing else ever writes there.
template <int kPieces>
__device__ void clear_padding(uint4* tile, int dim) {
  if (dim == kPieces * 8) return;
  for (int i = threadIdx.x; i < kIndexPageKeys * kPieces; i += kIndexThreads) {
    if (i % kPieces * 8 >= dim) *tile_piece<kPieces>(tile, i / kPieces, i % kPieces) = uint4{};
  }
}

// Starts the copy of a page: fp8 as it is stored, bf16 as a tile.
template <RowFormat kFormat, int kPieces>
__device__ void start_page_copy(const std::byte* page, uint4* stage, int dim) {
  if constexpr (kFormat == RowFormat::kFp8) {
    const int num_pieces = kIndexPageKeys * (dim + 4) / 16;
    for (int i = threadIdx.x; i < num_pieces; i += kIndexThreads) {
      simt::cp_async_16(stage + i, page + i * 16);
    }
  } else {
    for (int i = threadIdx.x; i < kIndexPageKeys * kPieces; i += kIndexThreads) {
      const int key = i / kPieces;
      const int piece = i % kPieces;
      if (piece * 8 >= dim) continue;
      simt::cp_async_16(tile_piece<kPieces>(stage, key, piece), page + (key * dim + piece * 8) * 2);
    }
  }
}

// The keys of an fp8 page as a tile, without their scales: exact in bf16.
template <int kPieces>
__device__ void decode_page(const uint4* page, uint4* tile, int dim) {
  constexpr int kCodePieces = kPieces / 2;
  const __nv_bfloat162 one = scale_pair(1.0f);
  for (int i = threadIdx.x; i < kIndexPageKeys * kCodePieces; i += kIndexThreads) {
    const int key = i / kCodePieces;
    const int piece = i % kCodePieces;
    if (piece * 16 >= dim) continue;
    const uint4 codes = page[key * (dim / 16) + piece];
    const uint2 a = decode_e4m3x4(codes.x, one);
    const uint2 b = decode_e4m3x4(codes.y, one);
    const uint2 c = decode_e4m3x4(codes.z, one);
    const uint2 d = decode_e4m3x4(codes.w, one);
    *tile_piece<kPieces>(tile, key, piece * 2) = uint4{a.x, a.y, b.x, b.y};
    *tile_piece<kPieces>(tile, key, piece * 2 + 1) = uint4{c.x, c.y, d.x, d.y};
  }
}

// Query row t as a tile of bf16 heads, and its weights with softmax_scale; padding is zero.
template <int kPieces>
__device__ void load_query(const IndexScoreParams& params, int64_t t, int padded_heads, uint4* tile,
                           float* weights) {
  constexpr int kPairs = kPieces * 4;
  const int num_heads = static_cast<int>(params.q.sizes[1]);
  const int dim = params.layout.index_dim;
  for (int i = threadIdx.x; i < padded_heads * kPairs; i += kIndexThreads) {
    const int head = i / kPairs;
    const int pair = i % kPairs;
    uint32_t value = 0;
    if (head < num_heads && pair * 2 < dim) {
      const float* q = &params.q(t, head, pair * 2);
      value = encode_bf16(q[0]) | static_cast<uint32_t>(encode_bf16(q[1])) << 16;
    }
    reinterpret_cast<uint32_t*>(tile_piece<kPieces>(tile, head, pair / 4))[pair % 4] = value;
  }
  for (int head = threadIdx.x; head < padded_heads; head += kIndexThreads) {
    weights[head] = head < num_heads ? params.head_weights(t, head) * params.softmax_scale : 0.0f;
  }
}

}  // namespace dhs::cuda
