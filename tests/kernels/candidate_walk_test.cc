#include "kernels/candidate_walk/candidate_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/sampling/sampling.h"
#include "kernels/statistics.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Walked {
  std::vector<int32_t> drafts;
  std::vector<float> probabilities, confidence;
};

struct WalkCase {
  int64_t num_blocks = 1, num_drafts = 1, num_candidates = 1, rank = 1;
  std::vector<float> values, hidden, predecessor, successor;
  std::vector<int32_t> tokens, anchors;
  std::vector<ProposalSampling> sampling;
  bool is_bf16 = false;

  struct Pointers {
    const float *values, *hidden;
    const int32_t *tokens, *anchors;
    const void *predecessor, *successor;
    const ProposalSampling* sampling;
  };
  struct Outputs {
    int32_t* drafts;
    float *probabilities, *confidence;
  };
  CandidateWalkParams params(const Pointers& in, const Outputs& out) const {
    const int64_t rows = num_blocks * num_drafts;
    return {.values = view(in.values, rows, num_candidates),
            .tokens = view(in.tokens, rows, num_candidates),
            .hidden = view(in.hidden, rows, rank),
            .codebook_dtype = is_bf16 ? DType::kBf16 : DType::kF32,
            .predecessor = in.predecessor,
            .successor = in.successor,
            .anchors = view(in.anchors, num_blocks),
            .sampling = view(in.sampling, num_blocks),
            .drafts = view(out.drafts, num_blocks, num_drafts),
            .probabilities = view(out.probabilities, rows, num_candidates),
            .confidence = view(out.confidence, num_blocks, num_drafts)};
  }
  std::vector<Bf16> rounded(const std::vector<float>& from) const {
    std::vector<Bf16> to(from.size());
    convert_to_bf16(from.data(), static_cast<int64_t>(from.size()), to.data());
    return to;
  }
  size_t num_rows() const { return static_cast<size_t>(num_blocks * num_drafts); }

  Walked walk() const {
    const test::DeviceArray<float> device_values(values), device_hidden(hidden),
        device_predecessor(predecessor), device_successor(successor),
        probabilities(values.size(), -7.0f), confidence(num_rows(), -7.0f);
    const test::DeviceArray<Bf16> narrow_predecessor(rounded(predecessor)),
        narrow_successor(rounded(successor));
    const test::DeviceArray<int32_t> device_tokens(tokens), device_anchors(anchors),
        drafts(num_rows(), -7);
    const test::DeviceArray<ProposalSampling> device_sampling(sampling);
    const void* codebooks[] = {device_predecessor.data(), device_successor.data()};
    const void* narrow[] = {narrow_predecessor.data(), narrow_successor.data()};
    launch_candidate_walk(params({device_values.data(), device_hidden.data(), device_tokens.data(),
                                  device_anchors.data(), is_bf16 ? narrow[0] : codebooks[0],
                                  is_bf16 ? narrow[1] : codebooks[1], device_sampling.data()},
                                 {drafts.data(), probabilities.data(), confidence.data()}),
                          test::stream());
    return {drafts.download(), probabilities.download(), confidence.download()};
  }
  Walked walk_ref() const {
    Walked out{std::vector<int32_t>(num_rows(), -7), std::vector<float>(values.size(), -7.0f),
               std::vector<float>(num_rows(), -7.0f)};
    const auto narrow_predecessor = rounded(predecessor), narrow_successor = rounded(successor);
    const void* codebooks[] = {predecessor.data(), successor.data()};
    const void* narrow[] = {narrow_predecessor.data(), narrow_successor.data()};
    candidate_walk_ref(params(
        {values.data(), hidden.data(), tokens.data(), anchors.data(),
         is_bf16 ? narrow[0] : codebooks[0], is_bf16 ? narrow[1] : codebooks[1], sampling.data()},
        {out.drafts.data(), out.probabilities.data(), out.confidence.data()}));
    return out;
  }
};

std::vector<float> random_floats(size_t count, std::mt19937& generator, float spread) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

struct WalkShape {
  int64_t num_blocks, num_drafts, num_candidates, rank;
  int32_t vocab_size;
};

