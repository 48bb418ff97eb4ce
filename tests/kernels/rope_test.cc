#include "kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

constexpr RopePairing kPairings[] = {RopePairing::kInterleaved, RopePairing::kHalfSplit};

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

struct RopeCase {
  int64_t num_tokens, num_heads, head_dim;
  int32_t rope_dim;
  RopePairing pairing;
  std::vector<double> frequencies;
  std::vector<int32_t> positions;

  float magnitude = 1.0f;

  // x after the launch.
  std::vector<float> turn(const std::vector<float>& x) const {
    const test::DeviceArray<float> device_x(x);
    const test::DeviceArray<int32_t> device_positions(positions);
    const test::DeviceArray<double> device_frequencies(frequencies);
    launch_rope({.x = view(device_x.data(), num_tokens, num_heads, head_dim),
                 .positions = view<const int32_t>(device_positions.data(), num_tokens),
                 .inverse_frequency = device_frequencies.data(),
                 .rope_dim = rope_dim,
                 .pairing = pairing,
                 .magnitude = magnitude},
                test::stream());
    return device_x.download();
  }
  std::vector<float> turn_ref(std::vector<float> x) const {
    rope_ref({.x = view(x.data(), num_tokens, num_heads, head_dim),
              .positions = view(positions.data(), num_tokens),
              .inverse_frequency = frequencies.data(),
              .rope_dim = rope_dim,
              .pairing = pairing,
              .magnitude = magnitude});
    return x;
  }
};

RopeCase make_case(RopePairing pairing, int32_t rope_dim, int64_t num_tokens) {
  RopeCase made{
      num_tokens, 5, rope_dim + 3, rope_dim, pairing, rope_frequencies(rope_dim, 8e6, nullptr), {}};
  for (int64_t i = 0; i < num_tokens; ++i) {
    made.positions.push_back(static_cast<int32_t>((i * 7919 + 1) % 1000003));
  }
  return made;
}

TEST(Rope, equals_the_reference_for_both_pairings) {
  for (RopePairing pairing : kPairings) {
    for (int32_t rope_dim : {2, 6, 32, 64, 128}) {
      auto test = make_case(pairing, rope_dim, 40);
      test.magnitude = 1.25f;
      const auto x = random_floats(40 * 5 * test.head_dim, 1);
      const auto got = test.turn(x), want = test.turn_ref(x);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 1e-6f * (1 + std::fabs(want[i]))) << i;
      }
    }
  }
}

TEST(Rope, does_nothing_at_position_zero_and_leaves_the_other_columns) {
  for (RopePairing pairing : kPairings) {
    auto test = make_case(pairing, 8, 3);
    test.positions = {0, 5, 0};
    const auto before = random_floats(3 * 5 * test.head_dim, 2), x = test.turn(before);
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
      const bool turns = i / (5 * test.head_dim) == 1 && i % test.head_dim < 8;
      EXPECT_EQ(x[i] != before[i], turns) << i;
    }
  }
}

TEST(Rope, pairs_neighbours_or_halves) {
  const std::vector<double> quarter_turn = {M_PI / 2, M_PI / 2};
  RopeCase test{1, 1, 4, 4, RopePairing::kInterleaved, quarter_turn, {1}};
  const auto interleaved = test.turn({1, 2, 3, 4});
  test.pairing = RopePairing::kHalfSplit;
  const auto half_split = test.turn({1, 2, 3, 4});
  const float want_interleaved[] = {-2, 1, -4, 3}, want_half_split[] = {-3, -4, 1, 2};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(interleaved[i], want_interleaved[i], 1e-6f);
    EXPECT_NEAR(half_split[i], want_half_split[i], 1e-6f);
  }
}

TEST(Rope, makes_dot_products_depend_on_distance_only_at_a_million_tokens) {
  auto test = make_case(RopePairing::kInterleaved, 64, 4);
  test.num_heads = 1;
  test.head_dim = 64;
  test.positions = {3, 17, 1'000'003, 1'000'017};
  const auto row = random_floats(2 * 64, 3);
  auto x = row;
  x.insert(x.end(), row.begin(), row.end());
  x = test.turn(x);
  auto dot = [&](int a, int b) {
    double sum = 0;
    for (int i = 0; i < 64; ++i) sum += static_cast<double>(x[a * 64 + i]) * x[b * 64 + i];
    return sum;
  };
  EXPECT_NEAR(dot(0, 1), dot(2, 3), 1e-5);
}

