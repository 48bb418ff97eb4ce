#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/sampling/sampling.h"
#include "kernels/sampling_fixture.h"

namespace dhs {
namespace {

constexpr double kLeastPValue = 1e-4;
constexpr int kNumDraws = test::kOnCuda ? 400 : 100000;

struct Proposal {
  std::vector<int32_t> tokens;  // empty: all of them
  std::vector<float> probabilities;

  int32_t token(size_t i) const { return tokens.empty() ? static_cast<int32_t>(i) : tokens[i]; }
  int32_t draw(double u) const {
    size_t i = 0;
    for (double sum = probabilities[0]; sum <= u && i + 1 < probabilities.size();) {
      sum += probabilities[++i];
    }
    return token(i);
  }
  void put_into(RowSampling& row) const {
    row.num_proposed = static_cast<int32_t>(probabilities.size());
    row.proposed_tokens = tokens.empty() ? nullptr : tokens.data();
    row.proposed_probabilities = probabilities.data();
  }
};

std::vector<float> normalised(std::vector<float> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (float& weight : weights) weight = static_cast<float>(weight / sum);
  return weights;
}

// A distribution near that of the logits. count 0: over all tokens.
Proposal make_proposal(const std::vector<float>& logits, size_t count, uint32_t seed) {
  Proposal made;
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  if (count > 0) made.tokens.assign(order.begin(), order.begin() + static_cast<int64_t>(count));
  const auto noise = random_logits(static_cast<int64_t>(logits.size()), seed + 1, 1.0f);
  for (size_t i = 0; i < (count > 0 ? count : logits.size()); ++i) {
    const auto token = static_cast<size_t>(made.token(i));
    made.probabilities.push_back(std::exp(logits[token] - logits[0] + noise[token]));
  }
  made.probabilities = normalised(made.probabilities);
  return made;
}

// p: what the filters leave of the softmax.
std::vector<double> target_distribution(const std::vector<float>& logits, const RowSampling& row) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (row.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(row.top_k)));
  std::vector<double> p(logits.size());
  double total = 0, reached = 0;
  for (size_t token : order) total += std::exp(logits[token] / row.temperature);
  for (size_t token : order) {
    const double share = std::exp(logits[token] / row.temperature) / total;
    const double least = row.min_p * std::exp(logits[order[0]] / row.temperature) / total;
    if ((row.top_p < 1 && reached >= row.top_p) || share < least) break;
    p[token] = share;
    reached += share;
  }
  for (double& share : p) share /= reached;
  return p;
}

// Tokens that rows give whose draft tokens are drawn from `proposal`, or are its likeliest token.
struct Verified {
  std::map<int32_t, int> counts;
  int num_accepted = 0;
};
Verified verify(const std::vector<float>& logits, RowSampling row, const Proposal& proposal,
                bool is_likeliest = false) {
  proposal.put_into(row);
  std::vector<RowSampling> rows;
  for (uint32_t i = 0; i < kNumDraws; ++i) {
    row.position = i;
    row.draft_token = proposal.draw(uniform(row.seed, kDraftStream, i));
    if (is_likeliest) {
      const auto& q = proposal.probabilities;
      const auto largest = std::max_element(q.begin(), q.end()) - q.begin();
      row.draft_token = proposal.token(static_cast<size_t>(largest));
    }
    rows.push_back(row);
  }
  const auto tokens = sample(logits, rows, static_cast<int64_t>(logits.size()), 0).tokens;
  Verified out;
  for (size_t i = 0; i < rows.size(); ++i) {
    ++out.counts[tokens[i]];
    out.num_accepted += tokens[i] == rows[i].draft_token ? 1 : 0;
  }
  return out;
}

// The probability that a draft token drawn from `proposal` is accepted: sum of min(p, q).
double acceptance(const std::vector<double>& p, const Proposal& proposal) {
  double sum = 0;
  for (size_t i = 0; i < proposal.probabilities.size(); ++i) {
    sum += std::min(p[static_cast<size_t>(proposal.token(i))],
                    static_cast<double>(proposal.probabilities[i]));
  }
  return sum;
}

