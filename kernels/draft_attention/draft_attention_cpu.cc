#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/activation/vector_exp.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/draft_attention/draft_attention.h"
#include "kernels/kv_row/scratch.h"

namespace dhs {
namespace {

constexpr int kTileTokens = 64;
constexpr int kTileVectors = kTileTokens / kFloat16Lanes;
constexpr float kNever = -std::numeric_limits<float>::infinity();

#define DHS_INLINE [[gnu::always_inline]] inline

// Keys and values of consecutive positions and one key head, as f32. Columns of values are padded
// with zeros to whole vectors, tokens of keys that do not exist are zeros.
struct Tile {
  float* keys = nullptr;    // [head_dim, kTileTokens]
  float* values = nullptr;  // [kTileTokens, num_columns]
  int64_t head_dim = 0;
  int64_t num_columns = 0;
};

// One query row's running softmax and sum.
struct RowState {
  const float* q = nullptr;  // [head_dim]
  float scale = 1.0f;
  float* sums = nullptr;  // [num_columns]
  float largest = kNever;
  float total = 0.0f;
};

struct Range {
  int64_t begin, end;
};

using AttendTile = void (*)(const Tile& tile, Range seen, RowState& row);

// What an instruction set adds and multiplies at once. Its type changes no bits.
using Float4 = float __attribute__((vector_size(16)));
using Float8 = float __attribute__((vector_size(32)));
constexpr int kChains = 4;  // vectors summed at once: additions to one of them wait for each other

template <class Vector>
DHS_INLINE void load(const float* from, Vector& lanes) {
  std::memcpy(&lanes, from, sizeof(lanes));
}

// sums[0, NUM * lanes) += the weighted rows, which are `pitch` apart, from the first to the last.
template <class Vector, int NUM>
DHS_INLINE void add_rows(const float* weights, const float* rows, Range range, int64_t pitch,
                         float* sums) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  Vector chains[NUM], row;
  std::memcpy(chains, sums, sizeof(chains));
  for (int64_t i = range.begin; i < range.end; ++i) {
    for (int k = 0; k < NUM; ++k) {
      load(rows + i * pitch + k * kLanes, row);
      chains[k] += weights[i] * row;
    }
  }
  std::memcpy(sums, chains, sizeof(chains));
}

// The same for `pitch` sums, a multiple of 16.
template <class Vector>
DHS_INLINE void add_all_rows(const float* weights, const float* rows, Range range, int64_t pitch,
                             float* sums) {
  constexpr int64_t kLanes = sizeof(Vector) / sizeof(float);
  int64_t i = 0;
  for (; i + kChains * kLanes <= pitch; i += kChains * kLanes) {
    add_rows<Vector, kChains>(weights, rows + i, range, pitch, sums + i);
  }
  for (; i < pitch; i += kLanes) add_rows<Vector, 1>(weights, rows + i, range, pitch, sums + i);
}

// Scores become weights; returns what earlier sums are multiplied by.
DHS_INLINE float update_softmax(float* scores, Range seen, RowState& row) {
  std::fill(scores, scores + seen.begin, kNever);
  std::fill(scores + seen.end, scores + kTileTokens, kNever);
  Float16 most = Float16{} + row.largest, total = {}, weights;
  for (int i = 0; i < kTileVectors; ++i) {
    load(scores + i * kFloat16Lanes, weights);
    most = weights > most ? weights : most;
  }
  float largest = row.largest;
  for (int i = 0; i < kFloat16Lanes; ++i) largest = std::max(largest, most[i]);
  for (int i = 0; i < kTileVectors; ++i) {
    load(scores + i * kFloat16Lanes, weights);
    weights -= largest;
    exp16(weights);
    total += weights;
    std::memcpy(scores + i * kFloat16Lanes, &weights, sizeof(weights));
  }
  const float rescale = std::exp(row.largest - largest);
  float sum = 0.0f;
  for (int i = 0; i < kFloat16Lanes; ++i) sum += total[i];
  row.total = row.total * rescale + sum;
  row.largest = largest;
  return rescale;
}

template <class Vector>
DHS_INLINE void attend_tile_body(const Tile& tile, Range seen, RowState& row) {
  alignas(64) float weights[kTileTokens] = {};  // first the scores
  add_all_rows<Vector>(row.q, tile.keys, {0, tile.head_dim}, kTileTokens, weights);
  for (float& score : weights) score *= row.scale;
  const float rescale = update_softmax(weights, seen, row);
  for (int64_t i = 0; i < tile.num_columns; ++i) row.sums[i] *= rescale;
  add_all_rows<Vector>(weights, tile.values, seen, tile.num_columns, row.sums);
}

void attend_tile_base(const Tile& tile, Range seen, RowState& row) {
  attend_tile_body<Float4>(tile, seen, row);
}
__attribute__((target("avx2"))) void attend_tile_avx2(const Tile& tile, Range seen, RowState& row) {
  attend_tile_body<Float8>(tile, seen, row);
}
__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))) void attend_tile_avx512(
    const Tile& tile, Range seen, RowState& row) {
  attend_tile_body<Float16>(tile, seen, row);
}

