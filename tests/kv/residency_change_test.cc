// Other promises to the requests on the device: what they require changes at once, the chunks with
// the next rebalance.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "dhisparse/kv.h"

namespace dhs {
namespace {

constexpr ResidencyConfig kAdaptive = {.mode = ResidencyMode::kAdaptive,
                                       .fixed_rows_per_request = 64};
constexpr ResidencyConfig kResident = {.mode = ResidencyMode::kResident,
                                       .fixed_rows_per_request = 64};

ResidencyConfig fixed(int64_t rows) {
  return {.mode = ResidencyMode::kFixed, .fixed_rows_per_request = rows};
}

// One group, 64 rows a chunk; 4 index items a chunk. Protected: 65 rows, two chunks.
KvManager make_manager(int32_t num_chunks, const ResidencyConfig& residency) {
  const std::vector<int32_t> layers = {4};
  return KvManager(make_geometry(layers, 16, 1024, 64), {256, num_chunks, 4096}, residency);
}

int64_t row_chunks(const KvManager& kv) { return kv.usage().chunks_rows.at(0); }
int64_t required(const KvManager& kv) { return kv.usage().chunks_required.at(0); }

TEST(ResidencyChange, fixed_gives_optional_rows_back_and_adaptive_takes_them_again) {
  KvManager kv = make_manager(40, kAdaptive);
  const auto memory = kv.admit(1280);
  kv.rebalance();
  EXPECT_EQ(row_chunks(kv), 20) << "every row it covers";
  EXPECT_EQ(required(kv), 2);
  ASSERT_TRUE(kv.set_residency(fixed(256)));
  EXPECT_EQ(required(kv), 4);
  EXPECT_EQ(kv.check_invariants(), "");
  EXPECT_EQ(kv.rebalance().size(), 16u);
  EXPECT_EQ(row_chunks(kv), 4);
  ASSERT_TRUE(kv.set_residency(kAdaptive));
  kv.rebalance();
  EXPECT_EQ(row_chunks(kv), 20);
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(ResidencyChange, is_refused_without_a_trace_while_the_requests_do_not_fit_it) {
  KvManager kv = make_manager(30, kAdaptive);
  auto first = kv.admit(1280);  // 5 chunks of index items, 2 of rows
  auto second = kv.admit(640);  // 3 and 2: their protected rows share a chunk
  ASSERT_TRUE(first.has_value() && second.has_value());
  kv.rebalance();
  EXPECT_FALSE(kv.set_residency(kResident)) << "30 chunks of rows beside 8 of index items";
  EXPECT_EQ(kv.check_invariants(), "");
  EXPECT_EQ(required(kv), 3);
  EXPECT_TRUE(kv.can_admit({.max_tokens = 64}));
  kv.park(*second);
  EXPECT_TRUE(kv.set_residency(kResident));
  EXPECT_EQ(required(kv), 20);
  EXPECT_EQ(kv.check_invariants(), "");
  EXPECT_FALSE(kv.cover(*second, 640, 0));
  kv.park(*first);
  EXPECT_TRUE(kv.cover(*second, 640, 0));
  kv.rebalance();
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(ResidencyChange, counts_the_chunks_that_change_hands) {
  KvManager kv = make_manager(40, kAdaptive);
  auto memory = kv.admit(1280);
  kv.rebalance();
  ASSERT_TRUE(kv.set_residency(fixed(128)));
  kv.rebalance();
  const KvUsage usage = kv.usage();
  EXPECT_EQ(usage.row_moves.at(0).grown, 20);
  EXPECT_EQ(usage.row_moves.at(0).released, 18);
  EXPECT_EQ(usage.index_moves.grown, 5);
  EXPECT_EQ(usage.index_moves.released, 0);
  kv.park(*memory);
  EXPECT_EQ(kv.usage().index_moves.released, 5);
}

// ---- Rows of a decode step ----------------------------------------------------------------------

// Of up to 256 rows: four chunks.
KvManager make_drafting(int32_t num_chunks) {
  const std::vector<int32_t> layers = {4};
  KvGeometry geometry = make_geometry(layers, 16, 1024, 64);
  geometry.decode_rows = 256;
  return KvManager(geometry, {256, num_chunks, 4096}, kAdaptive);
}

TEST(DecodeRows, fewer_leave_room_for_a_request_more_and_come_back_when_it_has_ended) {
  KvManager kv = make_drafting(14);
  const auto first = kv.admit(1280);  // 5 chunks of index items
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(required(kv), 4);
  EXPECT_FALSE(kv.can_admit({.max_tokens = 1280}));
  ASSERT_TRUE(kv.set_decode_rows(65));
  EXPECT_EQ(required(kv), 2);
  {
    const auto second = kv.admit(1280);
    ASSERT_TRUE(second.has_value());
    EXPECT_FALSE(kv.set_decode_rows(256)) << "10 chunks of index items and 8 of rows";
    EXPECT_EQ(required(kv), 3);
    EXPECT_EQ(kv.check_invariants(), "");
  }
  EXPECT_TRUE(kv.set_decode_rows(256));
  EXPECT_EQ(required(kv), 4);
  kv.rebalance();
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(DecodeRows, do_not_change_what_clients_are_promised) {
  KvManager kv = make_drafting(8);
  EXPECT_FALSE(kv.fits(1280).ok()) << "5 chunks of index items and 4 of rows";
  ASSERT_TRUE(kv.set_decode_rows(65));
  EXPECT_FALSE(kv.fits(1280).ok());
}

TEST(ResidencyChange, holds_every_invariant_in_random_order) {
  std::mt19937 random(3);
  KvManager kv = make_manager(60, kAdaptive);
  std::vector<SequenceMemory> requests;
  int num_changes = 0;
  for (int i = 0; i < 2000; ++i) {
    const int what = static_cast<int>(random() % 5);
    const ResidencyConfig modes[] = {kAdaptive, kResident, fixed(64 + random() % 1000)};
    if (what == 0) num_changes += kv.set_residency(modes[random() % 3]) ? 1 : 0;
    if (what == 1 && kv.can_admit({.max_tokens = 1000})) requests.push_back(*kv.admit(1000));
    if (what == 2 && !requests.empty()) requests.pop_back();
    for (SequenceMemory& request : requests) {
      if (what == 3 && !request.is_parked()) kv.park(request);
      if (what == 4) kv.cover(request, 1000, 500);
    }
    kv.rebalance();
    ASSERT_EQ(kv.check_invariants(), "") << i;
  }
  EXPECT_GT(num_changes, 100);
}

TEST(PrefixCounts, tell_what_was_looked_up_and_in_which_tier_it_was_found) {
  KvManager kv = make_manager(60, kAdaptive);
  std::vector<TokenId> tokens(200);
  std::iota(tokens.begin(), tokens.end(), 0);
  const KvDemand demand{.max_tokens = 256, .tokens = tokens};
  auto first = kv.admit(demand);
  EXPECT_EQ(kv.usage().prefix.looked_up, 200);
  EXPECT_EQ(kv.usage().prefix.on_device + kv.usage().prefix.on_host, 0);
  kv.publish(*first, tokens);
  auto second = kv.admit(demand);
  EXPECT_EQ(kv.usage().prefix.on_device, 192) << "the first still runs";
  first.reset();
  second.reset();
  const auto third = kv.admit(demand);
  EXPECT_EQ(kv.usage().prefix.on_host, 192);
  EXPECT_EQ(kv.usage().prefix.on_device, 192);
  EXPECT_EQ(kv.usage().prefix.looked_up, 600);
}

}  // namespace
}  // namespace dhs