// All above 0: a row whose logits span both signs takes the CPU version much longer.
std::vector<float> target_logits() {
  auto logits = random_logits(40, 61, 1.5f);
  for (float& logit : logits) logit += 8;
  return logits;
}

const RowSampling kSettings[] = {
    {.temperature = 1, .seed = 101},
    {.temperature = 0.6f, .seed = 102},
    {.temperature = 1, .top_k = 7, .seed = 103},
    {.temperature = 1.3f, .top_p = 0.8f, .seed = 104},
    {.temperature = 1, .min_p = 0.1f, .seed = 105},
    {.temperature = 1, .top_p = 0.9f, .min_p = 0.03f, .top_k = 12, .seed = 106}};

TEST(VerifySampling, gives_the_distribution_of_the_target_whatever_the_proposal) {
  const auto logits = target_logits();
  for (size_t count : {size_t{0}, size_t{16}, size_t{1}}) {  // dense, sparse, one token
    const Proposal proposal = make_proposal(logits, count, 62 + static_cast<uint32_t>(count));
    for (const RowSampling& row : kSettings) {
      const auto p = target_distribution(logits, row);
      const Verified got = verify(logits, row, proposal);
      const double p_value = p_value_of(got.counts, p, kNumDraws);
      const std::string name = "p_" + std::to_string(count) + "_" + std::to_string(row.seed);
      RecordProperty(name, std::to_string(p_value));
      EXPECT_GT(p_value, kLeastPValue) << name;
      const double accepted = acceptance(p, proposal);
      EXPECT_NEAR(got.num_accepted, accepted * kNumDraws, 5 * std::sqrt(kNumDraws) / 2) << name;
    }
  }
}

TEST(VerifySampling, gives_the_distribution_of_the_target_to_chosen_drafts_without_a_proposal) {
  const auto logits = target_logits();
  for (RowSampling row : kSettings) {
    row.draft_token = 3;
    EXPECT_GT(p_value_of(draw_counts(logits, row, kNumDraws), target_distribution(logits, row),
                         kNumDraws),
              kLeastPValue);
  }
}

// The mistake that the statistics must find: a draft token that was chosen, judged as if drawn.
TEST(VerifySampling, is_biased_when_a_chosen_draft_comes_with_a_softmax) {
  const auto logits = target_logits();
  const Proposal proposal = make_proposal(logits, 16, 78);
  for (const RowSampling& row : {kSettings[0], kSettings[3]}) {
    const Verified got = verify(logits, row, proposal, true);
    EXPECT_LT(p_value_of(got.counts, target_distribution(logits, row), kNumDraws), kLeastPValue);
  }
}

TEST(VerifySampling, never_returns_a_draft_token_that_it_rejects) {
  const auto logits = random_logits(30, 64, 1.0f);
  for (uint32_t seed = 0; seed < (test::kOnCuda ? 40 : 2000); ++seed) {
    const Proposal proposal = make_proposal(logits, seed % 2 == 0 ? 16 : 0, seed);
    RowSampling row = kSettings[seed % 6];
    proposal.put_into(row);
    row.seed = seed;
    row.draft_token = proposal.token(seed % 16);
    const double q = proposal.probabilities[seed % 16];
    const double p = target_distribution(logits, row)[static_cast<size_t>(row.draft_token)];
    const double u = uniform(seed, kAcceptStream, 0);
    if (std::fabs(u * q - p) < 1e-6) continue;
    EXPECT_EQ(sample(logits, {row}).tokens[0] == row.draft_token, u * q < p) << seed;
  }
}

TEST(VerifySampling, rejects_what_the_filters_or_a_mask_drop) {
  const std::vector<float> logits = {3, 2, 1, 0};
  const std::vector<int32_t> masked = {0};
  const Proposal proposal{{0, 3}, {0.5f, 0.5f}};
  for (uint32_t position = 0; position < 30; ++position) {
    RowSampling row{.temperature = 1, .top_k = 2, .position = position, .draft_token = 3};
    proposal.put_into(row);
    EXPECT_LT(sample(logits, {row}).tokens[0], 2);
    row.draft_token = 0;
    row.masked_tokens = masked.data();
    row.num_masked_tokens = 1;
    const int32_t got = sample(logits, {row}).tokens[0];
    EXPECT_TRUE(got == 1 || got == 2) << got;
  }
}

