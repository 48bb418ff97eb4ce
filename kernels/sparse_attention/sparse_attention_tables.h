// The inner loops of sparse_attention, per instruction set. For sparse_attention_cpu.cc and its
// test.
//
// Lanes are heads: a vector holds one dim (or pair of dims) of `lanes` heads of q, one row's scores
// or one dim of the output; elements of a row are broadcast against it. So softmax runs down the
// rows without crossing lanes, and a head's bits cannot depend on the heads computed beside it.
#pragma once

#include "dhisparse/device.h"
#include "kernels/sparse_attention/sparse_attention.h"

namespace dhs {

inline constexpr int64_t kAttentionDimBlock = 16;  // dims of the output come in multiples of it

// Up to kAttentionTileRows rows, [latent | rope], decoded once and used by all heads.
struct AttentionTile {
  const void* rows = nullptr;   // f32 or bf16 [num_rows, latent_dim + rope_dim]
  const void* pairs = nullptr;  // bf16 only: [latent blocks, kAttentionTileRows / 2, 16, 2],
                                // latents of rows 2i and 2i+1 side by side
  int32_t num_rows = 0;
  int32_t latent_dim = 0;
  int32_t rope_dim = 0;
  float softmax_scale = 1.0f;

  // The stored rows of the tile after this one, to be prefetched while this one is computed: they
  // are scattered, and waiting for memory would cost as much as the arithmetic.
  const std::byte* const* next_rows = nullptr;
  int32_t num_next_rows = 0;
  int64_t row_bytes = 0;
};

// Some heads of one query row between two tiles.
struct AttentionHeads {
  const void* q =
      nullptr;           // f32 [num_vectors, dims, lanes] or bf16 [num_vectors, dims / 2, lanes, 2]
  float* max = nullptr;  // [num_vectors, lanes] largest score so far
  float* sum = nullptr;  // [num_vectors, lanes] of exp(score - max)
  float* out = nullptr;  // [num_vectors, out_dims, lanes] not yet divided by sum
  int32_t num_vectors = 0;
  int32_t out_dims = 0;  // latent_dim rounded up to kAttentionDimBlock
};

struct AttentionTable {
  int32_t lanes = 0;
  bool bf16_pairs = false;  // of q and rows; else f32
  // Decodes tile.num_rows rows into the arrays the tile points at.
  void (*load_tile)(const RowLayout& layout, const std::byte* const* rows,
                    const AttentionTile& tile, void* tile_rows, void* tile_pairs) = nullptr;
  void (*attend_tile)(const AttentionTile& tile, const AttentionHeads& heads) = nullptr;
};

// Precondition: cpu_supports(isa).
AttentionTable attention_table(CpuIsa isa, const RowLayout& layout);
void launch_sparse_attention_with(const AttentionTable& table, const SparseAttentionParams& params);

AttentionTable attention_table_base();
AttentionTable attention_table_avx2();
AttentionTable attention_table_avx512();
AttentionTable attention_table_avx512bf16();  // bf16 and fp8 rows of even dims only

}  // namespace dhs
