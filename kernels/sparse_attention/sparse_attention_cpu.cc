#include <algorithm>
#include <cstring>
#include <limits>

#include "dhisparse/base.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/kv_row/scratch.h"
#include "kernels/sparse_attention/sparse_attention_tables.h"

namespace dhs {
namespace {

// Where heads are shared out among threads, each decodes the rows again: worth it down to 16 heads.
constexpr int64_t kMinHeadsPerPiece = 16;
constexpr int64_t kMaxHeadsPerPiece = 32;

// Working memory of one thread.
struct AttentionScratch {
  Scratch q, heads, out, rows, pairs;
};

// One query row and a range of its vectors of heads.
struct AttentionPiece {
  int64_t t = 0;
  int64_t first_head = 0;
  int64_t num_vectors = 0;
};

// q of one head as the table wants it, then spread over the lanes of its vector. T is one dim in
// f32 or one pair of dims in bf16.
template <class T>
void spread_head(const T* head, int64_t count, int64_t lanes, T* packed) {
  for (int64_t i = 0; i < count; ++i) packed[i * lanes] = head[i];
}

void pack_query(const AttentionTable& table, const SparseAttentionParams& params,
                const AttentionPiece& piece, float* packed) {
  thread_local Scratch scratch;
  const int64_t latent_dim = params.layout.latent_dim, rope_dim = params.layout.rope_dim;
  const int64_t dims = latent_dim + rope_dim;
  float* head_f32 = scratch.get<float>(2 * dims);
  auto* head_bf16 = reinterpret_cast<Bf16*>(head_f32 + dims);
  for (int64_t i = 0; i < piece.num_vectors * table.lanes; ++i) {
    const int64_t h = piece.first_head + i;
    if (h < params.out.sizes[1]) {
      std::copy_n(&params.q_latent(piece.t, h, 0), latent_dim, head_f32);
      if (rope_dim > 0) std::copy_n(&params.q_rope(piece.t, h, 0), rope_dim, head_f32 + latent_dim);
    } else {
      std::fill_n(head_f32, dims, 0.0f);
    }
    if (table.bf16_pairs) {
      convert_to_bf16(head_f32, dims, head_bf16);
      auto* pairs = reinterpret_cast<int32_t*>(packed) + i / table.lanes * (dims / 2) * table.lanes;
      spread_head(reinterpret_cast<const int32_t*>(head_bf16), dims / 2, table.lanes,
                  pairs + i % table.lanes);
    } else {
      spread_head(head_f32, dims, table.lanes,
                  packed + i / table.lanes * dims * table.lanes + i % table.lanes);
    }
  }
}

// Pointers to the rows of one tile of the selection.
struct TileRows {
  const std::byte* rows[kAttentionTileRows];
  int32_t count = 0;
};

TileRows find_rows(const SparseAttentionParams& params, int64_t t, int64_t first, int64_t end) {
  TileRows tile;
  tile.count = static_cast<int32_t>(std::clamp<int64_t>(end - first, 0, kAttentionTileRows));
  for (int32_t i = 0; i < tile.count; ++i) {
    tile.rows[i] = selected_row(params, t, first + i);
  }
  return tile;
}

int64_t count_selected(const SparseAttentionParams& params, int64_t t) {
  int64_t count = 0;
  while (count < params.slots.sizes[1] && params.slots(t, count) >= 0) ++count;
  return count;
}

void write_output(const SparseAttentionParams& params, const AttentionPiece& piece,
                  const AttentionHeads& heads, int64_t lanes) {
  const int64_t latent_dim = params.layout.latent_dim;
  const int64_t num_heads =
      std::min(params.out.sizes[1] - piece.first_head, piece.num_vectors * lanes);
  for (int64_t first = 0; first < latent_dim; first += kAttentionDimBlock) {  // stays in L1
    const int64_t end = std::min(latent_dim, first + kAttentionDimBlock);
    for (int64_t i = 0; i < num_heads; ++i) {
      const float inverse = heads.sum[i] > 0.0f ? 1.0f / heads.sum[i] : 0.0f;
      const float* source = heads.out + i / lanes * heads.out_dims * lanes + i % lanes;
      float* out = &params.out(piece.t, piece.first_head + i, 0);
      for (int64_t d = first; d < end; ++d) out[d] = source[d * lanes] * inverse;
    }
  }
}

void attend_piece(const AttentionTable& table, const SparseAttentionParams& params,
                  const AttentionPiece& piece) {
  thread_local AttentionScratch scratch;
  const RowLayout& layout = params.layout;
  const int64_t dims = layout.latent_dim + layout.rope_dim;
  const int64_t out_dims = round_up(layout.latent_dim, kAttentionDimBlock);
  const int64_t num_heads = piece.num_vectors * table.lanes;

  AttentionHeads heads;
  float* q = scratch.q.get<float>(num_heads * dims);
  heads.q = q;
  heads.max = scratch.heads.get<float>(2 * num_heads);
  heads.sum = heads.max + num_heads;
  heads.out = scratch.out.get<float>(num_heads * out_dims);
  heads.num_vectors = static_cast<int32_t>(piece.num_vectors);
  heads.out_dims = static_cast<int32_t>(out_dims);
  pack_query(table, params, piece, q);
  std::fill_n(heads.max, num_heads, -std::numeric_limits<float>::infinity());
  std::fill_n(heads.sum, num_heads, 0.0f);
  std::fill_n(heads.out, num_heads * out_dims, 0.0f);

  AttentionTile tile;
  // A last block of latents may be read past its end: by less than a block.
  void* rows = scratch.rows.get<float>(kAttentionTileRows * dims + kAttentionDimBlock);
  void* pairs = scratch.pairs.get<float>(kAttentionTileRows / 2 * out_dims);
  tile.rows = rows;
  tile.pairs = pairs;
  tile.latent_dim = layout.latent_dim;
  tile.rope_dim = layout.rope_dim;
  tile.softmax_scale = params.softmax_scale;
  tile.row_bytes = layout.row_bytes();
  const int64_t num_selected = count_selected(params, piece.t);
  TileRows selected = find_rows(params, piece.t, 0, num_selected);
  for (int64_t first = 0; selected.count > 0; first += kAttentionTileRows) {
    const TileRows next = find_rows(params, piece.t, first + kAttentionTileRows, num_selected);
    tile.num_rows = selected.count;
    tile.next_rows = next.rows;
    tile.num_next_rows = next.count;
    table.load_tile(layout, selected.rows, tile, rows, pairs);
    table.attend_tile(tile, heads);
    selected = next;
  }
  write_output(params, piece, heads, table.lanes);
}

// Writes the rows that fused retrieval fetched to their slots. Nobody else touches these slots:
// every entry that misses reads the host block.
void fill_slots(const SparseAttentionParams& params) {
  if (params.fetch.miss_of.data == nullptr) return;
  const auto bytes = static_cast<size_t>(params.layout.row_bytes());
  parallel_for(params.slots.sizes[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < params.slots.sizes[1]; ++i) {
        if (!fills_slot(params, t, i)) continue;
        std::byte* slot = params.records.at(params.slots(t, i)) + params.row_offset;
        std::memcpy(slot, selected_row(params, t, i), bytes);
      }
    }
  });
}

