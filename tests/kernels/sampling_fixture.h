// What the tests of sampling share: rows drawn by a launch, by the reference or by the CPU version,
// and statistics of draws.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "kernels/sampling/sampling.h"
#include "kernels/statistics.h"
#include "kernels/test_memory.h"

namespace dhs {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Sampled {
  std::vector<int32_t> tokens, top_tokens;
  std::vector<float> logprobs, top_logprobs;
};

// Emulated launches are slow: statistics make do with fewer draws there.
inline constexpr int kDrawShare = test::kOnCuda ? 200 : 1;

// Copies of what rows point to, each list once.
template <class T>
class DeviceLists {
 public:
  const T* upload(const T* list, int32_t count) {
    if (list == nullptr) return nullptr;
    const auto [place, is_new] = place_of_.try_emplace({list, count}, lists_.size());
    if (is_new) lists_.emplace_back(std::vector<T>(list, list + count));
    return lists_[place->second].data();
  }

 private:
  std::map<std::pair<const T*, int32_t>, size_t> place_of_;
  std::vector<test::DeviceArray<T>> lists_;
};

// What `rows` point to lies in host memory; every row is drawn from the same logits when
// there are logits for one row only.
inline Sampled sample(const std::vector<float>& logits, std::vector<RowSampling> rows,
                      int64_t vocab_size, int64_t room) {
  const size_t num_rows = rows.size();
  DeviceLists<int32_t> tokens_of_rows;
  DeviceLists<float> probabilities;
  DeviceLists<LogitAdjustment> adjustments;
  for (RowSampling& row : rows) {
    row.masked_tokens = tokens_of_rows.upload(row.masked_tokens, row.num_masked_tokens);
    row.adjustments = adjustments.upload(row.adjustments, row.num_adjustments);
    row.proposed_tokens = tokens_of_rows.upload(row.proposed_tokens, row.num_proposed);
    row.proposed_probabilities = probabilities.upload(row.proposed_probabilities, row.num_proposed);
  }
  const test::DeviceArray<float> device_logits(logits), logprobs(num_rows, -7.0f),
      top_logprobs(num_rows * static_cast<size_t>(room), -7.0f);
  const test::DeviceArray<RowSampling> device_rows(rows);
  const test::DeviceArray<int32_t> tokens(num_rows, -7), top_tokens(top_logprobs.size(), -7);
  const bool is_shared = static_cast<int64_t>(logits.size()) == vocab_size;
  launch_sampling({.logits = {device_logits.data(),
                              {static_cast<int64_t>(num_rows), vocab_size},
                              {is_shared ? 0 : vocab_size, 1}},
                   .rows = view<const RowSampling>(device_rows.data(), num_rows),
                   .tokens = view(tokens.data(), num_rows),
                   .logprobs = view(logprobs.data(), num_rows),
                   .top_tokens = view(top_tokens.data(), num_rows, room),
                   .top_logprobs = view(top_logprobs.data(), num_rows, room)},
                  test::stream());
  return {tokens.download(), top_tokens.download(), logprobs.download(), top_logprobs.download()};
}

inline Sampled sample(const std::vector<float>& logits, const std::vector<RowSampling>& rows,
                      int64_t room = 0) {
  const size_t vocab_size = rows.empty() ? 1 : logits.size() / rows.size();
  return sample(logits, rows, static_cast<int64_t>(vocab_size), room);
}

// The same on the host: by the reference, or by the CPU version.
inline Sampled sample_by(void (*function)(const BatchSamplingParams&),
                         const std::vector<float>& logits, const RowSampling& row, int64_t room) {
  Sampled out{{-7}, std::vector<int32_t>(static_cast<size_t>(room), -7), {-7.0f}, {}};
  out.top_logprobs.assign(out.top_tokens.size(), -7.0f);
  function({.logits = view(logits.data(), 1, logits.size()),
            .rows = view(&row, 1),
            .tokens = view(out.tokens.data(), 1),
            .logprobs = view(out.logprobs.data(), 1),
            .top_tokens = view(out.top_tokens.data(), 1, room),
            .top_logprobs = view(out.top_logprobs.data(), 1, room)});
  return out;
}

inline void expect_same(const Sampled& got, const Sampled& want) {
  ASSERT_EQ(got.tokens, want.tokens);
  ASSERT_EQ(got.top_tokens, want.top_tokens);
  auto expect_near = [](const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < b.size(); ++i) {
      if (a[i] == b[i]) continue;  // infinities too
      ASSERT_NEAR(a[i], b[i], 1e-5f * (1 + std::fabs(b[i])));
    }
  };
  expect_near(got.logprobs, want.logprobs);
  expect_near(got.top_logprobs, want.top_logprobs);
}

inline std::vector<float> random_logits(int64_t count, uint32_t seed, float spread = 2.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// The tokens that `num_draws` draws of `row` at different positions give.
inline std::map<int32_t, int> draw_counts(const std::vector<float>& logits, RowSampling row,
                                          int num_draws) {
  std::vector<RowSampling> rows;
  for (int i = 0; i < num_draws; ++i) {
    row.position = static_cast<uint32_t>(i);
    rows.push_back(row);
  }
  std::map<int32_t, int> counts;
  const auto vocab_size = static_cast<int64_t>(logits.size());
  for (int32_t token : sample(logits, rows, vocab_size, 0).tokens) ++counts[token];
  return counts;
}

}  // namespace dhs
