#include <algorithm>

#include "dhisparse/base.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/index_score/index_score_tables.h"
#include "kernels/kv_row/scratch.h"

namespace dhs {
namespace {

constexpr int64_t kPagesPerPiece = 8;  // of one query row: 16 us or more, at 32 heads of 128
constexpr int64_t kRowsPerPiece = 16;  // share the conversion of a page, if of one sequence

// Every query row in the order the loops read it. Owned by the launching thread.
struct PackedQueries {
  const IndexScoreTable* table = nullptr;
  std::byte* q = nullptr;
  float* weights = nullptr;
  int64_t num_vectors = 0;
  int64_t q_bytes = 0;  // of one row

  IndexQuery row(int64_t t) const {
    return {q + t * q_bytes, weights + t * num_vectors * table->lanes,
            static_cast<int32_t>(num_vectors)};
  }
};

void pack_vector_f32(const IndexScoreParams& params, int64_t t, int64_t first_head, int64_t lanes,
                     float* packed) {
  const int64_t dim = params.q.sizes[2];
  const bool exact = params.layout.format == RowFormat::kF32;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const int64_t h = first_head + lane;
    for (int64_t d = 0; d < dim; ++d) {
      const float q = h < params.q.sizes[1] ? params.q(t, h, d) : 0.0f;
      packed[d * lanes + lane] = exact ? q : bf16_to_f32(f32_to_bf16(q));
    }
  }
}

void pack_vector_bf16(const IndexScoreParams& params, int64_t t, int64_t first_head, int64_t lanes,
                      Bf16* packed) {
  const int64_t dim = params.q.sizes[2];
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const int64_t h = first_head + lane;
    for (int64_t d = 0; d < dim; ++d) {
      const float q = h < params.q.sizes[1] ? params.q(t, h, d) : 0.0f;
      packed[((d / 2) * lanes + lane) * 2 + d % 2] = f32_to_bf16(q);
    }
  }
}

void pack_row(const IndexScoreParams& params, int64_t t, const PackedQueries& packed) {
  const int64_t lanes = packed.table->lanes;
  const int64_t num_heads = params.q.sizes[1];
  const int64_t vector_elements = params.q.sizes[2] * lanes;
  for (int64_t v = 0; v < packed.num_vectors; ++v) {
    std::byte* q = packed.q + t * packed.q_bytes;
    if (packed.table->bf16_pairs) {
      pack_vector_bf16(params, t, v * lanes, lanes,
                       reinterpret_cast<Bf16*>(q) + v * vector_elements);
    } else {
      pack_vector_f32(params, t, v * lanes, lanes,
                      reinterpret_cast<float*>(q) + v * vector_elements);
    }
  }
  float* weights = packed.weights + t * packed.num_vectors * lanes;
  for (int64_t h = 0; h < packed.num_vectors * lanes; ++h) {
    weights[h] = h < num_heads ? params.head_weights(t, h) * params.softmax_scale : 0.0f;
  }
}

PackedQueries pack_queries(const IndexScoreTable& table, const IndexScoreParams& params) {
  thread_local Scratch q_scratch;
  thread_local Scratch weight_scratch;
  const int64_t num_rows = params.q.sizes[0];
  PackedQueries packed;
  packed.table = &table;
  packed.num_vectors = ceil_div(params.q.sizes[1], table.lanes);
  packed.q_bytes =
      packed.num_vectors * table.lanes * params.q.sizes[2] * (table.bf16_pairs ? 2 : 4);
  packed.q = q_scratch.get<std::byte>(num_rows * packed.q_bytes);
  packed.weights = weight_scratch.get<float>(num_rows * packed.num_vectors * table.lanes);
  parallel_for(num_rows, kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) pack_row(params, t, packed);
  });
  return packed;
}

