#include "kernels/step_rows/step_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/test_memory.h"

namespace dhs {
namespace {

using test::DeviceArray;

constexpr int64_t kMaxNumBlocks = 4;
// Rows of the tables are further apart than they are wide; entries that nothing may read are -9.
constexpr int64_t kTableStride = 6;
const std::vector<int32_t> kBlocks = {5, 2,  9,          -9, -9, -9,  //
                                      0, -9, -9,         -9, -9, -9,  //
                                      7, 8,  2000000000, 6,  -9, -9};
const std::vector<int32_t> kItems = {15, 12, 19, -9, -9, -9, 10, -9, -9,
                                     -9, -9, -9, 17, 18, 11, 16, -9, -9};

// Not every block has a page.
const std::vector<int32_t> kPages = {-1, 4,  3,  -9, -9, -9, 0, -9, -9,
                                     -9, -9, -9, -1, -1, 5,  6, -9, -9};

struct Placed {
  std::vector<int64_t> host_rows;
  std::vector<int32_t> items, pages, visible;
};

Placed place(const std::vector<int32_t>& positions, const std::vector<int32_t>& sequences,
             int32_t block_tokens, bool has_pages = true) {
  const size_t count = positions.size();
  const auto num_rows = static_cast<int64_t>(count);
  const DeviceArray<int32_t> device_positions(positions), device_sequences(sequences),
      blocks(kBlocks), items(kItems), pages(kPages), item_of_token(count, -77),
      page_of_token(count, -77), visible(count, -77);
  const DeviceArray<int64_t> host_rows(count, -77);
  launch_step_rows({.positions = view<const int32_t>(device_positions.data(), num_rows),
                    .sequence_of_row = view<const int32_t>(device_sequences.data(), num_rows),
                    .block_table = {blocks.data(), {3, kMaxNumBlocks}, {kTableStride, 1}},
                    .item_table = {items.data(), {3, kMaxNumBlocks}, {kTableStride, 1}},
                    .page_table = {has_pages ? pages.data() : nullptr,
                                   {has_pages ? 3 : 0, kMaxNumBlocks},
                                   {kTableStride, 1}},
                    .block_tokens = block_tokens,
                    .host_rows = view(host_rows.data(), num_rows),
                    .item_of_token = view(item_of_token.data(), num_rows),
                    .page_of_token = view(page_of_token.data(), num_rows),
                    .visible = view(visible.data(), num_rows)},
                   test::stream());
  return {host_rows.download(), item_of_token.download(), page_of_token.download(),
          visible.download()};
}

TEST(StepRows, finds_every_token_in_its_sequences_block) {
  const Placed placed = place({0, 63, 64, 191, 0, 63, 255}, {0, 0, 0, 0, 1, 1, 2}, 64);
  EXPECT_EQ(placed.host_rows,
            (std::vector<int64_t>{5 * 64, 5 * 64 + 63, 2 * 64, 9 * 64 + 63, 0, 63, 6 * 64 + 63}));
  EXPECT_EQ(placed.items, (std::vector<int32_t>{15, 15, 12, 19, 10, 10, 16}));
  EXPECT_EQ(placed.pages, (std::vector<int32_t>{-1, -1, 4, 3, 0, 0, 6}));
  EXPECT_EQ(placed.visible, (std::vector<int32_t>{1, 64, 65, 192, 1, 64, 256}));
}

TEST(StepRows, takes_any_block_size_and_host_rows_beyond_32_bits) {
  const Placed placed = place({9, 10}, {2, 2}, 5);
  EXPECT_EQ(placed.host_rows, (std::vector<int64_t>{8 * 5 + 4, int64_t{2000000000} * 5}));
  EXPECT_EQ(placed.items, (std::vector<int32_t>{18, 11}));
}

TEST(StepRows, gives_padding_no_place_and_nothing_to_see) {
  const Placed placed = place({3, -1, -1}, {1, 0, 0}, 64);
  EXPECT_EQ(placed.host_rows, (std::vector<int64_t>{3, -1, -1}));
  EXPECT_EQ(placed.items, (std::vector<int32_t>{10, -1, -1}));
  EXPECT_EQ(placed.pages, (std::vector<int32_t>{0, -1, -1}));
  EXPECT_EQ(placed.visible, (std::vector<int32_t>{4, 0, 0}));
}

TEST(StepRows, leaves_pages_alone_where_there_is_no_table) {
  const Placed placed = place({64, -1}, {0, 0}, 64, false);
  EXPECT_EQ(placed.items, (std::vector<int32_t>{12, -1}));
  EXPECT_EQ(placed.pages, (std::vector<int32_t>{-77, -77}));
}

TEST(StepRows, covers_more_rows_than_one_block_of_threads) {
  std::vector<int32_t> positions, sequences;
  for (int32_t i = 0; i < 300; ++i) {
    positions.push_back(i % 5 == 4 ? -1 : i % 192);
    sequences.push_back(0);
  }
  const Placed placed = place(positions, sequences, 64);
  for (size_t i = 0; i < 300; ++i) {
    const int32_t position = positions[i];
    const int64_t expected =
        position < 0 ? -1
                     : int64_t{kBlocks[static_cast<size_t>(position / 64)]} * 64 + position % 64;
    ASSERT_EQ(placed.host_rows[i], expected) << i;
    ASSERT_EQ(placed.visible[i], position + 1) << i;
  }
}

TEST(StepRows, takes_no_rows_as_nothing_to_do) { EXPECT_TRUE(place({}, {}, 64).visible.empty()); }

}  // namespace
}  // namespace dhs
