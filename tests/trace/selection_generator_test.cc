#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "dhisparse/trace.h"
#include "trace/selections.h"

namespace dhs {
namespace {

using Selections = std::vector<std::vector<int32_t>>;

SelectionProfile small_profile() { return test::scaled_profile(128, 4); }

std::vector<Selections> run(const SelectionProfile& profile, uint64_t seed, int32_t num_tokens,
                            int num_steps) {
  const SelectionModel model(profile);
  SelectionGenerator generator(model, seed, num_tokens);
  std::vector<Selections> steps;
  for (int i = 0; i < num_steps; ++i) steps.push_back(test::next_selections(generator, profile));
  return steps;
}

// The contract of next() for one selection of a query row at `query`.
void expect_contract(const std::vector<int32_t>& selection, const SelectionProfile& profile,
                     int32_t query) {
  const int32_t num_visible = query + 1;
  ASSERT_EQ(std::ssize(selection), std::min(profile.top_k, num_visible));
  ASSERT_TRUE(std::is_sorted(selection.begin(), selection.end()));
  ASSERT_EQ(std::set<int32_t>(selection.begin(), selection.end()).size(), selection.size());
  ASSERT_GE(selection.front(), 0);
  ASSERT_EQ(selection.back(), query);
  const std::set<int32_t> chosen(selection.begin(), selection.end());
  for (int32_t row = 0; row < std::min(profile.num_sinks, num_visible); ++row) {
    ASSERT_TRUE(chosen.count(row)) << "sink " << row;
  }
  for (int32_t row = std::max(0, num_visible - profile.num_recent); row < num_visible; ++row) {
    ASSERT_TRUE(chosen.count(row)) << "recent row " << row << " of " << num_visible;
  }
}

TEST(SelectionGenerator, selects_distinct_visible_rows_in_ascending_order) {
  const SelectionProfile profile = small_profile();
  for (int32_t num_tokens : {0, 1, 100, 126, 127, 128, 140, 1000}) {
    int32_t query = num_tokens;
    for (const Selections& step : run(profile, 3, num_tokens, 60)) {
      for (const auto& selection : step) expect_contract(selection, profile, query);
      ++query;
    }
  }
}

TEST(SelectionGenerator, pads_behind_the_visible_rows) {
  const SelectionProfile profile = small_profile();
  const SelectionModel model(profile);
  SelectionGenerator generator(model, 1, 2);
  std::vector<int32_t> flat(static_cast<size_t>(profile.num_groups) * profile.top_k, 77);
  generator.next(view(flat.data(), profile.num_groups, profile.top_k));
  EXPECT_EQ(generator.num_tokens(), 3);
  for (int i = 0; i < profile.top_k; ++i) EXPECT_EQ(flat[i], i < 3 ? i : -1);
}

TEST(SelectionGenerator, saturated_and_almost_constant_groups_keep_the_contract) {
  SelectionProfile profile = small_profile();
  profile.group_spread = 1e4;
  profile.locality = kWideLocality;
  for (int32_t num_tokens : {200, 4000}) {
    int32_t query = num_tokens;
    for (const Selections& step : run(profile, 4, num_tokens, 200)) {
      for (const auto& selection : step) expect_contract(selection, profile, query);
      ++query;
    }
  }
}

TEST(SelectionGenerator, equal_seeds_give_equal_selections_and_different_ones_do_not) {
  const SelectionProfile profile = small_profile();
  EXPECT_EQ(run(profile, 5, 900, 20), run(profile, 5, 900, 20));
  EXPECT_NE(run(profile, 5, 900, 20), run(profile, 6, 900, 20));
}

// Changes only with the process itself: the bits are promised for every machine.
TEST(SelectionGenerator, gives_the_positions_it_gave_on_other_machines) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over the positions
  for (const Selections& step : run(small_profile(), 7, 6000, 450)) {
    for (const auto& selection : step) {
      for (int32_t position : selection) {
        hash = (hash ^ static_cast<uint64_t>(position)) * 0x100000001b3;
      }
    }
  }
  EXPECT_EQ(hash, 0xf86ea6dca2730538u);
}

TEST(SelectionGenerator, rejected_tokens_are_taken_back_and_their_steps_count) {
  const SelectionProfile profile = small_profile();
  const SelectionModel model(profile);
  SelectionGenerator generator(model, 8, 1000);
  Selections before = test::next_selections(generator, profile);
  std::vector<std::vector<int32_t>> drafts;
  for (int round = 0; round < 50; ++round) {
    const int32_t first = generator.num_tokens();
    for (int draft = 0; draft < 4; ++draft) {
      const Selections selections = test::next_selections(generator, profile);
      for (const auto& selection : selections) expect_contract(selection, profile, first + draft);
    }
    generator.reject(round % 5);
    EXPECT_EQ(generator.num_tokens(), first + 4 - round % 5);
  }
  SelectionGenerator again(model, 8, 1000);
  test::next_selections(again, profile);
  const Selections once = test::next_selections(again, profile);
  again.reject(1);
  EXPECT_NE(test::next_selections(again, profile), once) << "a rejected step was repeated";
}

TEST(SelectionGenerator, lists_what_a_group_drew_last_before_all_other_rows) {
  const SelectionProfile profile = small_profile();
  const SelectionModel model(profile);
  SelectionGenerator generator(model, 5, 4000);
  Selections latest;
  for (int i = 0; i < 20; ++i) latest = test::next_selections(generator, profile);
  const int32_t first_recent = generator.num_tokens() - profile.num_recent;
  for (int32_t group = 0; group < profile.num_groups; ++group) {
    const std::vector<int32_t> rows = generator.rows_by_recency(group);
    EXPECT_EQ(std::ssize(rows), first_recent - profile.num_sinks);
    EXPECT_EQ(std::set<int32_t>(rows.begin(), rows.end()).size(), rows.size());
    std::set<int32_t> drawn(latest[group].begin(), latest[group].end());
    std::erase_if(drawn,
                  [&](int32_t row) { return row < profile.num_sinks || row >= first_recent; });
    const std::set<int32_t> top(rows.begin(), rows.begin() + std::ssize(drawn));
    EXPECT_EQ(top, drawn) << "group " << group;
  }
}

TEST(SelectionGeneratorDeathTest, tokens_of_the_prompt_cannot_be_rejected) {
  const SelectionModel model(small_profile());
  SelectionGenerator generator(model, 1, 1000);
  test::next_selections(generator, model.profile());
  EXPECT_DEATH(generator.reject(2), "2 rejected tokens of 1");
}

// Of the rows two groups draw, the share that both have; mean over pairs and steps.
double shared_share(const SelectionProfile& profile) {
  double sum = 0;
  int num_pairs = 0;
  const std::vector<Selections> steps = run(profile, 9, test::scaled_context(profile), 400);
  const int32_t num_fixed = profile.num_recent + profile.num_sinks;
  for (size_t step = 200; step < steps.size(); step += 20) {
    for (int a = 1; a < profile.num_groups; ++a) {
      for (int b = a + 1; b < profile.num_groups; ++b) {
        std::vector<int32_t> both;
        std::set_intersection(steps[step][a].begin(), steps[step][a].end(), steps[step][b].begin(),
                              steps[step][b].end(), std::back_inserter(both));
        sum += static_cast<double>(std::ssize(both) - num_fixed) / (profile.top_k - num_fixed);
        ++num_pairs;
      }
    }
  }
  return sum / num_pairs;
}

TEST(SelectionGenerator, groups_share_two_draws_of_five) {
  SelectionProfile profile = test::scaled_profile(128, 11);
  EXPECT_NEAR(shared_share(profile), 0.40, 0.05);
  profile.shared_share = 0;
  EXPECT_LT(shared_share(profile), 0.10);
}

}  // namespace
}  // namespace dhs
