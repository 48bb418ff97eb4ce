#include <algorithm>
#include <vector>

#include "kernels/index_score/index_score.h"

namespace dhs {

void index_score_ref(const IndexScoreParams& params) {
  const IndexKeyLayout& layout = params.layout;
  const int64_t num_heads = params.q.sizes[1];
  std::vector<float> key(static_cast<size_t>(layout.index_dim));
  for (int64_t t = 0; t < params.q.sizes[0]; ++t) {
    for (int64_t s = 0; s < params.visible(t); ++s) {
      const int32_t item = params.page_table(params.sequence_of_row(t), s / layout.block_tokens);
      decode_index_key(layout, params.pages.at(item) + params.group_offset,
                       static_cast<int>(s % layout.block_tokens), key.data());
      double score = 0;
      for (int64_t h = 0; h < num_heads; ++h) {
        double dot = 0;
        for (int64_t d = 0; d < layout.index_dim; ++d) {
          const float q = params.q(t, h, d);
          const bool exact = layout.format == RowFormat::kF32;
          dot += double{exact ? q : bf16_to_f32(f32_to_bf16(q))} * key[static_cast<size_t>(d)];
        }
        score += params.head_weights(t, h) * std::max(0.0, dot * params.softmax_scale);
      }
      params.scores(t, s) = static_cast<float>(score);
    }
  }
}

}  // namespace dhs
