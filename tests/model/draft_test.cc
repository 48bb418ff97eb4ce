// Drafts against vectors of independent implementations, and against themselves: what they propose
// depends on the sequence's tokens only.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "golden_vectors.h"
#include "model_harness.h"

namespace dhs {
namespace {

constexpr double kTolerance = 1e-4;

std::string draft_dir(const std::string& name) { return golden_model_dir("../draft/" + name); }
GoldenVectors draft_vectors(const std::string& name) {
  return GoldenVectors("../../draft/vectors/" + name);
}

struct Case {
  std::string name;
  DraftKind kind;
};

HarnessOptions options_of(const Case& test) {
  HarnessOptions options;
  options.draft = {.kind = test.kind, .path = draft_dir(test.name)};
  return options;
}

std::unique_ptr<ModelHarness> load(const Case& test) {
  const bool is_mtp = test.kind == DraftKind::kMtp;
  return ModelHarness::load(is_mtp ? draft_dir(test.name) : golden_model_dir("glm_share"),
                            options_of(test));
}

// Computes up to `end` tokens of the sequence in pieces of at most `chunk`.
void compute_until(ModelHarness& harness, HarnessSequence& sequence, int64_t end, int64_t chunk) {
  while (sequence.num_computed < end) {
    harness.step({&sequence}, {std::min(chunk, end - sequence.num_computed)});
  }
}

template <class T>
std::vector<T> part(const std::vector<T>& all, int64_t index, int64_t count) {
  const auto size = static_cast<int64_t>(all.size()) / count;
  return {all.begin() + index * size, all.begin() + (index + 1) * size};
}

std::vector<float> softmax(const std::vector<float>& scores, double temperature) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> mass;
  double total = 0;
  for (float score : scores) {
    mass.push_back(std::exp((score - largest) / temperature));
    total += mass.back();
  }
  std::vector<float> probabilities;
  for (double value : mass) probabilities.push_back(static_cast<float>(value / total));
  return probabilities;
}

class GoldenDraft : public testing::TestWithParam<Case> {};

TEST_P(GoldenDraft, proposes_what_the_vectors_say) {
  const GoldenVectors golden = draft_vectors(GetParam().name);
  const std::vector<int32_t> ids = golden.ints("input_ids");
  const std::vector<int32_t> anchors = golden.ints("anchors");
  const std::vector<int32_t> tokens = golden.ints("tokens");
  const auto num_anchors = std::ssize(anchors);
  for (int64_t chunk : {13, 1000, 5}) {
    if (test::kOnCuda && chunk != 13) continue;  // emulated kernels take their time
    SCOPED_TRACE(chunk);
    auto harness = load(GetParam());
    ASSERT_NE(harness, nullptr);
    const auto num_golden = std::ssize(tokens) / num_anchors;
    ASSERT_GE(harness->draft().num_proposals, num_golden);
    HarnessSequence sequence = harness->start({ids.begin(), ids.end()}, std::ssize(ids) + 20);
    for (int64_t i = 0; i < num_anchors; ++i) {
      compute_until(*harness, sequence, anchors[i], chunk);
      HarnessProposals proposals = harness->propose({&sequence});
      proposals.drafts[0].resize(num_golden);
      EXPECT_EQ(proposals.drafts[0], part(tokens, i, num_anchors)) << "anchor " << anchors[i];
      if (!golden.has("confidence")) continue;
      EXPECT_LE(relative_error(proposals.confidence[0],
                               part(golden.floats("confidence"), i, num_anchors)),
                kTolerance);
    }
  }
}

// The distribution of the first draft depends on the anchor only.
TEST_P(GoldenDraft, draws_from_the_distribution_that_it_reports) {
  const GoldenVectors golden = draft_vectors(GetParam().name);
  const bool has_edges = golden.has("edge_scores");
  if (!has_edges && !golden.has("corrected")) GTEST_SKIP() << "its drafts are chosen, not drawn";
  const std::vector<float> scores = golden.floats(has_edges ? "edge_scores" : "corrected");
  const std::vector<int32_t> ids = golden.ints("input_ids");
  const std::vector<int32_t> anchors = golden.ints("anchors");
  const auto num_anchors = std::ssize(anchors);
  constexpr float kTemperature = 0.7f;
  auto harness = load(GetParam());
  ASSERT_NE(harness, nullptr);
  const int64_t num_proposals = harness->draft().num_proposals;
  HarnessSequence sequence = harness->start({ids.begin(), ids.end()}, std::ssize(ids) + 20);
  for (int64_t i = 0; i < num_anchors; ++i) {
    compute_until(*harness, sequence, anchors[i], 1000);
    const HarnessProposals proposals = harness->propose({&sequence}, kTemperature, 17);
    const auto q = part(proposals.probabilities[0], 0, num_proposals);
    EXPECT_LE(relative_error(
                  q, softmax(part(part(scores, i, num_anchors), 0, num_proposals), kTemperature)),
              kTolerance);
    for (int64_t d = 0; d < num_proposals; ++d) {
      const auto distribution = part(proposals.probabilities[0], d, num_proposals);
      double sum = 0;
      for (float p : distribution) sum += p;
      EXPECT_NEAR(sum, 1, 1e-5);
      int64_t place = proposals.drafts[0][d];
      if (has_edges) {
        const auto candidates = part(proposals.candidates[0], d, num_proposals);
        place = std::find(candidates.begin(), candidates.end(), proposals.drafts[0][d]) -
                candidates.begin();
        ASSERT_LT(place, std::ssize(candidates)) << "a draft that is no candidate";
      }
      EXPECT_GT(distribution[place], 0) << "draft " << d;
    }
  }
}

TEST_P(GoldenDraft, taps_the_layers_that_it_was_trained_on) {
  const GoldenVectors golden = draft_vectors(GetParam().name);
  const bool is_mtp = GetParam().kind == DraftKind::kMtp;
  const std::vector<int32_t> ids = golden.ints("input_ids");
  auto harness = load(GetParam());
  ASSERT_NE(harness, nullptr);
  HarnessSequence sequence = harness->start({ids.begin(), ids.end()}, std::ssize(ids));
  harness->step({&sequence}, {std::ssize(ids)});
  const auto taps = harness->target().taps();
  EXPECT_LE(relative_error({taps.data, taps.data + taps.sizes[0] * taps.sizes[1]},
                           golden.floats(is_mtp ? "hidden" : "taps")),
            kTolerance);
}

// A step verifies drafts of which the first `num_accepted` are what follows, the others are not.
void verify_some(ModelHarness& harness, HarnessSequence& sequence, int64_t num_drafts,
                 int64_t num_accepted) {
  const std::vector<TokenId> tokens = sequence.tokens;
  const int64_t first_wrong = sequence.num_computed + 1 + num_accepted;
  for (int64_t i = first_wrong; i <= sequence.num_computed + num_drafts; ++i) {
    sequence.tokens[i] = (tokens[i] + 1) % 240;
  }
  harness.step({&sequence}, {1 + num_drafts});
  sequence.tokens = tokens;
  sequence.num_computed = first_wrong;
}

// [num_computed, width] of a layer, as far as the sequence has pages; elsewhere as in `golden`.
std::vector<float> kept(ModelHarness& harness, const HarnessSequence& sequence, int32_t layer,
                        bool is_value, std::vector<float> golden) {
  const DraftPageLayout& layout = harness.draft().page;
  golden.resize(sequence.num_computed * layout.width());
  for (int64_t position = 0; position < sequence.num_computed; ++position) {
    const int32_t page = sequence.memory.draft_pages()[position / kHostBlockTokens];
    if (page < 0) continue;
    std::memcpy(golden.data() + position * layout.width(),
                harness.store().draft_pages().at(page) +
                    layout.offset(layer, is_value, position % kHostBlockTokens),
                layout.token_bytes());
  }
  return golden;
}

TEST_P(GoldenDraft, keeps_the_keys_and_values_of_accepted_tokens) {
  if (GetParam().kind == DraftKind::kMtp) GTEST_SKIP() << "its rows are the store's, not pages";
  const GoldenVectors golden = draft_vectors(GetParam().name);
  const std::vector<int32_t> ids = golden.ints("input_ids");
  auto harness = load(GetParam());
  ASSERT_NE(harness, nullptr);
  ASSERT_EQ(harness->draft().page.dtype, DType::kF32);
  HarnessSequence sequence = harness->start({ids.begin(), ids.end()}, std::ssize(ids) + 20);
  compute_until(*harness, sequence, 20, 13);
  const std::pair<int64_t, int64_t> rounds[] = {{4, 2}, {4, 0}, {3, 3}, {0, 0}, {4, 1}};
  for (const auto& [num_drafts, num_accepted] : rounds) {
    verify_some(*harness, sequence, num_drafts, num_accepted);
  }
  ASSERT_EQ(sequence.num_computed, 31);
  ASSERT_GE(sequence.memory.draft_pages()[0], 0);
  for (int32_t layer = 0; layer < harness->draft().page.num_layers; ++layer) {
    for (const bool is_value : {false, true}) {
      std::vector<float> want =
          golden.floats(absl::StrCat("layers.", layer, is_value ? ".v" : ".k"));
      const std::vector<float> got = kept(*harness, sequence, layer, is_value, want);
      want.resize(got.size());
      EXPECT_LE(relative_error(got, want), kTolerance) << "layer " << layer << is_value;
    }
  }
}

// A step verifies drafts after the committed tokens of every sequence, of which the target accepts
// some.
void verify(ModelHarness& harness, const std::vector<HarnessSequence*>& sequences,
            int64_t num_drafts, int64_t num_accepted) {
  for (HarnessSequence* sequence : sequences) {
    const auto num_committed = std::ssize(sequence->tokens);
    for (int64_t i = 0; i < num_drafts; ++i) {
      sequence->tokens.push_back(static_cast<TokenId>((37 * num_committed + 11 * i) % 240));
    }
  }
  harness.step(sequences, std::vector<int64_t>(sequences.size(), 1 + num_drafts));
  for (HarnessSequence* sequence : sequences) {
    const int64_t num_rejected = num_drafts - num_accepted;
    sequence->num_computed -= num_rejected;
    sequence->latest_row -= static_cast<int32_t>(num_rejected);
    sequence->tokens.resize(sequence->tokens.size() - num_rejected);
    sequence->tokens.push_back(static_cast<TokenId>((53 * std::ssize(sequence->tokens)) % 240));
  }
}

void expect_same(const HarnessProposals& got, const HarnessProposals& want, size_t which) {
  EXPECT_EQ(got.drafts[which], want.drafts[0]);
  EXPECT_EQ(got.confidence[which], want.confidence[0]);
  EXPECT_EQ(got.candidates[which], want.candidates[0]);
  EXPECT_EQ(got.probabilities[which], want.probabilities[0]);
}

// Rejected drafts leave no trace, nor does what an MTP layer kept of a row beside one; nor does it
// matter who else is in the batch.
TEST_P(GoldenDraft, proposals_do_not_depend_on_how_the_tokens_came_about) {
  const std::vector<int32_t> ids = draft_vectors(GetParam().name).ints("input_ids");
  auto harness = load(GetParam());
  ASSERT_NE(harness, nullptr);
  std::vector<HarnessSequence> sequences;
  for (int64_t length : {9, 30, 61}) {
    sequences.push_back(harness->start({ids.begin(), ids.begin() + length}, 100));
    compute_until(*harness, sequences.back(), length - 1, 16);
  }
  std::vector<std::pair<int64_t, int64_t>> rounds = {{4, 2}, {3, 0}, {3, 3}, {0, 0}, {4, 1}};
  if (test::kOnCuda) rounds.resize(1);
  for (const auto& [num_drafts, num_accepted] : rounds) {
    const std::vector<HarnessSequence*> all = {&sequences[0], &sequences[1], &sequences[2]};
    verify(*harness, all, num_drafts, num_accepted);
    const HarnessProposals got = harness->propose(all, 0.9f, 5);
    for (size_t s = 0; s < sequences.size(); ++s) {
      SCOPED_TRACE(s);
      auto other = load(GetParam());
      HarnessSequence fresh = other->start(sequences[s].tokens, 100);
      compute_until(*other, fresh, std::ssize(fresh.tokens) - 1, 1000);
      expect_same(got, other->propose({&fresh}, 0.9f, 5), s);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GoldenDraft,
    testing::Values(
        Case{"dflash_full", DraftKind::kDflash}, Case{"dflash_swa", DraftKind::kDflash},
        Case{"dflash_causal", DraftKind::kDflash}, Case{"dflash2", DraftKind::kDflash2},
        Case{"dflash2_kw3", DraftKind::kDflash2}, Case{"dspark_vanilla", DraftKind::kDspark},
        Case{"dspark_gated", DraftKind::kDspark}, Case{"dspark_rnn", DraftKind::kDspark},
        Case{"dspark_speculators", DraftKind::kDspark}, Case{"dspark_fill_in", DraftKind::kDspark},
        Case{"mtp_glm", DraftKind::kMtp}, Case{"mtp_dsv32", DraftKind::kMtp}),
    [](const auto& info) { return info.param.name; });

TEST(GoldenConfidence, is_scaled_by_the_temperature_of_its_position) {
  const GoldenVectors golden = draft_vectors("dspark_rnn");
  HarnessOptions options = options_of({"dspark_rnn", DraftKind::kDspark});
  options.confidence_temperatures = golden.floats("sts_temperatures");
  auto harness = ModelHarness::load(golden_model_dir("glm_share"), options);
  ASSERT_NE(harness, nullptr);
  const std::vector<int32_t> ids = golden.ints("input_ids");
  const std::vector<int32_t> anchors = golden.ints("anchors");
  HarnessSequence sequence = harness->start({ids.begin(), ids.end()}, std::ssize(ids) + 20);
  for (size_t i = 0; i < anchors.size(); ++i) {
    compute_until(*harness, sequence, anchors[i], 1000);
    EXPECT_LE(relative_error(harness->propose({&sequence}).confidence[0],
                             part(golden.floats("confidence_sts"), i, std::ssize(anchors))),
              kTolerance);
  }
}

}  // namespace
}  // namespace dhs
