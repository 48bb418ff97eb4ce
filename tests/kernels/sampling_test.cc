#include "kernels/sampling/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/sampling/descending_order.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling_tables.h"
#include "kernels/sampling_fixture.h"

namespace dhs {
namespace {

int32_t sample_one(const std::vector<float>& logits, const RowSampling& row) {
  return sample(logits, {row}).tokens[0];
}

TEST(Philox, gives_the_published_known_answers) {
  const PhiloxBlock zeros = philox4x32_10({{0, 0, 0, 0}}, 0, 0);
  const uint32_t want_zeros[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  constexpr uint32_t kOnes = 0xffffffff;
  const PhiloxBlock ones = philox4x32_10({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes);
  const uint32_t want_ones[] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(zeros.word[i], want_zeros[i]);
    EXPECT_EQ(ones.word[i], want_ones[i]);
  }
}

TEST(Uniform, depends_on_every_part_of_its_key_and_fills_the_unit_interval) {
  EXPECT_EQ(uniform(0, 0, 0), 0x6627e8d5 * 0x1p-32);
  const double base = uniform(1, 2, 3);
  EXPECT_NE(base, uniform(2, 2, 3));
  EXPECT_NE(base, uniform(1 + (uint64_t{1} << 32), 2, 3));
  EXPECT_NE(base, uniform(1, 3, 3));
  EXPECT_NE(base, uniform(1, 2, 4));
  constexpr int kNumBins = 64, kNumDraws = 64000;
  std::vector<int> bins(kNumBins);
  for (uint32_t i = 0; i < kNumDraws; ++i) ++bins[static_cast<size_t>(uniform(9, 0, i) * kNumBins)];
  double chi_square = 0;
  for (int count : bins) chi_square += std::pow(count - 1000.0, 2) / 1000.0;
  EXPECT_LT(chi_square, 63 + 4 * std::sqrt(2.0 * 63));
}

TEST(Sampling, draws_with_the_probabilities_of_the_softmax) {
  constexpr int kVocab = 20, kNumDraws = 40000 / kDrawShare;
  for (float temperature : {0.5f, 1.0f, 3.0f}) {
    const auto logits = random_logits(kVocab, 11, 1.0f);
    std::vector<double> expected;
    double total = 0;
    for (float logit : logits) expected.push_back(std::exp(logit / temperature));
    for (double p : expected) total += p;
    for (double& p : expected) p /= total;
    const auto counts = draw_counts(logits, {.temperature = temperature, .seed = 5}, kNumDraws);
    EXPECT_LT(chi_square_of(counts, expected, kNumDraws), 19 + 4 * std::sqrt(2.0 * 19));
  }
}

TEST(Sampling, draws_with_the_probabilities_that_the_filters_leave) {
  // p = 0.4, 0.3, 0.2, 0.1 at temperature 1.
  std::vector<float> logits;
  for (float p : {0.2f, 0.4f, 0.1f, 0.3f}) logits.push_back(std::log(p));
  constexpr int kNumDraws = 30000 / kDrawShare;
  const double limit = 3 + 4 * std::sqrt(6.0);
  auto check = [&](const RowSampling& row, const std::vector<double>& expected) {
    EXPECT_LT(chi_square_of(draw_counts(logits, row, kNumDraws), expected, kNumDraws), limit);
  };
  check({.temperature = 1, .seed = 1}, {0.2, 0.4, 0.1, 0.3});
  check({.temperature = 1, .top_k = 2, .seed = 2}, {0, 4.0 / 7, 0, 3.0 / 7});
  check({.temperature = 1, .top_p = 0.65f, .seed = 3}, {0, 4.0 / 7, 0, 3.0 / 7});
  check({.temperature = 1, .top_p = 0.75f, .seed = 4}, {2.0 / 9, 4.0 / 9, 0, 3.0 / 9});
  check({.temperature = 1, .min_p = 0.45f, .seed = 5}, {2.0 / 9, 4.0 / 9, 0, 3.0 / 9});
  // top_p counts within what top_k left: 4/7 reaches 0.55.
  check({.temperature = 1, .top_p = 0.55f, .top_k = 2, .seed = 6}, {0, 1, 0, 0});
}

TEST(Sampling, equals_the_reference_over_many_settings) {
  std::mt19937 generator(3);
  auto pick = [&](auto... options) {
    const double all[] = {static_cast<double>(options)...};
    return all[generator() % sizeof...(options)];
  };
  for (int trial = 0; trial < (test::kOnCuda ? 120 : 1500); ++trial) {
    const int64_t vocab_size = static_cast<int64_t>(pick(1, 2, 17, 100, 1000, 5000));
    auto logits = random_logits(vocab_size, static_cast<uint32_t>(trial),
                                static_cast<float>(pick(0.1, 2, 10)));
    if (trial % 3 == 0) {
      for (float& logit : logits) logit = std::round(logit * 2) / 2;  // many ties, and -0
    }
    std::vector<int32_t> masked;
    for (int i = 0; i < 3 && i + 1 < vocab_size; ++i) {
      masked.push_back(static_cast<int32_t>(generator() % static_cast<uint64_t>(vocab_size)));
    }
    const RowSampling row{.temperature = static_cast<float>(pick(0, 0.3, 1, 1, 2.5)),
                          .top_p = static_cast<float>(pick(1, 1, 0.9, 0.5, 0.01)),
                          .min_p = static_cast<float>(pick(0, 0, 0.05, 0.5, 1)),
                          .top_k = static_cast<int32_t>(pick(0, 0, 1, 5, 50, 100000)),
                          .seed = generator(),
                          .sequence_idx = static_cast<uint32_t>(trial % 4),
                          .position = static_cast<uint32_t>(trial),
                          .num_logprobs = static_cast<int32_t>(pick(0, 1, 5)),
                          .masked_tokens = masked.data(),
                          .num_masked_tokens = static_cast<int32_t>(masked.size())};
    SCOPED_TRACE(trial);
    expect_same(sample(logits, {row}, 5), sample_by(sampling_ref, logits, row, 5));
    if (HasFatalFailure()) return;
  }
}

TEST(Sampling, is_greedy_at_temperature_zero_with_ties_to_the_lowest_token) {
  EXPECT_EQ(sample_one({1, 3, 2, 3}, {}), 1);
  EXPECT_EQ(sample_one({-0.0f, 0.0f}, {}), 0);
  EXPECT_EQ(sample_one({kNan, 1, kInfinity, 2, kInfinity}, {}), 2);
}

TEST(Sampling, cuts_ties_at_top_k_in_favour_of_the_lowest_tokens) {
  const std::vector<float> logits = {1, 2, 2, 1, 2, 1};
  const auto counts = draw_counts(logits, {.temperature = 1, .top_k = 4, .seed = 3}, 100);
  std::set<int32_t> drawn;
  for (const auto& [token, count] : counts) drawn.insert(token);
  EXPECT_EQ(drawn, (std::set<int32_t>{0, 1, 2, 4}));
}

TEST(Sampling, never_draws_a_masked_token) {
  const std::vector<int32_t> masked = {0, 2, 99, -5};  // out of range is ignored
  const RowSampling row{.temperature = 1,
                        .seed = 8,
                        .masked_tokens = masked.data(),
                        .num_masked_tokens = static_cast<int32_t>(masked.size())};
  const auto counts = draw_counts({9, 1, 9, 1}, row, 100);
  EXPECT_EQ(counts.count(0) + counts.count(2), 0u);
  EXPECT_EQ(counts.size(), 2u);
  RowSampling greedy = row;
  greedy.temperature = 0;
  EXPECT_EQ(sample_one({9, 1, 9, 1}, greedy), 1);
}

TEST(Sampling, draws_the_only_possible_token) {
  std::vector<float> logits(1000, -kInfinity);
  logits[637] = -50.0f;
  for (float temperature : {0.0f, 1e-30f, 1.0f, 1e30f}) {
    for (float top_p : {1.0f, 0.1f}) {
      const RowSampling row{.temperature = temperature, .top_p = top_p, .min_p = 0.1f, .top_k = 7};
      const Sampled out = sample(logits, {row}, 2);
      EXPECT_EQ(out.tokens[0], 637);
      EXPECT_EQ(out.logprobs[0], 0.0f);
    }
  }
}

TEST(Sampling, survives_extreme_temperatures_and_logits) {
  const std::vector<float> logits = {3e38f, -3e38f, 2.9e38f, kNan, kInfinity, -kInfinity, 0};
  for (float temperature : {1e-38f, 1e-10f, 1.0f, 1e10f, 3e38f}) {
    for (uint32_t position = 0; position < 200 / kDrawShare + 5; ++position) {
      const Sampled out = sample(logits, {{.temperature = temperature, .position = position}});
      EXPECT_GE(out.tokens[0], 0);
      EXPECT_LT(out.tokens[0], 7);
      EXPECT_NE(out.tokens[0], 3);
      EXPECT_NE(out.tokens[0], 5);
      EXPECT_FALSE(std::isnan(out.logprobs[0]));
    }
  }
  EXPECT_EQ(draw_counts({1, 2, 3}, {.temperature = 1e-30f}, 100),
            (std::map<int32_t, int>{{2, 100}}));
  constexpr int kNumFlat = test::kOnCuda ? 300 : 3000;
  const auto flat = draw_counts({1, 2, 3}, {.temperature = 1e30f}, kNumFlat);
  const double deviation = std::sqrt(kNumFlat * 2.0 / 9);
  for (const auto& [token, count] : flat) {
    EXPECT_NEAR(count, kNumFlat / 3, 4.6 * deviation) << token;
  }
}

TEST(Sampling, gives_token_zero_with_no_probability_when_nothing_can_be_drawn) {
  const Sampled out = sample({kNan, -kInfinity, kNan}, {{.temperature = 1, .num_logprobs = 2}}, 2);
  EXPECT_EQ(out.tokens[0], 0);
  EXPECT_EQ(out.logprobs[0], -kInfinity);
  EXPECT_EQ(out.top_tokens, (std::vector<int32_t>{-1, -1}));
}

TEST(Sampling, lists_the_likeliest_tokens_and_pads_the_rest) {
  const std::vector<float> logits = {0, 2, 1, 2, 0, 2, 1, 2};
  const Sampled out = sample(logits, {{.num_logprobs = 3}, {.num_logprobs = 0}}, 4);
  EXPECT_EQ(out.top_tokens, (std::vector<int32_t>{1, 3, 2, -1, -1, -1, -1, -1}));
  const double log_total = std::log(1 + 2 * std::exp(2.0) + std::exp(1.0));
  EXPECT_NEAR(out.top_logprobs[0], 2 - log_total, 1e-6);
  EXPECT_NEAR(out.top_logprobs[2], 1 - log_total, 1e-6);
  EXPECT_EQ(out.top_logprobs[3], 0.0f);
}

TEST(Sampling, reports_logprobs_of_the_raw_logits_whatever_the_temperature) {
  const auto logits = random_logits(300, 21);
  double total = 0;
  for (float logit : logits) total += std::exp(static_cast<double>(logit));
  for (float temperature : {0.0f, 0.2f, 1.0f, 5.0f}) {
    const Sampled out = sample(logits, {{.temperature = temperature, .top_k = 30}});
    EXPECT_NEAR(out.logprobs[0], logits[static_cast<size_t>(out.tokens[0])] - std::log(total),
                1e-5);
  }
}

TEST(Sampling, gives_a_row_the_same_result_alone_and_in_a_batch) {
  constexpr int64_t kVocab = test::kOnCuda ? 9011 : 30011, kRows = 9;
  const auto logits = random_logits(kVocab * kRows, 31);
  std::vector<RowSampling> rows;
  for (uint32_t i = 0; i < kRows; ++i) {
    rows.push_back({.temperature = i % 3 == 0 ? 0.0f : 1.5f,
                    .top_p = i % 2 == 0 ? 1.0f : 0.8f,
                    .top_k = static_cast<int32_t>(i % 4 * 500),
                    .seed = 77,
                    .sequence_idx = i,
                    .position = 4,
                    .num_logprobs = 3});
  }
  set_num_kernel_threads(2);
  const Sampled all = sample(logits, rows, 3);
  set_num_kernel_threads(1);
  const Sampled serial = sample(logits, rows, 3);
  set_num_kernel_threads(0);
  EXPECT_EQ(all.tokens, serial.tokens);
  EXPECT_EQ(all.top_logprobs, serial.top_logprobs);
  for (size_t row = 0; row < kRows; ++row) {
    const auto begin = logits.begin() + static_cast<int64_t>(row) * kVocab;
    const Sampled alone = sample({begin, begin + kVocab}, {rows[row]}, 3);
    EXPECT_EQ(alone.tokens[0], all.tokens[row]);
    EXPECT_EQ(alone.logprobs[0], all.logprobs[row]);
  }
}

TEST(Sampling, accepts_zero_rows) { EXPECT_TRUE(sample({}, {}, 2).tokens.empty()); }

#if DHS_TEST_CUDA

void sample_on_cpu(const BatchSamplingParams& params) { launch_sampling(params, Stream{}); }

// Rows whose cuts lie among more tokens than are sorted at once, and in the tail.
TEST(Sampling, draws_what_the_cpu_version_draws_from_flat_and_tied_rows) {
  constexpr int64_t kVocab = 6000;
  auto tied = random_logits(kVocab, 51, 1.0f);
  for (float& logit : tied) logit = std::round(logit);
  const std::vector<float> equal(kVocab, -3.5f);
  const std::vector<int32_t> masked = {0, 17, 5999};
  for (const auto& logits : {random_logits(kVocab, 50, 0.01f), tied, equal}) {
    for (const RowSampling& settings :
         {RowSampling{.temperature = 1},
          RowSampling{.temperature = 0.7f, .top_p = 0.95f, .top_k = 3000, .num_logprobs = 20},
          RowSampling{.temperature = 8, .top_p = 0.3f, .min_p = 0.2f, .num_logprobs = 7}}) {
      RowSampling row = settings;
      row.masked_tokens = masked.data();
      row.num_masked_tokens = 3;
      for (row.position = 0; row.position < 4; ++row.position) {
        SCOPED_TRACE(row.position);
        expect_same(sample(logits, {row}, 20), sample_by(sample_on_cpu, logits, row, 20));
        if (HasFatalFailure()) return;
      }
    }
  }
}

#else

TEST(SamplingTables, give_the_same_bits_on_every_instruction_set) {
  const SamplingTable& base = sampling_table(CpuIsa::kBase);
  for (CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    if (!cpu_supports(isa)) continue;
    const SamplingTable& table = sampling_table(isa);
    for (int64_t count : {0, 1, 15, 16, 17, 1003}) {
      auto logits = random_logits(count, 41, 10);
      if (count > 2) logits[1] = kNan, logits[0] = -0.0f, logits[2] = kInfinity;
      std::vector<float> values(logits), base_values(logits), mass(logits), base_mass(logits);
      table.load(logits.data(), count, values.data());
      base.load(logits.data(), count, base_values.data());
      ASSERT_EQ(values, base_values);
      const float largest = base.largest(base_values.data(), count);
      EXPECT_EQ(table.largest(values.data(), count), largest);
      const float largest_and_temperature[2] = {count > 2 ? 3.0f : largest, 0.7f};
      EXPECT_EQ(table.exponentials(values.data(), count, largest_and_temperature, mass.data()),
                base.exponentials(values.data(), count, largest_and_temperature, base_mass.data()));
      EXPECT_EQ(mass, base_mass);
    }
  }
}

TEST(DescendingOrder, walks_the_order_of_a_stable_sort) {
  DescendingOrder order;  // one object for all rows: it must forget the last
  for (uint32_t seed = 0; seed < 40; ++seed) {
    auto values = random_logits(500, seed, seed % 2 == 0 ? 1e-3f : 100.0f);
    if (seed % 4 == 0) {
      for (float& value : values) value = std::round(value) + 0.0f;  // no -0
    }
    const std::vector<float> mass(values.size(), 1.0f);
    std::vector<int32_t> sorted(values.size());
    for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = static_cast<int32_t>(i);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](int32_t a, int32_t b) { return values[a] > values[b]; });
    const float lowest = seed % 3 == 0 ? -1e30f : values[static_cast<size_t>(sorted[60])];
    order.build({values.data(), mass.data(), 500}, lowest);
    for (int64_t n : {1, 2, 3, 50, 61, 62, 499, 500}) {
      const auto by_count = order.walk({.num_tokens = n});
      EXPECT_EQ(by_count.num_tokens, n);
      EXPECT_EQ(by_count.mass, static_cast<double>(n));
      EXPECT_EQ(by_count.last_token, sorted[static_cast<size_t>(n - 1)]);
      const auto by_mass = order.walk({.mass = static_cast<double>(n) - 0.5});
      EXPECT_EQ(by_mass.last_token, by_count.last_token);
      const float value = values[static_cast<size_t>(by_count.last_token)];
      const auto by_value = order.walk({.lowest_value = value});
      EXPECT_EQ(values[static_cast<size_t>(by_value.last_token)], value);
      EXPECT_GE(by_value.num_tokens, n);
    }
  }
}

TEST(DescendingOrder, never_visits_tokens_at_minus_infinity) {
  const std::vector<float> values = {-kInfinity, -3e38f, 1, -kInfinity}, mass = {0, 0, 1, 0};
  DescendingOrder order;
  for (float likely_lowest : {-kInfinity, 0.0f, 1.0f, 2.0f}) {
    order.build({values.data(), mass.data(), 4}, likely_lowest);
    const auto all = order.walk({});
    EXPECT_EQ(all.num_tokens, 2);
    EXPECT_EQ(all.last_token, 1);
  }
}

#endif

}  // namespace
}  // namespace dhs
