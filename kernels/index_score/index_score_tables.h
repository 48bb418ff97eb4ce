// The inner loops of index_score, per instruction set. For index_score_cpu.cc and its test.
//
// Lanes are heads: one vector holds one dim (or one pair of dims) of `lanes` heads of q, and an
// element of a key is broadcast against it. So a key needs no transposition, and relu, the head
// weights and the sum over heads come after the last dim, once per key.
#pragma once

#include "dhisparse/device.h"
#include "kernels/index_score/index_score.h"

namespace dhs {

// One query row, heads padded with zero weight to num_vectors * lanes.
struct IndexQuery {
  const void* packed = nullptr;    // f32 [num_vectors, dim, lanes], or
                                   // pairs of bf16 [num_vectors, dim / 2, lanes, 2]
  const float* weights = nullptr;  // [num_vectors, lanes], softmax_scale included
  int32_t num_vectors = 0;
};

// The keys of one page as the loops want them.
struct IndexKeys {
  const void* keys = nullptr;     // f32 or bf16 [num_keys, dim], without their scales
  const float* scales = nullptr;  // [num_keys], fp8 only
  int32_t num_keys = 0;
  int32_t dim = 0;
  const std::byte* next_page = nullptr;  // stored keys to prefetch meanwhile; null: none
  int64_t key_bytes = 0;                 // of a stored key
};

struct IndexScoreTable {
  int32_t lanes = 0;
  bool bf16_pairs = false;  // of q and keys; else f32
  // The first num_keys keys of a page: in place, or converted into scratch
  // [block_tokens, index_dim] of f32.
  const void* (*load_keys)(const IndexKeyLayout& layout, const std::byte* page, int32_t num_keys,
                           float* scratch) = nullptr;
  void (*score_keys)(const IndexKeys& keys, const IndexQuery& query, float* scores) = nullptr;
};

// Precondition: cpu_supports(isa).
IndexScoreTable index_score_table(CpuIsa isa, const IndexKeyLayout& layout);
void launch_index_score_with(const IndexScoreTable& table, const IndexScoreParams& params);

IndexScoreTable index_score_table_base();
IndexScoreTable index_score_table_avx2();
IndexScoreTable index_score_table_avx512();
IndexScoreTable index_score_table_avx512bf16();  // bf16 and fp8 keys of even dim only

}  // namespace dhs
