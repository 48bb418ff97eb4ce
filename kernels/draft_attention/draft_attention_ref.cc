#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/draft_attention/draft_attention.h"

namespace dhs {
namespace {

struct Seen {
  std::vector<double> key, value;  // [head_dim]
};

Seen context_at(const DraftAttentionParams& params, int32_t page, int64_t token, int64_t kv_head) {
  const DraftPageLayout& layout = params.layout;
  const std::byte* data =
      params.pages.at(page) + kv_head * layout.head_dim * dtype_bytes(layout.dtype);
  std::vector<float> key(layout.head_dim), value(layout.head_dim);
  convert_to_f32(layout.dtype, data + layout.offset(params.layer, false, token), layout.head_dim,
                 key.data());
  convert_to_f32(layout.dtype, data + layout.offset(params.layer, true, token), layout.head_dim,
                 value.data());
  return {{key.begin(), key.end()}, {value.begin(), value.end()}};
}

// What row i of a block sees of one key head.
std::vector<Seen> seen_by(const DraftAttentionParams& params, int64_t block, int64_t i,
                          int64_t kv_head) {
  const int64_t first = params.first_position(block), position = first + i;
  const int64_t lowest =
      params.window == 0 ? 0 : std::max<int64_t>(0, position - params.window + 1);
  std::vector<Seen> seen;
  for (int64_t p = lowest; p < first; ++p) {
    const int32_t page =
        params.page_table(params.sequence_of_block(block), p / params.layout.page_tokens);
    if (page >= 0) {
      seen.push_back(context_at(params, page, p % params.layout.page_tokens, kv_head));
    }
  }
  for (int64_t j = 0; j < (params.is_causal ? i + 1 : int64_t{params.block_rows}); ++j) {
    if (first + j < lowest) continue;
    const float* key = &params.k(block * params.block_rows + j, kv_head, 0);
    const float* value = &params.v(block * params.block_rows + j, kv_head, 0);
    seen.push_back({{key, key + params.layout.head_dim}, {value, value + params.layout.head_dim}});
  }
  return seen;
}

void attend(const std::vector<Seen>& seen, const float* q, double scale, float* out,
            int64_t head_dim) {
  std::vector<double> weights;
  for (const Seen& at : seen) {
    double dot = 0;
    for (int64_t d = 0; d < head_dim; ++d) dot += q[d] * at.key[d];
    weights.push_back(dot * scale);
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  for (int64_t d = 0; d < head_dim; ++d) {
    double total = 0;
    for (size_t j = 0; j < seen.size(); ++j) total += weights[j] * seen[j].value[d];
    out[d] = static_cast<float>(total / sum);
  }
}

}  // namespace

void draft_attention_ref(const DraftAttentionParams& params) {
  const int64_t num_heads = params.q.sizes[1], head_dim = params.layout.head_dim;
  for (int64_t row = 0; row < params.q.sizes[0]; ++row) {
    const int64_t block = row / params.block_rows, i = row % params.block_rows;
    for (int64_t head = 0; head < num_heads; ++head) {
      float* out = &params.out(row, head, 0);
      std::fill(out, out + head_dim, 0.0f);
      if (params.first_position(block) < 0) continue;
      const int64_t kv_head = head * params.layout.num_kv_heads / num_heads;
      attend(seen_by(params, block, i, kv_head), &params.q(row, head, 0), params.softmax_scale, out,
             head_dim);
    }
  }
}

}  // namespace dhs
