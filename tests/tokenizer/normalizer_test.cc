#include "tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include <string>

namespace dhs {
namespace {

TEST(Nfc, composes_decomposed_characters) {
  EXPECT_EQ(normalize_nfc("cafe\u0301 A\u030A"), "caf\u00E9 \u00C5");
  EXPECT_EQ(normalize_nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(normalize_nfc("\u212B\u2126"), "\u00C5\u03A9");
}

TEST(Nfc, orders_marks_by_class_and_keeps_the_order_within_a_class) {
  EXPECT_EQ(normalize_nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(normalize_nfc("x\u0301\u0300\u0323"), "x\u0323\u0301\u0300");
}

TEST(Nfc, does_not_compose_what_the_standard_excludes) {
  EXPECT_EQ(normalize_nfc("\u0958"), "\u0915\u093C");
  EXPECT_EQ(normalize_nfc("\u0344"), "\u0308\u0301");
}

TEST(Nfc, leaves_plain_text_alone) {
  const std::string text = "plain \u00E9\u00DF\u02FF text\n";
  EXPECT_TRUE(is_plainly_nfc(text));
  EXPECT_EQ(normalize_nfc(text), text);
  EXPECT_FALSE(is_plainly_nfc("e\u0301"));
  EXPECT_EQ(normalize_nfc(""), "");
}

TEST(Nfc, joins_a_mark_to_the_last_plain_character_only) {
  EXPECT_EQ(normalize_nfc("eee\u0301eee"), "ee\u00E9eee");
  EXPECT_EQ(normalize_nfc("\u00E9\u0323"), "\u1EB9\u0301");
  EXPECT_EQ(normalize_nfc("\u0301e"), "\u0301e");
}

// A sort that is quadratic in the run takes minutes here; the test's time-out is the check.
TEST(Nfc, copes_with_a_long_run_of_marks) {
  std::string text = "a";
  std::string above;
  std::string below;
  constexpr int kNumMarks = 300'000;
  for (int i = 0; i < kNumMarks; ++i) {
    text += "\u0307\u0323";
    above += "\u0307";
    if (i > 0) below += "\u0323";
  }
  EXPECT_EQ(normalize_nfc(text), "\u1EA1" + below + above);
}

}  // namespace
}  // namespace dhs
