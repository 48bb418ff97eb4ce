#include "kernels/moe_router/moe_router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

struct Routing {
  int64_t num_experts, top_k;
  int32_t num_groups, top_groups;
  bool normalize;
};
// DeepSeek-V3.2, GLM-5.x, GLM-5.3-Flash, and corners: one expert a group, everything chosen, many
// groups.
constexpr Routing kRoutings[] = {{256, 8, 8, 4, true},   {256, 8, 1, 1, true}, {288, 8, 1, 1, true},
                                 {16, 4, 4, 2, false},   {8, 3, 8, 5, true},   {6, 6, 2, 2, false},
                                 {512, 10, 64, 40, true}};

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
  bool operator==(const Routed&) const = default;
};

MoeRouterParams params_of(const Routing& routing) {
  return {.num_groups = routing.num_groups,
          .top_groups = routing.top_groups,
          .normalize = routing.normalize,
          .scale = 2.5f};
}

Routed route(const Routing& routing, const std::vector<float>& logits,
             const std::vector<float>& bias) {
  const int64_t num_tokens = static_cast<int64_t>(logits.size()) / routing.num_experts;
  const size_t size = static_cast<size_t>(num_tokens * routing.top_k);
  const test::DeviceArray<float> device_logits(logits), device_bias(bias), weights(size, -1.0f);
  const test::DeviceArray<int32_t> experts(size, -1);
  MoeRouterParams params = params_of(routing);
  params.logits = view<const float>(device_logits.data(), num_tokens, routing.num_experts);
  params.correction_bias = bias.empty() ? nullptr : device_bias.data();
  params.experts = view(experts.data(), num_tokens, routing.top_k);
  params.weights = view(weights.data(), num_tokens, routing.top_k);
  launch_moe_router(params, test::stream());
  return {experts.download(), weights.download()};
}

Routed route_ref(const Routing& routing, const std::vector<float>& logits,
                 const std::vector<float>& bias) {
  const int64_t num_tokens = static_cast<int64_t>(logits.size()) / routing.num_experts;
  const size_t size = static_cast<size_t>(num_tokens * routing.top_k);
  Routed routed{std::vector<int32_t>(size, -1), std::vector<float>(size, -1.0f)};
  MoeRouterParams params = params_of(routing);
  params.logits = view(logits.data(), num_tokens, routing.num_experts);
  params.correction_bias = bias.empty() ? nullptr : bias.data();
  params.experts = view(routed.experts.data(), num_tokens, routing.top_k);
  params.weights = view(routed.weights.data(), num_tokens, routing.top_k);
  moe_router_ref(params);
  return routed;
}

// The same experts, and weights that differ by what an exponential's last bit makes at most.
void expect_same(const Routed& got, const Routed& want) {
  EXPECT_EQ(got.experts, want.experts);
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (size_t i = 0; i < want.weights.size(); ++i) {
    if (std::isnan(want.weights[i])) {
      ASSERT_TRUE(std::isnan(got.weights[i])) << i;
    } else {
      ASSERT_NEAR(got.weights[i], want.weights[i], (test::kOnCuda ? 1e-6f : 0.0f)) << i;
    }
  }
}

std::vector<float> random_floats(int64_t count, uint32_t seed, float step) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  if (step > 0) {
    for (float& value : values) value = std::round(value / step) * step;  // many ties
  }
  return values;
}

TEST(MoeRouter, equals_the_reference_with_and_without_ties) {
  for (const Routing& routing : kRoutings) {
    for (float step : {0.0f, 0.5f}) {
      const auto logits = random_floats(50 * routing.num_experts, 1, step);
      const auto bias = random_floats(routing.num_experts, 2, step);
      expect_same(route(routing, logits, bias), route_ref(routing, logits, bias));
      expect_same(route(routing, logits, {}), route_ref(routing, logits, {}));
    }
  }
}