WalkCase random_case(const WalkShape& shape, uint32_t seed, float temperature) {
  std::mt19937 generator(seed);
  WalkCase made{shape.num_blocks,
                shape.num_drafts,
                shape.num_candidates,
                shape.rank,
                {},
                {},
                {},
                {},
                {},
                {},
                {}};
  const size_t rows = made.num_rows(), count = rows * static_cast<size_t>(shape.num_candidates);
  made.values = random_floats(count, generator, 1.5f);
  made.hidden = random_floats(rows * static_cast<size_t>(shape.rank), generator, 1.0f);
  const auto codebook = static_cast<size_t>(shape.vocab_size * shape.rank);
  const float spread = 1 / std::pow(static_cast<float>(shape.rank), 0.25f);
  made.predecessor = random_floats(codebook, generator, spread);
  made.successor = random_floats(codebook, generator, spread);
  std::vector<int32_t> vocabulary(static_cast<size_t>(shape.vocab_size));
  std::iota(vocabulary.begin(), vocabulary.end(), 0);
  for (size_t row = 0; row < rows; ++row) {
    const auto first = static_cast<int64_t>(row) * shape.num_candidates;
    std::sort(made.values.begin() + first, made.values.begin() + first + shape.num_candidates,
              std::greater<>());
    std::shuffle(vocabulary.begin(), vocabulary.end(), generator);
    made.tokens.insert(made.tokens.end(), vocabulary.begin(),
                       vocabulary.begin() + shape.num_candidates);
  }
  for (int64_t b = 0; b < shape.num_blocks; ++b) {
    made.anchors.push_back(static_cast<int32_t>(generator() % shape.vocab_size));
    made.sampling.push_back({temperature, generator(), static_cast<uint32_t>(generator() % 1000)});
  }
  return made;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6) << i;
}

TEST(CandidateWalk, equals_the_reference) {
  const WalkShape shapes[] = {{1, 1, 1, 1, 3},
                              {3, 7, 16, 256, 64},
                              {2, 3, 64, 33, 64},
                              {5, 15, 4, 8, 20},
                              {1, 4, 10, 100, 10}};
  for (const WalkShape& shape : shapes) {
    for (float temperature : {0.0f, 0.3f, 1.0f, 4.0f}) {
      auto test = random_case(shape, 1 + static_cast<uint32_t>(shape.rank), temperature);
      for (bool is_bf16 : {false, true}) {
        test.is_bf16 = is_bf16;
        const Walked got = test.walk(), want = test.walk_ref();
        ASSERT_EQ(got.drafts, want.drafts) << shape.rank << " at " << temperature;
        expect_near(got.probabilities, want.probabilities);
        expect_near(got.confidence, want.confidence);
      }
    }
  }
}

// Rank 1, tokens 0 to 3; the edge from token p to c adds predecessor[p] * successor[c].
WalkCase small_case(const std::vector<float>& values, const std::vector<float>& predecessor,
                    const std::vector<float>& successor) {
  WalkCase made;
  made.num_drafts = 2;
  made.num_candidates = 2;
  made.values = values;
  made.tokens = {0, 1, 2, 3};
  made.hidden = {1, 1};
  made.predecessor = predecessor;
  made.successor = successor;
  made.anchors = {3};
  made.sampling = {{}};
  return made;
}

