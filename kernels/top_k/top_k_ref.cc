#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/top_k/top_k.h"

namespace dhs {

void top_k_ref(const TopKParams& params) {
  const int64_t k = params.selection.sizes[1];
  for (int64_t t = 0; t < params.selection.sizes[0]; ++t) {
    std::vector<float> scores(static_cast<size_t>(params.visible(t)));
    for (size_t s = 0; s < scores.size(); ++s) {
      const float score = params.scores(t, static_cast<int64_t>(s));
      scores[s] = std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
    }
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    order.resize(std::min(order.size(), static_cast<size_t>(k)));
    std::sort(order.begin(), order.end());
    order.resize(static_cast<size_t>(k), -1);
    for (int64_t i = 0; i < k; ++i) params.selection(t, i) = order[static_cast<size_t>(i)];
  }
}

}  // namespace dhs
