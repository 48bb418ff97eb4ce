#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "dhisparse/base.h"

namespace dhs {
namespace {

absl::Status counted(const absl::Status& status, int& calls) {
  ++calls;
  return status;
}

absl::Status first_error(const absl::Status& a, const absl::Status& b, int& calls) {
  DHS_RETURN_IF_ERROR(counted(a, calls));
  DHS_RETURN_IF_ERROR(counted(b, calls));
  return absl::OkStatus();
}

TEST(StatusMacros, return_if_error_stops_at_the_first_error_and_evaluates_once) {
  const absl::Status full = absl::ResourceExhaustedError("full");
  int calls = 0;
  EXPECT_TRUE(first_error(absl::OkStatus(), absl::OkStatus(), calls).ok());
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(first_error(absl::OkStatus(), full, calls), full);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(first_error(full, absl::OkStatus(), calls), full);
  EXPECT_EQ(calls, 5);
}

absl::StatusOr<std::unique_ptr<int>> boxed(int value) {
  if (value < 0) return absl::InvalidArgumentError(absl::StrCat(value, " is negative"));
  return std::make_unique<int>(value);
}

absl::StatusOr<int> sum(int a, int b) {
  DHS_ASSIGN_OR_RETURN(const std::unique_ptr<int> first, boxed(a));
  std::unique_ptr<int> second;
  DHS_ASSIGN_OR_RETURN(second, boxed(b));
  return *first + *second;
}

TEST(StatusMacros, assign_or_return_moves_the_value_out_or_passes_the_error_on) {
  ASSERT_TRUE(sum(2, 3).ok());
  EXPECT_EQ(*sum(2, 3), 5);
  EXPECT_EQ(sum(-2, 3).status(), absl::InvalidArgumentError("-2 is negative"));
  EXPECT_EQ(sum(2, -3).status(), absl::InvalidArgumentError("-3 is negative"));
}

// One statement to the compiler: an unbraced if with an else must parse as it reads.
absl::Status fail_if(bool wanted) {
  if (wanted)
    DHS_RETURN_IF_ERROR(absl::AbortedError("wanted"));
  else
    return absl::NotFoundError("else");
  return absl::OkStatus();
}

TEST(StatusMacros, return_if_error_is_one_statement) {
  EXPECT_EQ(fail_if(true), absl::AbortedError("wanted"));
  EXPECT_EQ(fail_if(false), absl::NotFoundError("else"));
}

TEST(StringViews, crossing_the_border_keeps_bytes_and_length) {
  const std::string text("a\0b", 3);
  const std::string_view there_and_back = to_std(to_absl(text));
  EXPECT_EQ(there_and_back, text);
  EXPECT_EQ(there_and_back.data(), text.data());
  EXPECT_TRUE(to_std(to_absl(std::string_view())).empty());
}

}  // namespace
}  // namespace dhs
