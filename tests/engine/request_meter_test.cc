#include "engine/request_meter.h"

#include <gtest/gtest.h>

namespace dhs {
namespace {

constexpr RequestId kFirst(1);
constexpr RequestId kSecond(2);

absl::Time at(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

Finished finished(FinishReason reason, int64_t prompt_tokens, int64_t tokens) {
  Finished finished{.reason = reason};
  finished.usage.prompt_tokens = prompt_tokens;
  finished.usage.completion_tokens = tokens;
  finished.usage.queued = absl::Seconds(0.5);
  return finished;
}

TEST(RequestMeter, measures_a_request_from_its_arrival_on) {
  RequestMeter meter;
  meter.on_tokens(kFirst, at(10), 1, at(12));
  meter.on_tokens(kFirst, at(10), 1, at(12.5));
  meter.on_tokens(kFirst, at(10), 2, at(13.5));  // two that come together share their second
  meter.on_finished(kFirst, at(10), finished(FinishReason::kLength, 300, 4), at(14));
  const RequestFigures figures = meter.figures();
  EXPECT_EQ(figures.first_token.count(), 1);
  EXPECT_DOUBLE_EQ(figures.first_token.sum, 2);
  EXPECT_EQ(figures.inter_token.count(), 3);
  EXPECT_DOUBLE_EQ(figures.inter_token.sum, 1.5);
  EXPECT_EQ(figures.per_output_token.count(), 1);
  EXPECT_DOUBLE_EQ(figures.per_output_token.sum, 0.5);
  EXPECT_DOUBLE_EQ(figures.whole.sum, 4);
  EXPECT_DOUBLE_EQ(figures.queue.sum, 0.5);
  EXPECT_DOUBLE_EQ(figures.prompt_tokens.sum, 300);
  EXPECT_DOUBLE_EQ(figures.output_tokens.sum, 4);
}

TEST(RequestMeter, keeps_requests_apart_and_counts_their_ends_by_reason) {
  RequestMeter meter;
  meter.on_tokens(kFirst, at(0), 1, at(1));
  meter.on_tokens(kSecond, at(0), 1, at(5));
  meter.on_tokens(kFirst, at(0), 1, at(6));
  meter.on_finished(kSecond, at(0), finished(FinishReason::kStop, 1, 1), at(7));
  meter.on_finished(kFirst, at(0), finished(FinishReason::kCancelled, 1, 2), at(8));
  const RequestFigures figures = meter.figures();
  EXPECT_DOUBLE_EQ(figures.inter_token.sum, 5);
  EXPECT_EQ(figures.per_output_token.count(), 1) << "one token has no time per token";
  EXPECT_EQ(figures.finished[static_cast<size_t>(FinishReason::kStop)], 1);
  EXPECT_EQ(figures.finished[static_cast<size_t>(FinishReason::kCancelled)], 1);
  EXPECT_EQ(figures.finished[static_cast<size_t>(FinishReason::kError)], 0);
}

TEST(RequestMeter, a_request_that_never_ran_has_an_end_and_no_token_times) {
  RequestMeter meter;
  Finished never{.reason = FinishReason::kDeadline};
  meter.on_finished(kFirst, at(1), never, at(3));
  const RequestFigures figures = meter.figures();
  EXPECT_EQ(figures.whole.count(), 1);
  EXPECT_EQ(figures.queue.count(), 0);
  EXPECT_EQ(figures.first_token.count(), 0);
}

TEST(Figures, edges_reach_ten_minutes_to_the_first_token_and_two_milliseconds_between_tokens) {
  const RequestFigures figures;
  EXPECT_GE(figures.first_token.edges[figures.first_token.num_edges - 1], 600);
  EXPECT_DOUBLE_EQ(figures.inter_token.edges[0], 0.002);
}

}  // namespace
}  // namespace dhs