TEST(CandidateWalk, takes_the_best_next_token_not_the_best_path) {
  // 0 beats 1 by 1, but 1 leads to an edge of 10.
  const auto test = small_case({2, 1, 1, 0}, {0, 10, 0, 0}, {0, 0, 0, 1});
  const Walked got = test.walk();
  EXPECT_EQ(got.drafts, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(got.probabilities, (std::vector<float>{1, 0, 1, 0}));
}

TEST(CandidateWalk, follows_the_edges_of_the_token_before) {
  const auto test = small_case({1, 2, 1, 0}, {0, 10, 0, 0}, {0, 0, 0, 1});
  EXPECT_EQ(test.walk().drafts, (std::vector<int32_t>{1, 3}));
  auto from_anchor = small_case({2, 1, 1, 0}, {0, 0, 0, 5}, {0, 1, 0, 0});
  EXPECT_EQ(from_anchor.walk().drafts[0], 1);
  from_anchor.anchors = {2};
  EXPECT_EQ(from_anchor.walk().drafts[0], 0);
}

TEST(CandidateWalk, gives_ties_to_the_first_of_the_list) {
  auto test = small_case({1, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 0, 0});  // both edges of row 1 give 1
  test.tokens = {0, 1, 3, 2};
  EXPECT_EQ(test.walk().drafts, (std::vector<int32_t>{0, 3}));
}

TEST(CandidateWalk, gives_probabilities_that_sum_to_one) {
  for (float temperature : {0.0f, 1e-30f, 0.5f, 1.0f, 100.0f}) {
    const auto test = random_case({2, 5, 16, 32, 40}, 17, temperature);
    const Walked got = test.walk();
    for (size_t row = 0; row < test.num_rows(); ++row) {
      const auto begin = got.probabilities.begin() + static_cast<int64_t>(row) * 16;
      EXPECT_NEAR(std::accumulate(begin, begin + 16, 0.0), 1, 1e-6);
      const auto listed = test.tokens.begin() + static_cast<int64_t>(row) * 16;
      const auto place = std::find(listed, listed + 16, got.drafts[row]) - listed;
      ASSERT_LT(place, 16);
      EXPECT_GT(begin[place], 0.0f);
    }
  }
}

// Blocks that differ in their position only: each path must come up as often as its probability.
TEST(CandidateWalk, draws_paths_with_the_probabilities_of_the_softmax) {
  constexpr int64_t kNumBlocks = test::kOnCuda ? 400 : 100000;
  constexpr size_t kCandidates = 4;
  for (float temperature : {0.7f, 1.0f, 2.0f}) {
    const auto one = random_case({1, 2, kCandidates, 8, 12}, 23, temperature);
    WalkCase many = one;
    many.num_blocks = kNumBlocks;
    auto repeat = [](auto& list) {
      const auto unit = list;
      for (int64_t i = 1; i < kNumBlocks; ++i) list.insert(list.end(), unit.begin(), unit.end());
    };
    repeat(many.values), repeat(many.hidden), repeat(many.tokens), repeat(many.anchors);
    repeat(many.sampling);
    for (size_t b = 0; b < kNumBlocks; ++b)
      many.sampling[b].position = static_cast<uint32_t>(2 * b);
    const Walked got = many.walk();
    std::map<int32_t, int> counts;
    std::vector<double> expected(kCandidates * kCandidates);
    for (size_t b = 0; b < kNumBlocks; ++b) {
      size_t path = 0;
      double probability = 1;
      for (size_t d = 0; d < 2; ++d) {
        const auto listed = one.tokens.begin() + static_cast<int64_t>(d * kCandidates);
        const auto place = std::find(listed, listed + kCandidates, got.drafts[2 * b + d]) - listed;
        path = path * kCandidates + static_cast<size_t>(place);
        probability *= got.probabilities[(2 * b + d) * kCandidates + static_cast<size_t>(place)];
      }
      ++counts[static_cast<int32_t>(path)];
      expected[path] = probability;
    }
    const double p_value = p_value_of(counts, expected, kNumBlocks);
    RecordProperty("p_at_" + std::to_string(temperature), std::to_string(p_value));
    EXPECT_GT(p_value, 1e-4) << temperature;
    EXPECT_NEAR(std::accumulate(expected.begin(), expected.end(), 0.0), 1, 0.05);
  }
}

TEST(CandidateWalk, gives_a_confidence_that_depends_on_earlier_tokens_only) {
  auto test = random_case({1, 6, 8, 16, 30}, 29, 1.5f);
  std::map<std::vector<int32_t>, float> confidence_after;
  int num_seen_again = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    test.sampling[0].seed = seed;
    const Walked got = test.walk();
    for (size_t d = 0; d < 6; ++d) {
      const std::vector<int32_t> before(got.drafts.begin(),
                                        got.drafts.begin() + static_cast<int64_t>(d));
      const auto [found, is_new] = confidence_after.try_emplace(before, got.confidence[d]);
      num_seen_again += is_new ? 0 : 1;
      EXPECT_EQ(found->second, got.confidence[d]);
    }
  }
  EXPECT_GT(num_seen_again, 60);
  EXPECT_GT(confidence_after.size(), 60u);
}

TEST(CandidateWalk, gives_the_same_confidence_at_every_temperature_on_the_same_path) {
  const auto greedy = random_case({3, 1, 8, 16, 30}, 31, 0.0f);
  auto drawn = greedy;
  for (auto& sampling : drawn.sampling) sampling.temperature = 3;
  EXPECT_EQ(greedy.walk().confidence, drawn.walk().confidence);
}

TEST(CandidateWalk, survives_what_is_no_number) {
  auto test = small_case({kNan, 1, -kInfinity, kNan}, {0, 0, 0, 0}, {0, 0, 0, 0});
  for (float temperature : {0.0f, 1.0f}) {
    test.sampling[0].temperature = temperature;
    const Walked got = test.walk();
    EXPECT_EQ(got.drafts, (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(got.probabilities, (std::vector<float>{0, 1, 1, 0}));
    EXPECT_EQ(got.confidence, (std::vector<float>{1, 0}));
  }
}

TEST(CandidateWalk, leaves_padding_blocks_without_drafts) {
  auto test = random_case({3, 4, 5, 8, 20}, 37, 1.0f);
  const Walked all = test.walk();
  test.anchors[1] = -1;
  const Walked got = test.walk();
  for (size_t i = 0; i < 12; ++i) {
    const bool is_padding = i / 4 == 1;
    EXPECT_EQ(got.drafts[i], is_padding ? -1 : all.drafts[i]);
    EXPECT_EQ(got.confidence[i], is_padding ? 0 : all.confidence[i]);
    EXPECT_EQ(got.probabilities[i * 5], is_padding ? 0 : all.probabilities[i * 5]);
  }
}

TEST(CandidateWalk, accepts_zero_blocks) {
  EXPECT_TRUE(random_case({0, 3, 4, 8, 10}, 1, 0.0f).walk().drafts.empty());
}

}  // namespace
}  // namespace dhs
