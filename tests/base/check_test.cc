#include <gtest/gtest.h>

#include <string>

#include "dhisparse/base.h"

namespace dhs {
namespace {

std::string counted(int& calls) {
  ++calls;
  return "reason";
}

TEST(Check, neither_fires_nor_builds_its_reason_while_the_condition_holds) {
  int calls = 0;
  for (int i = 0; i < 3; ++i) DHS_CHECK(i < 3, counted(calls));
  EXPECT_EQ(calls, 0);
}

TEST(Check, evaluates_its_condition_once) {
  int evaluations = 0;
  DHS_CHECK(++evaluations > 0, "counts");
  EXPECT_EQ(evaluations, 1);
}

TEST(CheckDeathTest, a_failed_check_names_place_expression_and_reason_and_aborts) {
  const int limit = 3;
  EXPECT_EXIT(DHS_CHECK(limit == 4, "limit is ", limit, ", wanted ", 4),
              testing::KilledBySignal(SIGABRT),
              "check_test.cc:[0-9]+: check failed: limit == 4: limit is 3, wanted 4");
}

}  // namespace
}  // namespace dhs