TEST(VerifySampling, draws_from_the_target_when_nothing_is_left_of_it) {
  // The proposal covers the target, but not the draft token, whose q counts as 1e-8.
  const std::vector<float> logits = {0, 0, -40};
  const Proposal proposal{{0, 1}, {0.5f, 0.5f}};
  std::map<int32_t, int> counts;
  for (uint32_t position = 0; position < 60; ++position) {
    RowSampling row{.temperature = 1, .position = position, .draft_token = 2};
    proposal.put_into(row);
    ++counts[sample(logits, {row}).tokens[0]];
  }
  EXPECT_EQ(counts.count(2), 0u);
  EXPECT_EQ(counts.size(), 2u);
}

TEST(VerifySampling, accepts_the_only_possible_token) {
  std::vector<float> logits(700, -kInfinity);
  logits[637] = -50.0f;
  const Proposal proposal{{637, 5}, {1.0f, 0.0f}};
  for (uint32_t position = 0; position < 20; ++position) {
    RowSampling row{.temperature = 1, .position = position, .draft_token = 637};
    proposal.put_into(row);
    EXPECT_EQ(sample(logits, {row}).tokens[0], 637);
  }
}

TEST(VerifySampling, ignores_the_proposal_of_a_greedy_row) {
  const Proposal proposal{{0, 1}, {0.5f, 0.5f}};
  RowSampling row{.temperature = 0, .draft_token = 0};
  proposal.put_into(row);
  EXPECT_EQ(sample({1, 3, 2, 3}, {row}).tokens[0], 1);
}

// Logprobs and the list of top tokens are those of the token that is returned.
TEST(VerifySampling, equals_the_reference_over_many_settings) {
  std::mt19937 generator(7);
  for (int trial = 0; trial < (test::kOnCuda ? 150 : 2000); ++trial) {
    const int64_t vocab_size = std::vector<int64_t>{2, 17, 100, 1000, 5000}[generator() % 5];
    const auto logits = random_logits(vocab_size, static_cast<uint32_t>(trial), 2.0f);
    const size_t listed = std::min<size_t>(16, static_cast<size_t>(vocab_size));
    const Proposal proposal =
        make_proposal(logits, trial % 3 == 0 ? 0 : listed, static_cast<uint32_t>(trial));
    RowSampling row = kSettings[generator() % 6];
    row.seed = generator();
    row.position = static_cast<uint32_t>(trial);
    row.num_logprobs = trial % 4;
    row.draft_token = trial % 5 == 0 ? static_cast<int32_t>(generator() % vocab_size)
                                     : proposal.draw(uniform(row.seed, kDraftStream, 0));
    proposal.put_into(row);
    SCOPED_TRACE(trial);
    expect_same(sample(logits, {row}, 3), sample_by(sampling_ref, logits, row, 3));
    if (HasFatalFailure()) return;
  }
}

// Rejected rows of a vocabulary that takes several rounds to search.
TEST(VerifySampling, draws_what_the_reference_draws_from_a_large_flat_row) {
  constexpr int64_t kVocab = 70001;
  const auto logits = random_logits(kVocab, 91, 0.5f);
  const Proposal listed = make_proposal(logits, 16, 92), dense = make_proposal(logits, 0, 93);
  for (uint32_t position = 0; position < 12; ++position) {
    RowSampling row{.temperature = 1, .seed = 94, .position = position};
    const Proposal& proposal = position % 2 == 0 ? listed : dense;
    row.draft_token = proposal.token(position);
    proposal.put_into(row);
    expect_same(sample(logits, {row}), sample_by(sampling_ref, logits, row, 0));
  }
}

}  // namespace
}  // namespace dhs
