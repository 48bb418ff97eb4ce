// What the scheduler learns of a draft.
#include <gtest/gtest.h>

#include "dhisparse/config.h"

namespace dhs {
namespace {

SchedulerConfig applied(const DraftConfig& draft, int num_proposed) {
  SchedulerConfig scheduler;
  apply_draft(draft, num_proposed, scheduler);
  return scheduler;
}

TEST(ApplyDraft, without_a_draft_nothing_is_verified) {
  EXPECT_EQ(applied({.max_tokens = 5}, 7).num_draft_tokens, 0);
  EXPECT_FALSE(applied({}, 7).is_draft_length_adaptive);
}

TEST(ApplyDraft, auto_is_adaptive_up_to_what_is_proposed) {
  const SchedulerConfig scheduler = applied({.kind = DraftKind::kDflash2}, 7);
  EXPECT_EQ(scheduler.num_draft_tokens, 7);
  EXPECT_TRUE(scheduler.is_draft_length_adaptive);
  EXPECT_EQ(scheduler.ngram_max, 0) << "the executor proposes";
}

TEST(ApplyDraft, a_number_is_fixed_and_no_more_than_is_proposed) {
  const SchedulerConfig few = applied({.kind = DraftKind::kDspark, .max_tokens = 3}, 5);
  EXPECT_EQ(few.num_draft_tokens, 3);
  EXPECT_FALSE(few.is_draft_length_adaptive);
  EXPECT_EQ(applied({.kind = DraftKind::kDspark, .max_tokens = 9}, 5).num_draft_tokens, 5);
}

TEST(ApplyDraft, prompt_lookup_proposes_any_number) {
  const DraftConfig draft = {.kind = DraftKind::kNgram, .ngram_min = 1, .ngram_max = 3};
  EXPECT_EQ(applied(draft, 0).num_draft_tokens, kNgramTokens);
  EXPECT_EQ(applied(draft, 0).ngram_min, 1);
  EXPECT_EQ(applied(draft, 0).ngram_max, 3);
  const DraftConfig fixed = {.kind = DraftKind::kNgram, .max_tokens = 20};
  EXPECT_EQ(applied(fixed, 0).num_draft_tokens, 20);
}

}  // namespace
}  // namespace dhs