// Decoding a row once for all heads is cheapest; heads are split only to give every thread work. A
// head's bits do not depend on the split.
int64_t vectors_per_piece(int64_t num_rows, int64_t num_vectors, int64_t lanes) {
  const int64_t threads = num_kernel_threads();
  if (num_rows % threads == 0 || num_rows >= 4 * threads) return num_vectors;
  const int64_t smallest = ceil_div(kMinHeadsPerPiece, lanes);
  const int64_t largest = ceil_div(kMaxHeadsPerPiece, lanes);
  const int64_t even = num_rows * num_vectors / threads;
  return std::min(num_vectors, std::clamp(even, smallest, largest));
}

}  // namespace

AttentionTable attention_table(CpuIsa isa, const RowLayout& layout) {
  const bool pairs =
      layout.format != RowFormat::kF32 && layout.latent_dim % 2 == 0 && layout.rope_dim % 2 == 0;
  switch (isa) {
    case CpuIsa::kBase:
      return attention_table_base();
    case CpuIsa::kAvx2:
      return attention_table_avx2();
    case CpuIsa::kAvx512Bf16:
      if (pairs) return attention_table_avx512bf16();
      [[fallthrough]];
    case CpuIsa::kAvx512:
      return attention_table_avx512();
  }
  return attention_table_base();
}

void launch_sparse_attention_with(const AttentionTable& table,
                                  const SparseAttentionParams& params) {
  fill_slots(params);
  const int64_t num_rows = params.out.sizes[0];
  const int64_t num_vectors = ceil_div(params.out.sizes[1], table.lanes);
  if (num_rows == 0 || num_vectors == 0) return;
  const int64_t piece_vectors = vectors_per_piece(num_rows, num_vectors, table.lanes);
  const int64_t splits = ceil_div(num_vectors, piece_vectors);
  parallel_for(num_rows * splits, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % splits * piece_vectors;
      attend_piece(table, params,
                   {i / splits, first * table.lanes, std::min(piece_vectors, num_vectors - first)});
    }
  });
}

namespace {

void launch_sparse_attention_cpu(const SparseAttentionParams& params) {
  launch_sparse_attention_with(attention_table(cpu_isa(), params.layout), params);
}

}  // namespace

DHS_LAUNCHER(launch_sparse_attention, SparseAttentionParams)

}  // namespace dhs
