#include <algorithm>
#include <vector>

#include "kernels/index_score/index_score.h"

namespace dhs {
namespace {

// q[t, h] . key, with q rounded as the format of the keys has it.
double dot_with_query(const IndexScoreParams& params, int64_t t, int64_t h, const float* key) {
  const bool exact = params.layout.format == RowFormat::kF32;
  double dot = 0;
  for (int64_t d = 0; d < params.layout.index_dim; ++d) {
    const float q = params.q(t, h, d);
    dot += double{exact ? q : bf16_to_f32(f32_to_bf16(q))} * key[d];
  }
  return dot;
}

double score_key(const IndexScoreParams& params, int64_t t, const float* key) {
  double score = 0;
  for (int64_t h = 0; h < params.q.sizes[1]; ++h) {
    const double dot = dot_with_query(params, t, h, key);
    score += params.head_weights(t, h) * std::max(0.0, dot * params.softmax_scale);
  }
  return score;
}

}  // namespace

void index_score_ref(const IndexScoreParams& params) {
  const IndexKeyLayout& layout = params.layout;
  std::vector<float> key(static_cast<size_t>(layout.index_dim));
  for (int64_t t = 0; t < params.q.sizes[0]; ++t) {
    for (int64_t s = 0; s < params.visible(t); ++s) {
      const int32_t item = params.item_table(params.sequence_of_row(t), s / layout.block_tokens);
      decode_index_key(layout, params.pages.at(item) + params.group_offset,
                       static_cast<int>(s % layout.block_tokens), key.data());
      params.scores(t, s) = static_cast<float>(score_key(params, t, key.data()));
    }
  }
}

}  // namespace dhs
