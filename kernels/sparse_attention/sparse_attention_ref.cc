#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/sparse_attention/sparse_attention.h"

namespace dhs {
namespace {

using Rows = std::vector<std::vector<float>>;

// The decoded [latent | rope] rows a query row selected.
Rows decode_selected(const SparseAttentionParams& params, int64_t t) {
  Rows rows;
  for (int64_t i = 0; i < params.slots.sizes[1] && params.slots(t, i) >= 0; ++i) {
    std::vector<float> row(static_cast<size_t>(params.layout.latent_dim + params.layout.rope_dim));
    decode_row(params.layout, selected_row(params, t, i), row.data(),
               row.data() + params.layout.latent_dim);
    rows.push_back(std::move(row));
  }
  return rows;
}

// The scaled dot of q[t, h] with each row.
std::vector<double> score_rows(const SparseAttentionParams& params, const Rows& rows, int64_t t,
                               int64_t h) {
  const int64_t latent_dim = params.layout.latent_dim;
  std::vector<double> scores;
  scores.reserve(rows.size());
  for (const std::vector<float>& values : rows) {
    const float* row = values.data();
    double dot = 0;
    for (int64_t d = 0; d < latent_dim; ++d) dot += double{params.q_latent(t, h, d)} * row[d];
    for (int64_t d = 0; d < params.layout.rope_dim; ++d) {
      dot += double{params.q_rope(t, h, d)} * row[latent_dim + d];
    }
    scores.push_back(dot * params.softmax_scale);
  }
  return scores;
}

std::vector<double> softmax(std::vector<double> scores) {
  double highest = -std::numeric_limits<double>::infinity();
  for (const double score : scores) highest = std::max(highest, score);
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - highest);
  for (double& score : scores) score /= sum;
  return scores;
}

}  // namespace

void sparse_attention_ref(const SparseAttentionParams& params) {
  for (int64_t t = 0; t < params.out.sizes[0]; ++t) {
    const Rows rows = decode_selected(params, t);
    for (int64_t h = 0; h < params.out.sizes[1]; ++h) {
      const std::vector<double> weights = softmax(score_rows(params, rows, t, h));
      for (int64_t d = 0; d < params.layout.latent_dim; ++d) {
        double out = 0;
        for (size_t i = 0; i < rows.size(); ++i)
          out += weights[i] * rows[i][static_cast<size_t>(d)];
        params.out(t, h, d) = static_cast<float>(out);
      }
    }
  }
}

}  // namespace dhs
