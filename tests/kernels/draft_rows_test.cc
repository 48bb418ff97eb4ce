#include "kernels/draft_rows/draft_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/test_memory.h"

namespace dhs {
namespace {

using test::DeviceArray;
using Ints = std::vector<int32_t>;

struct Rows {
  Ints tokens, positions;
};

Rows rows_of(const Ints& anchors, const Ints& anchor_positions, int32_t block_rows) {
  const DeviceArray<int32_t> device_anchors(anchors), device_positions(anchor_positions);
  const auto num_rows = static_cast<int64_t>(anchors.size()) * block_rows;
  const DeviceArray<int32_t> tokens(static_cast<size_t>(num_rows), -7),
      positions(static_cast<size_t>(num_rows), -7);
  launch_draft_rows(
      {.anchors = view<const int32_t>(device_anchors.data(), anchors.size()),
       .anchor_positions = view<const int32_t>(device_positions.data(), anchors.size()),
       .block_rows = block_rows,
       .mask_token = 99,
       .tokens = view(tokens.data(), num_rows),
       .positions = view(positions.data(), num_rows)},
      test::stream());
  return {tokens.download(), positions.download()};
}

TEST(DraftRows, puts_the_anchor_before_masks_at_rising_positions) {
  const Rows rows = rows_of({7, 0, 42}, {10, 0, 63}, 3);
  EXPECT_EQ(rows.tokens, (Ints{7, 99, 99, 0, 99, 99, 42, 99, 99}));
  EXPECT_EQ(rows.positions, (Ints{10, 11, 12, 0, 1, 2, 63, 64, 65}));
}

TEST(DraftRows, gives_padding_blocks_masks_without_a_position) {
  const Rows rows = rows_of({5, -1, 6}, {-1, -1, 4}, 2);
  EXPECT_EQ(rows.tokens, (Ints{99, 99, 99, 99, 6, 99}));
  EXPECT_EQ(rows.positions, (Ints{-1, -1, -1, -1, 4, 5}));
}

TEST(DraftRows, covers_more_blocks_than_threads) {
  Ints anchors, firsts;
  for (int32_t block = 0; block < 61; ++block) {
    anchors.push_back(1000 + block);
    firsts.push_back(block * 3);
  }
  const Rows rows = rows_of(anchors, firsts, 7);
  for (int32_t row = 0; row < 61 * 7; ++row) {
    EXPECT_EQ(rows.tokens[row], row % 7 == 0 ? 1000 + row / 7 : 99);
    EXPECT_EQ(rows.positions[row], row / 7 * 3 + row % 7);
  }
}

TEST(DraftRows, takes_no_blocks_as_nothing_to_do) {
  EXPECT_TRUE(rows_of({}, {}, 4).tokens.empty());
}

}  // namespace
}  // namespace dhs