AttendTile attend_tile_for(CpuIsa isa) {
  if (isa >= CpuIsa::kAvx512) return attend_tile_avx512;
  return isa == CpuIsa::kAvx2 ? attend_tile_avx2 : attend_tile_base;
}

// Here and not by convert_to_f32: compiled with this folder's optimisation it is some times faster.
void decode(DType dtype, const std::byte* stored, int64_t count, float* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, stored, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const auto* bits = reinterpret_cast<const Bf16*>(stored);
  for (int64_t i = 0; i < count; ++i) to[i] = bf16_to_f32(bits[i]);
}

// One draft block and key head.
class HeadAttention {
 public:
  HeadAttention(const DraftAttentionParams& params, int64_t block, int64_t kv_head);
  void run();

 private:
  void attend(int64_t first_position, int64_t num_tokens);
  void set_token(int64_t i, const float* key, const float* value);
  void clear_keys(int64_t num_tokens);
  void run_context();
  void run_block_rows();
  void store();
  int64_t num_query_rows() const { return params_.block_rows * heads_per_key_head_; }
  // Query row r: row r / heads_per_key_head_ of the block, and one of the key head's heads.
  int64_t row_of(int64_t r) const { return first_row_ + r / heads_per_key_head_; }
  int64_t head_of(int64_t r) const {
    return kv_head_ * heads_per_key_head_ + r % heads_per_key_head_;
  }

  const DraftAttentionParams& params_;
  const int64_t block_, kv_head_, first_position_, first_row_, heads_per_key_head_;
  const AttendTile attend_tile_;
  Tile tile_;
  float* decoded_;  // [2, head_dim]
  RowState* rows_;  // [num_query_rows]
};

HeadAttention::HeadAttention(const DraftAttentionParams& params, int64_t block, int64_t kv_head)
    : params_(params),
      block_(block),
      kv_head_(kv_head),
      first_position_(params.first_position(block)),
      first_row_(block * params.block_rows),
      heads_per_key_head_(params.q.sizes[1] / params.layout.num_kv_heads),
      attend_tile_(attend_tile_for(cpu_isa())) {
  thread_local Scratch floats, states;
  const int64_t head_dim = params.layout.head_dim;
  const int64_t num_columns = round_up(head_dim, kFloat16Lanes);
  float* next = floats.get<float>(kTileTokens * (head_dim + num_columns) + 2 * num_columns +
                                  num_query_rows() * num_columns);
  tile_ = {next, next + kTileTokens * head_dim, head_dim, num_columns};
  decoded_ = tile_.values + kTileTokens * num_columns;
  float* sums = decoded_ + 2 * num_columns;
  std::fill(tile_.values, decoded_, 0.0f);
  std::fill(sums, sums + num_query_rows() * num_columns, 0.0f);
  rows_ = states.get<RowState>(num_query_rows());
  for (int64_t r = 0; r < num_query_rows(); ++r) {
    rows_[r] = {&params.q(row_of(r), head_of(r), 0), params.softmax_scale, sums + r * num_columns};
  }
}

void HeadAttention::set_token(int64_t i, const float* key, const float* value) {
  for (int64_t d = 0; d < tile_.head_dim; ++d) tile_.keys[d * kTileTokens + i] = key[d];
  std::copy(value, value + tile_.head_dim, tile_.values + i * tile_.num_columns);
}

void HeadAttention::clear_keys(int64_t num_tokens) {
  for (int64_t d = 0; d < tile_.head_dim; ++d) {
    std::fill(tile_.keys + d * kTileTokens + num_tokens, tile_.keys + (d + 1) * kTileTokens, 0.0f);
  }
}

