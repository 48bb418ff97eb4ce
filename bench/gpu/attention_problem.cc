#include "attention_problem.h"

#include <algorithm>
#include <random>

namespace dhs::bench {
namespace {

// Slots in random order, dealt out to one query row after the other: rows of one lie far apart, and
// no two share a slot while they go round.
std::vector<int32_t> random_slots(const AttentionShape& shape) {
  std::mt19937 generator(31);
  std::vector<int32_t> all = rising(shape.num_slots);
  std::shuffle(all.begin(), all.end(), generator);
  std::vector<int32_t> slots;
  for (int64_t t = 0; t < shape.num_query_rows; ++t) {
    for (int64_t i = 0; i < shape.top_k; ++i) {
      slots.push_back(all[(t * shape.top_k + i) % shape.num_slots]);
    }
  }
  return slots;
}

}  // namespace

AttentionProblem::AttentionProblem(const Bench& bench, const AttentionShape& shape)
    : shape_(shape),
      slots_(random_slots(shape)),
      records_(bench.repeated(random_rows(shape.row, bench.pick(4096, 8) * shape.num_layers),
                              shape.num_slots * shape.record_bytes())),
      chunk_offset_(bench.uploaded(std::vector<int64_t>{0})),
      device_slots_(bench.uploaded(slots_)),
      q_latent_(bench.uploaded(
          normal_floats(shape.num_query_rows * shape.num_heads * shape.row.latent_dim, 32))),
      q_rope_(bench.uploaded(
          normal_floats(shape.num_query_rows * shape.num_heads * shape.row.rope_dim, 33))),
      out_(bench.device_memory(shape.num_query_rows * shape.num_heads * shape.row.latent_dim * 4)) {
}

ChunkedItems AttentionProblem::records() const {
  return {records_.data(), chunk_offset_.as<const int64_t>(),
          static_cast<int32_t>(shape_.num_slots), shape_.record_bytes()};
}

SparseAttentionParams AttentionProblem::params(int64_t first, int64_t count) const {
  const int64_t latent = shape_.row.latent_dim;
  const int64_t rope = shape_.row.rope_dim;
  const int64_t heads = shape_.num_heads;
  return {
      .layout = shape_.row,
      .records = records(),
      .q_latent = view(q_latent_.as<const float>() + first * heads * latent, count, heads, latent),
      .q_rope = view(q_rope_.as<const float>() + first * heads * rope, count, heads, rope),
      .slots = view(device_slots_.as<const int32_t>() + first * shape_.top_k, count, shape_.top_k),
      .softmax_scale = 0.0625f,
      .fetch = {},
      .out = view(out_.as<float>() + first * heads * latent, count, heads, latent)};
}

Work AttentionProblem::work(int64_t num_query_rows) const {
  const auto rows = static_cast<double>(num_query_rows * shape_.top_k);
  const auto head_rows = static_cast<double>(num_query_rows * shape_.num_heads);
  const double latent = shape_.row.latent_dim;
  const double rope = shape_.row.rope_dim;
  return {.memory_bytes = rows * static_cast<double>(shape_.row.row_bytes()) +
                          head_rows * 4 * (2 * latent + rope),
          .bf16_flops = 2 * rows * static_cast<double>(shape_.num_heads) * (2 * latent + rope)};
}

}  // namespace dhs::bench
