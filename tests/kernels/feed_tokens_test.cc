#include "kernels/feed_tokens/feed_tokens.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/test_memory.h"

namespace dhs {
namespace {

TEST(FeedTokens, replaces_only_the_rows_that_wait_for_a_draw) {
  constexpr int64_t kRows = 300;
  std::vector<int32_t> tokens(kRows), draw_of_row(kRows), expected(kRows);
  const std::vector<int32_t> drawn = {70, 71, 72, 73, 74};
  for (int32_t i = 0; i < kRows; ++i) {
    tokens[i] = i;
    draw_of_row[i] = i % 3 == 0 ? (i / 3) % 5 : -1;
    expected[i] = i % 3 == 0 ? 70 + (i / 3) % 5 : i;
  }
  const test::DeviceArray<int32_t> device_tokens(tokens), device_draws(draw_of_row),
      device_drawn(drawn);
  launch_feed_tokens({.drawn = view<const int32_t>(device_drawn.data(), 5),
                      .draw_of_row = view<const int32_t>(device_draws.data(), kRows),
                      .tokens = view(device_tokens.data(), kRows)},
                     test::stream());
  EXPECT_EQ(device_tokens.download(), expected);
}

TEST(FeedTokens, takes_no_rows_as_nothing_to_do) {
  launch_feed_tokens({.drawn = view<const int32_t>(nullptr, 0),
                      .draw_of_row = view<const int32_t>(nullptr, 0),
                      .tokens = view<int32_t>(nullptr, 0)},
                     test::stream());
}

}  // namespace
}  // namespace dhs
