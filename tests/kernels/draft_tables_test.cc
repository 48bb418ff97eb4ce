#include "kernels/draft_tables/draft_tables.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/test_memory.h"

namespace dhs {
namespace {

constexpr int64_t kBlocks = 300;

std::vector<int32_t> some_positions() {
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < kBlocks; ++i) positions.push_back(i % 7 == 3 ? -1 : 100 + i);
  return positions;
}

std::vector<ProposalSampling> some_sampling() {
  std::vector<ProposalSampling> sampling;
  for (int32_t i = 0; i < kBlocks; ++i) {
    sampling.push_back({.temperature = 0.5f * static_cast<float>(i % 3),
                        .seed = (uint64_t{7} << 40) + static_cast<uint64_t>(i),
                        .position = 0});
  }
  return sampling;
}

TEST(DraftTables, proposals_start_behind_the_anchor) {
  const auto positions = some_positions();
  const test::DeviceArray<int32_t> device_positions(positions);
  const test::DeviceArray<ProposalSampling> sampling(some_sampling());
  launch_place_proposals({.anchor_positions = view<const int32_t>(device_positions.data(), kBlocks),
                          .sampling = view(sampling.data(), kBlocks)},
                         test::stream());
  const auto placed = sampling.download();
  for (int64_t i = 0; i < kBlocks; ++i) {
    EXPECT_EQ(placed[i].position, static_cast<uint32_t>(positions[i] + 1));
    EXPECT_EQ(placed[i].seed, some_sampling()[i].seed);
  }
}

TEST(DraftTables, draws_use_the_stream_of_drafts_and_their_own_position) {
  const auto positions = some_positions();
  const test::DeviceArray<int32_t> device_positions(positions);
  const test::DeviceArray<ProposalSampling> sampling(some_sampling());
  const test::DeviceArray<RowSampling> rows(std::vector<RowSampling>(kBlocks, RowSampling{}));
  const test::DeviceArray<float> temperatures(kBlocks, -1.0f);
  launch_place_draws({.anchor_positions = view<const int32_t>(device_positions.data(), kBlocks),
                      .sampling = view<const ProposalSampling>(sampling.data(), kBlocks),
                      .offset = 3,
                      .rows = view(rows.data(), kBlocks),
                      .temperatures = view(temperatures.data(), kBlocks)},
                     test::stream());
  const auto placed = rows.download();
  const auto kept = temperatures.download();
  for (int64_t i = 0; i < kBlocks; ++i) {
    const ProposalSampling from = some_sampling()[i];
    EXPECT_EQ(placed[i].position, static_cast<uint32_t>(positions[i] + 3));
    EXPECT_EQ(placed[i].seed, from.seed);
    EXPECT_EQ(placed[i].sequence_idx, kDraftStream);
    EXPECT_EQ(placed[i].temperature, from.temperature);
    EXPECT_EQ(placed[i].top_k, 0);
    EXPECT_EQ(placed[i].draft_token, -1);
    EXPECT_EQ(kept[i], from.temperature);
  }
}

TEST(DraftTables, keeps_draws_in_a_column) {
  constexpr int64_t kColumns = 5;
  std::vector<int32_t> drawn;
  for (int32_t i = 0; i < kBlocks; ++i) drawn.push_back(3 * i);
  const test::DeviceArray<int32_t> device_drawn(drawn);
  const test::DeviceArray<int32_t> table(kBlocks * kColumns, -7);
  launch_keep_draws({.drawn = view<const int32_t>(device_drawn.data(), kBlocks),
                     .out = {table.data() + 2, {kBlocks}, {kColumns}}},
                    test::stream());
  const auto kept = table.download();
  for (int64_t i = 0; i < kBlocks * kColumns; ++i) {
    EXPECT_EQ(kept[i], i % kColumns == 2 ? drawn[i / kColumns] : -7);
  }
}

TEST(DraftTables, shifts_positions_but_not_padding) {
  const std::vector<int32_t> positions = {0, 5, -1, 7, -3};
  const test::DeviceArray<int32_t> in(positions), out(5, -9);
  launch_shift_positions(
      {.positions = view<const int32_t>(in.data(), 5), .offset = -1, .out = view(out.data(), 5)},
      test::stream());
  EXPECT_EQ(out.download(), (std::vector<int32_t>{-1, 4, -1, 6, -1}));
}

TEST(DraftTables, positions_from_the_end_on_become_padding) {
  const test::DeviceArray<int32_t> in(std::vector<int32_t>{10, 11, 12, -1}),
      ends(std::vector<int32_t>{14, 14, 14, 14}), out(4, -9);
  launch_shift_positions({.positions = view<const int32_t>(in.data(), 4),
                          .offset = 2,
                          .ends = view<const int32_t>(ends.data(), 4),
                          .out = view(out.data(), 4)},
                         test::stream());
  EXPECT_EQ(out.download(), (std::vector<int32_t>{12, 13, -1, -1}));
}

// Draws of one, three and two logit rows, the last of them padding.
TEST(DraftTables, an_anchor_follows_the_last_row_that_was_accepted) {
  const test::DeviceArray<int32_t> logit_rows(std::vector<int32_t>{4, 6, 7, 8, -1, -1}),
      first_row(std::vector<int32_t>{0, 1, 4, 6}), num_accepted(std::vector<int32_t>{0, 2, 0}),
      newest(std::vector<int32_t>{50, 51, 52}), row_before(3, -9),
      next(std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  launch_anchor_rows({.logit_rows = view<const int32_t>(logit_rows.data(), 6),
                      .first_row = view<const int32_t>(first_row.data(), 4),
                      .num_accepted = view<const int32_t>(num_accepted.data(), 3),
                      .newest = view<const int32_t>(newest.data(), 3),
                      .row_before_anchor = view(row_before.data(), 3),
                      .next_tokens = view(next.data(), 10)},
                     test::stream());
  EXPECT_EQ(row_before.download(), (std::vector<int32_t>{4, 8, -1}));
  EXPECT_EQ(next.download(), (std::vector<int32_t>{0, 1, 2, 3, 50, 5, 6, 7, 51, 9}));
}

}  // namespace
}  // namespace dhs
