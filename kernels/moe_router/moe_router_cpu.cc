#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/moe_router/moe_router.h"

namespace dhs {
namespace {

constexpr int64_t kPieceExperts = 1 << 10;  // about 5 us of sigmoids and selection

// One token's values; kept between tokens for its memory.
struct TokenScratch {
  std::vector<float> scores, choice, group_scores;
  std::vector<uint8_t> is_open;  // may (still) be chosen, by expert
  std::vector<uint8_t> is_group_open;
};

// What is compared: NaN as the lowest of all.
float comparable(float value) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  return value >= kLowest ? value : kLowest;
}

// The open index with the largest value, ties to the lowest.
int64_t take_largest(const float* values, std::vector<uint8_t>& is_open) {
  int64_t best = -1;
  for (int64_t i = 0; i < static_cast<int64_t>(is_open.size()); ++i) {
    if (is_open[i] != 0 && (best < 0 || values[i] > values[best])) best = i;
  }
  DHS_CHECK(best >= 0, "nothing left to choose from ", is_open.size());
  is_open[best] = 0;
  return best;
}

void load_token(const MoeRouterParams& params, int64_t token, TokenScratch& scratch) {
  const int64_t num_experts = params.logits.sizes[1];
  scratch.scores.resize(num_experts);
  scratch.choice.resize(num_experts);
  for (int64_t e = 0; e < num_experts; ++e) {
    const float score = 1.0f / (1.0f + std::exp(-params.logits(token, e)));
    scratch.scores[e] = score;
    scratch.choice[e] =
        comparable(score + (params.correction_bias != nullptr ? params.correction_bias[e] : 0.0f));
  }
}

float sum_of_two_best(const float* values, int64_t count) {
  float first = values[0], second = count > 1 ? values[1] : 0.0f;
  if (count > 1 && second > first) std::swap(first, second);
  for (int64_t i = 2; i < count; ++i) {
    if (values[i] > first) {
      second = first;
      first = values[i];
    } else if (values[i] > second) {
      second = values[i];
    }
  }
  return first + second;
}

void open_groups(const MoeRouterParams& params, TokenScratch& scratch) {
  const int64_t num_experts = params.logits.sizes[1];
  const int64_t group_size = num_experts / params.num_groups;
  scratch.is_open.assign(num_experts, params.top_groups == params.num_groups);
  if (params.top_groups == params.num_groups) return;
  scratch.group_scores.resize(params.num_groups);
  for (int64_t g = 0; g < params.num_groups; ++g) {
    scratch.group_scores[g] =
        comparable(sum_of_two_best(scratch.choice.data() + g * group_size, group_size));
  }
  scratch.is_group_open.assign(params.num_groups, 1);
  for (int32_t i = 0; i < params.top_groups; ++i) {
    const int64_t g = take_largest(scratch.group_scores.data(), scratch.is_group_open);
    std::fill_n(scratch.is_open.begin() + g * group_size, group_size, uint8_t{1});
  }
}

void route_token(const MoeRouterParams& params, int64_t token) {
  thread_local TokenScratch scratch;
  load_token(params, token, scratch);
  open_groups(params, scratch);
  const int64_t top_k = params.experts.sizes[1];
  float sum = 0;
  for (int64_t i = 0; i < top_k; ++i) {
    const int64_t expert = take_largest(scratch.choice.data(), scratch.is_open);
    params.experts(token, i) = static_cast<int32_t>(expert);
    params.weights(token, i) = scratch.scores[expert];
    sum += scratch.scores[expert];
  }
  for (int64_t i = 0; i < top_k; ++i) {
    float& weight = params.weights(token, i);
    if (params.normalize) weight /= sum + 1e-20f;
    weight *= params.scale;
  }
}

void launch_moe_router_cpu(const MoeRouterParams& params) {
  const int64_t num_tokens = params.logits.sizes[0];
  const int64_t num_experts = params.logits.sizes[1];
  const int64_t top_k = params.experts.sizes[1];
  DHS_CHECK(params.num_groups >= 1 && num_experts % params.num_groups == 0, num_experts,
            " experts in ", params.num_groups, " groups");
  DHS_CHECK(params.top_groups >= 1 && params.top_groups <= params.num_groups, "top_groups ",
            params.top_groups, " of ", params.num_groups);
  DHS_CHECK(top_k <= num_experts / params.num_groups * params.top_groups, "top_k ", top_k,
            " of the experts of ", params.top_groups, " groups");
  DHS_CHECK(params.weights.sizes[1] == top_k && params.experts.sizes[0] == num_tokens &&
                params.weights.sizes[0] == num_tokens,
            "experts and weights must both be ", num_tokens, " x ", top_k);
  const int64_t grain = std::max<int64_t>(1, kPieceExperts / std::max<int64_t>(1, num_experts));
  parallel_for(num_tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) route_token(params, token);
  });
}

}  // namespace

DHS_LAUNCHER(launch_moe_router, MoeRouterParams)

}  // namespace dhs