// All query rows over the tile, which holds [first_position, first_position + num_tokens).
void HeadAttention::attend(int64_t first_position, int64_t num_tokens) {
  clear_keys(num_tokens);
  for (int64_t r = 0; r < num_query_rows(); ++r) {
    const int64_t position = first_position_ + r / heads_per_key_head_;
    const int64_t lowest = params_.window == 0 ? 0 : position - params_.window + 1;
    const int64_t end = params_.is_causal ? position + 1 : first_position_ + params_.block_rows;
    const Range seen{std::max<int64_t>(0, lowest - first_position),
                     std::min(num_tokens, end - first_position)};
    if (seen.begin < seen.end) attend_tile_(tile_, seen, rows_[r]);
  }
}

void HeadAttention::run_context() {
  const DraftPageLayout& layout = params_.layout;
  const int64_t lowest =
      params_.window == 0 ? 0 : std::max<int64_t>(0, first_position_ - params_.window + 1);
  const int64_t head_offset = kv_head_ * layout.head_dim * dtype_bytes(layout.dtype);
  for (int64_t first = lowest / kTileTokens * kTileTokens; first < first_position_;
       first += kTileTokens) {
    const int32_t page = params_.page_table(params_.sequence_of_block(block_), first / kTileTokens);
    if (page < 0) continue;
    const std::byte* data = params_.pages.at(page) + head_offset;
    const int64_t num_tokens = std::min<int64_t>(kTileTokens, first_position_ - first);
    for (int64_t i = 0; i < num_tokens; ++i) {
      float* const value = decoded_ + layout.head_dim;
      decode(layout.dtype, data + layout.offset(params_.layer, false, i), layout.head_dim,
             decoded_);
      decode(layout.dtype, data + layout.offset(params_.layer, true, i), layout.head_dim, value);
      set_token(i, decoded_, value);
    }
    attend(first, num_tokens);
  }
}

void HeadAttention::run_block_rows() {
  for (int64_t first = 0; first < params_.block_rows; first += kTileTokens) {
    const int64_t num_tokens = std::min<int64_t>(kTileTokens, params_.block_rows - first);
    for (int64_t i = 0; i < num_tokens; ++i) {
      set_token(i, &params_.k(first_row_ + first + i, kv_head_, 0),
                &params_.v(first_row_ + first + i, kv_head_, 0));
    }
    attend(first_position_ + first, num_tokens);
  }
}

void HeadAttention::store() {
  for (int64_t r = 0; r < num_query_rows(); ++r) {
    float* out = &params_.out(row_of(r), head_of(r), 0);
    for (int64_t d = 0; d < tile_.head_dim; ++d) out[d] = rows_[r].sums[d] / rows_[r].total;
  }
}

void HeadAttention::run() {
  if (first_position_ < 0) {
    for (int64_t r = 0; r < num_query_rows(); ++r) {
      float* out = &params_.out(row_of(r), head_of(r), 0);
      std::fill(out, out + tile_.head_dim, 0.0f);
    }
    return;
  }
  run_context();
  run_block_rows();
  store();
}

void check(const DraftAttentionParams& params) {
  const DraftPageLayout& layout = params.layout;
  DHS_CHECK(layout.head_dim > 0 && layout.head_dim % 8 == 0 && layout.head_dim <= kMaxDraftHeadDim,
            "head_dim ", layout.head_dim, ": a multiple of 8 up to ", kMaxDraftHeadDim);
  DHS_CHECK(layout.num_kv_heads > 0 && params.q.sizes[1] % layout.num_kv_heads == 0,
            "heads: ", params.q.sizes[1], ", key heads: ", layout.num_kv_heads);
  DHS_CHECK(layout.page_tokens == kTileTokens, "pages of ", layout.page_tokens, " tokens");
  DHS_CHECK(params.q.sizes[0] == params.first_position.sizes[0] * params.block_rows,
            "rows: ", params.q.sizes[0], ", blocks: ", params.first_position.sizes[0], " of ",
            params.block_rows);
  DHS_CHECK(params.window >= 0, "window ", params.window);
}

void launch_draft_attention_cpu(const DraftAttentionParams& params) {
  check(params);
  const int64_t num_kv_heads = params.layout.num_kv_heads;
  parallel_for(params.first_position.sizes[0] * num_kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      HeadAttention(params, i / num_kv_heads, i % num_kv_heads).run();
    }
  });
}

}  // namespace

DHS_LAUNCHER(launch_draft_attention, DraftAttentionParams)

}  // namespace dhs
