#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/sparse_attention/sparse_attention.h"

namespace dhs {
namespace {

// The decoded [latent | rope] rows a query row selected.
std::vector<std::vector<float>> decode_selected(const SparseAttentionParams& params, int64_t t) {
  std::vector<std::vector<float>> rows;
  for (int64_t i = 0; i < params.slots.sizes[1] && params.slots(t, i) >= 0; ++i) {
    std::vector<float> row(static_cast<size_t>(params.layout.latent_dim + params.layout.rope_dim));
    decode_row(params.layout, params.records.at(params.slots(t, i)) + params.row_offset, row.data(),
               row.data() + params.layout.latent_dim);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

void sparse_attention_ref(const SparseAttentionParams& params) {
  const int64_t latent_dim = params.layout.latent_dim;
  for (int64_t t = 0; t < params.out.sizes[0]; ++t) {
    const std::vector<std::vector<float>> rows = decode_selected(params, t);
    for (int64_t h = 0; h < params.out.sizes[1]; ++h) {
      std::vector<double> weight(rows.size());
      double highest = -std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < rows.size(); ++i) {
        const float* row = rows[i].data();
        for (int64_t d = 0; d < latent_dim; ++d)
          weight[i] += double{params.q_latent(t, h, d)} * row[d];
        for (int64_t d = 0; d < params.layout.rope_dim; ++d) {
          weight[i] += double{params.q_rope(t, h, d)} * row[latent_dim + d];
        }
        weight[i] *= params.softmax_scale;
        highest = std::max(highest, weight[i]);
      }
      double sum = 0;
      for (double& w : weight) sum += w = std::exp(w - highest);
      for (int64_t d = 0; d < latent_dim; ++d) {
        double out = 0;
        for (size_t i = 0; i < rows.size(); ++i)
          out += weight[i] / sum * rows[i][static_cast<size_t>(d)];
        params.out(t, h, d) = static_cast<float>(out);
      }
    }
  }
}

}  // namespace dhs