TEST(Rope, gives_a_token_the_same_bits_alone_and_in_a_batch) {
  for (RopePairing pairing : kPairings) {
    constexpr int64_t kTokens = 64;
    auto test = make_case(pairing, 64, kTokens);
    const int64_t token_size = test.num_heads * test.head_dim;
    const auto start = random_floats(kTokens * token_size, 4);
    set_num_kernel_threads(2);
    const auto all = test.turn(start);
    set_num_kernel_threads(1);
    EXPECT_EQ(test.turn(start), all);
    set_num_kernel_threads(0);
    for (int64_t token : {0, 13, 63}) {
      RopeCase one = test;
      one.num_tokens = 1;
      one.positions = {test.positions[token]};
      const auto alone =
          one.turn({start.begin() + token * token_size, start.begin() + (token + 1) * token_size});
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + token * token_size));
    }
  }
}

TEST(Rope, accepts_zero_tokens) {
  EXPECT_EQ(make_case(RopePairing::kInterleaved, 4, 0).turn({-1.0f}), std::vector<float>{-1.0f});
}

TEST(Rope, leaves_padding_as_it_is) {
  auto test = make_case(RopePairing::kHalfSplit, 8, 3);
  test.positions = {-1, 5, -1};
  const auto before = random_floats(3 * 5 * test.head_dim, 6), x = test.turn(before);
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    const bool turns = i / (5 * test.head_dim) == 1 && i % test.head_dim < 8;
    EXPECT_EQ(x[i] != before[i], turns) << i;
  }
}

TEST(Rope, turns_every_head_of_many) {
  auto test = make_case(RopePairing::kInterleaved, 16, 2);
  test.num_heads = 130;
  test.head_dim = 20;
  const auto x = random_floats(2 * 130 * 20, 7);
  const auto got = test.turn(x), want = test.turn_ref(x);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5f) << i;
}

TEST(RopeFrequencies, fall_as_powers_of_theta) {
  const auto frequencies = rope_frequencies(64, 10000, nullptr);
  ASSERT_EQ(frequencies.size(), 32u);
  EXPECT_EQ(frequencies[0], 1.0);
  EXPECT_NEAR(frequencies[16], 1e-2, 1e-15);
  EXPECT_NEAR(frequencies[31], std::pow(10000.0, -62.0 / 64), 1e-15);
}

// DeepSeek-V3.2: the ramp runs from pair 10 to pair 23 (low = floor(10.47), high = ceil(22.51)).
TEST(RopeFrequencies, ramp_as_published_for_deepseek) {
  const YarnParams yarn{
      .factor = 40, .original_max_position = 4096, .beta_fast = 32, .beta_slow = 1};
  const auto plain = rope_frequencies(64, 10000, nullptr);
  const auto ramped = rope_frequencies(64, 10000, &yarn);
  for (size_t i = 0; i <= 10; ++i) EXPECT_EQ(ramped[i], plain[i]) << i;
  for (size_t i = 23; i < 32; ++i) EXPECT_NEAR(ramped[i], plain[i] / 40, 1e-18) << i;
  for (size_t i = 11; i < 23; ++i) {
    const double ramp = (static_cast<double>(i) - 10) / 13;
    EXPECT_NEAR(ramped[i], plain[i] * (1 - ramp) + plain[i] / 40 * ramp, 1e-15) << i;
  }
}

TEST(RopeFrequencies, stay_finite_when_the_ramp_has_no_width) {
  const YarnParams yarn{.factor = 4, .original_max_position = 6, .beta_fast = 32, .beta_slow = 1};
  for (double frequency : rope_frequencies(8, 10000, &yarn)) {
    EXPECT_TRUE(std::isfinite(frequency));
    EXPECT_GT(frequency, 0.0);
  }
}

}  // namespace
}  // namespace dhs
