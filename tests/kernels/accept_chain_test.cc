#include "kernels/accept_chain/accept_chain.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/test_memory.h"

namespace dhs {
namespace {

using test::DeviceArray;
using Ints = std::vector<int32_t>;

struct Chains {
  Ints first_row, drafts, drawn, positions;
};

struct Accepted {
  Ints num_accepted, newest, newest_position;
  bool operator==(const Accepted&) const = default;
};

AcceptChainParams params_of(const Chains& chains, const int32_t* const inputs[4],
                            int32_t* const outputs[3]) {
  const auto num_draws = static_cast<int64_t>(chains.positions.size());
  const auto num_rows = static_cast<int64_t>(chains.drafts.size());
  return {.first_row = view(inputs[0], num_draws + 1),
          .drafts = view(inputs[1], num_rows),
          .drawn = view(inputs[2], num_rows),
          .positions = view(inputs[3], num_draws),
          .num_accepted = view(outputs[0], num_draws),
          .newest = view(outputs[1], num_draws),
          .newest_position = view(outputs[2], num_draws)};
}

Accepted accept(const Chains& chains) {
  const DeviceArray<int32_t> first_row(chains.first_row), drafts(chains.drafts),
      drawn(chains.drawn), positions(chains.positions);
  const DeviceArray<int32_t> num_accepted(chains.positions.size(), -7),
      newest(chains.positions.size(), -7), newest_position(chains.positions.size(), -7);
  const int32_t* const inputs[4] = {first_row.data(), drafts.data(), drawn.data(),
                                    positions.data()};
  int32_t* const outputs[3] = {num_accepted.data(), newest.data(), newest_position.data()};
  launch_accept_chain(params_of(chains, inputs, outputs), test::stream());
  return {num_accepted.download(), newest.download(), newest_position.download()};
}

Accepted accept_ref(const Chains& chains) {
  const size_t num_draws = chains.positions.size();
  Accepted accepted{Ints(num_draws, -7), Ints(num_draws, -7), Ints(num_draws, -7)};
  const int32_t* const inputs[4] = {chains.first_row.data(), chains.drafts.data(),
                                    chains.drawn.data(), chains.positions.data()};
  int32_t* const outputs[3] = {accepted.num_accepted.data(), accepted.newest.data(),
                               accepted.newest_position.data()};
  accept_chain_ref(params_of(chains, inputs, outputs));
  return accepted;
}

TEST(AcceptChain, counts_leading_matches_and_names_the_token_after_them) {
  const Chains chains{.first_row = {0, 4, 8, 12, 13},
                      .drafts = {1, 2, 3, -1, 1, 2, 3, -1, 1, 2, 3, -1, -1},
                      .drawn = {1, 2, 3, 9, 1, 5, 3, 9, 8, 2, 3, 9, 4},
                      .positions = {10, 20, 30, 40}};
  const Accepted want{{3, 1, 0, 0}, {9, 5, 8, 4}, {13, 21, 30, 40}};
  EXPECT_EQ(accept(chains), want);
  EXPECT_EQ(accept_ref(chains), want);
}

TEST(AcceptChain, commits_all_rows_when_even_the_last_one_s_draft_stands) {
  const Chains chains{{0, 2}, {6, 7}, {6, 7}, {5}};
  const Accepted want{{1}, {7}, {6}};
  EXPECT_EQ(accept(chains), want);
  EXPECT_EQ(accept_ref(chains), want);
}

TEST(AcceptChain, stops_at_a_row_that_verifies_nothing) {
  const Chains chains{{0, 3}, {-1, 2, -1}, {1, 2, 3}, {0}};
  EXPECT_EQ(accept(chains), (Accepted{{0}, {1}, {0}}));
}

TEST(AcceptChain, marks_draws_without_rows_or_position_as_padding) {
  const Chains chains{{0, 0, 2, 3}, {4, -1, -1}, {4, 5, 6}, {3, -1, 8}};
  const Accepted want{{0, 0, 0}, {-1, -1, 6}, {-1, -1, 8}};
  EXPECT_EQ(accept(chains), want);
  EXPECT_EQ(accept_ref(chains), want);
}

TEST(AcceptChain, equals_the_reference_on_random_chains) {
  std::mt19937 random(3);
  Chains chains{.first_row = {0}};
  for (int32_t draw = 0; draw < 300; ++draw) {
    for (auto left = static_cast<int32_t>(random() % 9); left > 0; --left) {
      chains.drafts.push_back(left == 1 && random() % 4 != 0 ? -1
                                                             : static_cast<int32_t>(random() % 2));
      chains.drawn.push_back(static_cast<int32_t>(random() % 2));
    }
    chains.first_row.push_back(static_cast<int32_t>(chains.drafts.size()));
    chains.positions.push_back(static_cast<int32_t>(random() % 100) - 5);
  }
  EXPECT_EQ(accept(chains), accept_ref(chains));
}

TEST(AcceptChain, takes_no_draws_as_nothing_to_do) {
  EXPECT_TRUE(accept({.first_row = {0}}).newest.empty());
}

}  // namespace
}  // namespace dhs