// Scores of pages [first_page, first_page + kPagesPerPiece) for query rows [begin, end), which
// belong to one sequence.
void score_pages(const IndexScoreParams& params, const PackedQueries& packed, int64_t first_page,
                 int64_t begin, int64_t end) {
  thread_local Scratch scratch;
  const IndexKeyLayout& layout = params.layout;
  const int64_t page_keys = layout.block_tokens;
  const int32_t* items = params.item_table.row(params.sequence_of_row(begin));
  int64_t most_visible = 0;
  for (int64_t t = begin; t < end; ++t) {
    most_visible = std::max<int64_t>(most_visible, params.visible(t));
  }
  const int64_t end_page = std::min(first_page + kPagesPerPiece, ceil_div(most_visible, page_keys));
  const auto page_at = [&](int64_t page_idx) {
    return params.pages.at(items[page_idx]) + params.group_offset;
  };
  for (int64_t page_idx = first_page; page_idx < end_page; ++page_idx) {
    const int64_t first_key = page_idx * page_keys;
    const std::byte* page = page_at(page_idx);
    IndexKeys keys;
    keys.dim = layout.index_dim;
    keys.key_bytes = layout.key_bytes();
    if (page_idx + 1 < end_page) keys.next_page = page_at(page_idx + 1);
    keys.keys = packed.table->load_keys(
        layout, page, static_cast<int32_t>(std::min(page_keys, most_visible - first_key)),
        scratch.get<float>(page_keys * layout.index_dim));
    if (layout.format == RowFormat::kFp8) {
      keys.scales = reinterpret_cast<const float*>(page + layout.scales_offset());
    }
    for (int64_t t = begin; t < end; ++t) {
      if (params.visible(t) <= first_key) continue;
      keys.num_keys = static_cast<int32_t>(std::min(page_keys, params.visible(t) - first_key));
      packed.table->score_keys(keys, packed.row(t), params.scores.row(t) + first_key);
      keys.next_page = nullptr;  // one row's time is enough
    }
  }
}

}  // namespace

IndexScoreTable index_score_table(CpuIsa isa, const IndexKeyLayout& layout) {
  const bool pairs = layout.format != RowFormat::kF32 && layout.index_dim % 2 == 0;
  switch (isa) {
    case CpuIsa::kBase:
      return index_score_table_base();
    case CpuIsa::kAvx2:
      return index_score_table_avx2();
    case CpuIsa::kAvx512Bf16:
      if (pairs) return index_score_table_avx512bf16();
      [[fallthrough]];
    case CpuIsa::kAvx512:
      return index_score_table_avx512();
  }
  return index_score_table_base();
}

void launch_index_score_with(const IndexScoreTable& table, const IndexScoreParams& params) {
  const int64_t num_rows = params.q.sizes[0];
  if (num_rows == 0) return;
  int64_t most_visible = 0;
  for (int64_t t = 0; t < num_rows; ++t) {
    most_visible = std::max<int64_t>(most_visible, params.visible(t));
  }
  const PackedQueries packed = pack_queries(table, params);
  // Work items are (piece of pages, query row), rows innermost: pages stay in cache across rows.
  const int64_t num_pieces = ceil_div(most_visible, params.layout.block_tokens * kPagesPerPiece);
  const int64_t grain = std::min(num_rows, kRowsPerPiece);
  parallel_for(num_pieces * num_rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t t = i % num_rows;
      int64_t rows = 1;  // how many items from here share pages and sequence
      while (i + rows < end && t + rows < num_rows &&
             params.sequence_of_row(t + rows) == params.sequence_of_row(t)) {
        ++rows;
      }
      score_pages(params, packed, i / num_rows * kPagesPerPiece, t, t + rows);
      i += rows;
    }
  });
}

static void launch_index_score_cpu(const IndexScoreParams& params) {
  launch_index_score_with(index_score_table(cpu_isa(), params.layout), params);
}

DHS_LAUNCHER(launch_index_score, IndexScoreParams)

}  // namespace dhs
