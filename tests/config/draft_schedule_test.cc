// What the scheduler learns of a draft.
#include <gtest/gtest.h>

#include "dhisparse/config.h"

namespace dhs {
namespace {

TEST(DraftSchedule, without_a_draft_nothing_is_verified) {
  EXPECT_EQ(draft_schedule({.max_tokens = 5}, 7).num_tokens, 0);
  EXPECT_FALSE(draft_schedule({}, 7).is_adaptive);
}

TEST(DraftSchedule, auto_is_adaptive_up_to_what_is_proposed) {
  const DraftSchedule schedule = draft_schedule({.kind = DraftKind::kDflash2}, 7);
  EXPECT_EQ(schedule.num_tokens, 7);
  EXPECT_TRUE(schedule.is_adaptive);
  EXPECT_EQ(schedule.num_lookahead_tokens, 0);
  EXPECT_EQ(schedule.ngram_max, 0) << "the executor proposes";
}

TEST(DraftSchedule, a_number_is_fixed_and_no_more_than_is_proposed) {
  const DraftSchedule few = draft_schedule({.kind = DraftKind::kDspark, .max_tokens = 3}, 5);
  EXPECT_EQ(few.num_tokens, 3);
  EXPECT_FALSE(few.is_adaptive);
  EXPECT_EQ(draft_schedule({.kind = DraftKind::kDspark, .max_tokens = 9}, 5).num_tokens, 5);
}

TEST(DraftSchedule, an_mtp_layer_writes_rows_for_what_it_proposes) {
  EXPECT_EQ(draft_schedule({.kind = DraftKind::kMtp}, 7).num_lookahead_tokens, 7);
  EXPECT_EQ(draft_schedule({.kind = DraftKind::kMtp, .max_tokens = 2}, 7).num_lookahead_tokens, 2);
}

TEST(DraftSchedule, prompt_lookup_proposes_any_number) {
  const DraftConfig draft = {.kind = DraftKind::kNgram, .ngram_min = 1, .ngram_max = 3};
  EXPECT_EQ(draft_schedule(draft, 0).num_tokens, kNgramTokens);
  EXPECT_EQ(draft_schedule(draft, 0).ngram_min, 1);
  EXPECT_EQ(draft_schedule(draft, 0).ngram_max, 3);
  const DraftConfig fixed = {.kind = DraftKind::kNgram, .max_tokens = 20};
  EXPECT_EQ(draft_schedule(fixed, 0).num_tokens, 20);
}

}  // namespace
}  // namespace dhs
