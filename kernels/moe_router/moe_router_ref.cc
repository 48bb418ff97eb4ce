#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/moe_router/moe_router.h"

namespace dhs {
namespace {

// Indices 0..n-1, the largest value first, ties by index.
std::vector<int32_t> descending(const std::vector<float>& values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t i, int32_t j) { return values[i] > values[j]; });
  return order;
}

}  // namespace

void moe_router_ref(const MoeRouterParams& params) {
  const int64_t num_experts = params.logits.sizes[1], top_k = params.experts.sizes[1];
  const int64_t group_size = num_experts / params.num_groups;
  for (int64_t token = 0; token < params.logits.sizes[0]; ++token) {
    std::vector<float> scores, choice, group_scores;
    for (int64_t e = 0; e < num_experts; ++e) {
      scores.push_back(1.0f / (1.0f + std::exp(-params.logits(token, e))));
      choice.push_back(scores[e] + (params.correction_bias ? params.correction_bias[e] : 0.0f));
      if (std::isnan(choice[e])) choice[e] = -INFINITY;
    }
    for (int64_t g = 0; g < params.num_groups; ++g) {
      std::vector<float> group(&choice[g * group_size], &choice[g * group_size] + group_size);
      std::sort(group.begin(), group.end(), std::greater<>());
      group_scores.push_back(group[0] + (group_size > 1 ? group[1] : 0.0f));
    }
    std::vector<bool> kept(params.num_groups);
    const auto groups = descending(group_scores);
    for (int32_t i = 0; i < params.top_groups; ++i) kept[groups[i]] = true;
    std::vector<int32_t> chosen;
    for (int32_t e : descending(choice)) {
      if (kept[e / group_size]) chosen.push_back(e);
    }
    float sum = 0;
    for (int64_t i = 0; i < top_k; ++i) sum += scores[chosen[i]];
    for (int64_t i = 0; i < top_k; ++i) {
      params.experts(token, i) = chosen[i];
      const float weight = scores[chosen[i]];
      params.weights(token, i) =
          (params.normalize ? weight / (sum + 1e-20f) : weight) * params.scale;
    }
  }
}

}  // namespace dhs