TEST(MoeRouter, lets_the_bias_change_the_choice_but_never_the_weight) {
  const std::vector<float> logits = {0, 1, 2, 3};
  const auto routed = route({4, 2, 1, 1, false}, logits, {10, 0, 0, 0});
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{0, 3}));
  EXPECT_FLOAT_EQ(routed.weights[0], 2.5f * 0.5f);
  EXPECT_FLOAT_EQ(routed.weights[1], 2.5f / (1 + std::exp(-3.0f)));
}

TEST(MoeRouter, chooses_only_from_the_best_groups_even_if_all_choices_are_negative) {
  // Group scores: sum of the two best. Expert 4 is the best of all, but its group is not kept.
  const std::vector<float> logits = {1, 1, -9, 1, 1, -9, 5, -9, -9};
  const std::vector<float> bias(9, -20.0f);
  const auto routed = route({9, 3, 3, 2, true}, logits, bias);
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{0, 1, 3}));
}

TEST(MoeRouter, gives_normalised_weights_that_sum_to_the_scale) {
  const auto routed = route(kRoutings[0], random_floats(256, 3, 0), {});
  float sum = 0;
  for (float weight : routed.weights) sum += weight;
  EXPECT_NEAR(sum, 2.5f, 1e-5f);
}

TEST(MoeRouter, stays_finite_when_every_score_underflows) {
  const auto routed = route({8, 2, 1, 1, true}, std::vector<float>(8, -200.0f), {});
  for (float weight : routed.weights) EXPECT_EQ(weight, 0.0f);
}

TEST(MoeRouter, names_distinct_experts_whatever_the_logits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Routing& routing : kRoutings) {
    auto logits = random_floats(3 * routing.num_experts, 4, 0);
    for (int64_t e = 0; e < routing.num_experts; ++e) {
      logits[static_cast<size_t>(e)] = nan;
      if (e % 2 == 0) logits[static_cast<size_t>(routing.num_experts + e)] = nan;
    }
    const auto routed = route(routing, logits, {});
    expect_same(routed, route_ref(routing, logits, {}));
    for (int64_t token = 0; token < 3; ++token) {
      const auto first = routed.experts.begin() + token * routing.top_k;
      const std::set<int32_t> distinct(first, first + routing.top_k);
      EXPECT_EQ(static_cast<int64_t>(distinct.size()), routing.top_k);
      EXPECT_GE(*distinct.begin(), 0);
      EXPECT_LT(*distinct.rbegin(), routing.num_experts);
    }
  }
}

TEST(MoeRouter, gives_a_token_the_same_bits_alone_and_in_a_batch) {
  constexpr int64_t kTokens = 33;
  for (const Routing& routing : kRoutings) {
    const auto logits = random_floats(kTokens * routing.num_experts, 5, 0);
    set_num_kernel_threads(2);
    const auto all = route(routing, logits, {});
    set_num_kernel_threads(1);
    EXPECT_EQ(route(routing, logits, {}), all);
    set_num_kernel_threads(0);
    for (int64_t token = 0; token < kTokens; token += 4) {
      const auto begin = logits.begin() + token * routing.num_experts;
      const auto alone = route(routing, {begin, begin + routing.num_experts}, {});
      for (int64_t i = 0; i < routing.top_k; ++i) {
        ASSERT_EQ(alone.experts[i], all.experts[token * routing.top_k + i]);
        ASSERT_EQ(alone.weights[i], all.weights[token * routing.top_k + i]);
      }
    }
  }
}

TEST(MoeRouter, gives_padding_of_zeros_the_first_experts) {
  const auto routed = route(kRoutings[1], std::vector<float>(2 * 256), {});
  for (int32_t i = 0; i < 16; ++i) EXPECT_EQ(routed.experts[i], i % 8);
}

TEST(MoeRouter, accepts_zero_tokens) { EXPECT_TRUE(route(kRoutings[0], {}, {}).experts.empty()); }

}  // namespace
}  // namespace dhs
