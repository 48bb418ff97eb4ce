#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "dhisparse/kv.h"

namespace dhs {
namespace {

constexpr int64_t kRowBytes = 64;
constexpr int64_t kPageBytes = 4096;
constexpr int32_t kTopK = 256;

// Groups of 1, 4 and 2 layers: records of 64, 256 and 128 bytes.
KvGeometry small_geometry(DraftPages draft = {}) {
  const std::vector<int32_t> layers = {1, 4, 2};
  return make_geometry(layers, kRowBytes, kPageBytes, kTopK, draft);
}

KvManager make_manager(ResidencyMode mode, int32_t num_blocks, int32_t num_chunks,
                       int64_t fixed_rows = 512, DraftPages draft = {}) {
  const ResidencyConfig config = {
      .mode = mode, .fixed_rows_per_request = fixed_rows, .headroom_steps = 0};
  return KvManager(small_geometry(draft), {num_blocks, num_chunks, 64 << 10}, config);
}

TEST(Geometry, a_host_block_holds_records_then_index_items_without_overlap) {
  const KvGeometry geometry = small_geometry();
  int64_t end = 0;
  for (const GroupGeometry& group : geometry.groups) {
    EXPECT_EQ(group.record_offset, end);
    EXPECT_EQ(group.record_bytes, group.num_layers * kRowBytes);
    end += kHostBlockTokens * group.record_bytes;
  }
  EXPECT_EQ(geometry.index_item_offset, end);
  EXPECT_EQ(geometry.index_item_bytes, 3 * kPageBytes);
  EXPECT_EQ(geometry.host_block_bytes, end + 3 * kPageBytes);
  EXPECT_EQ(geometry.groups[2].first_layer, 5);
}

TEST(KvManager, admits_until_a_tier_is_full_and_again_after_a_release) {
  KvManager kv = make_manager(ResidencyMode::kAdaptive, 64, 40);
  ASSERT_TRUE(kv.fits(1024).ok());
  std::vector<SequenceMemory> running;
  while (auto memory = kv.admit(1024)) running.push_back(*std::move(memory));
  EXPECT_EQ(running.size(), 4u);  // 64 host blocks, 16 each
  EXPECT_EQ(kv.check_invariants(), "");
  running.pop_back();
  EXPECT_TRUE(kv.admit(1024).has_value());
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(KvManager, a_request_that_can_never_fit_names_tier_need_and_remedy) {
  const KvManager few_blocks = make_manager(ResidencyMode::kAdaptive, 8, 40);
  const absl::Status host = few_blocks.fits(1024);
  EXPECT_EQ(host.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(host.message(),
            "a request of 1024 tokens (prompt + max_tokens) needs 16 host blocks, the machine has "
            "8; raise host.pool or shorten the request");
  const KvManager few_chunks = make_manager(ResidencyMode::kResident, 1024, 16);
  EXPECT_TRUE(few_chunks.fits(256).ok());
  EXPECT_NE(few_chunks.fits(8192).message().find("residency.mode: adaptive"), std::string::npos);
}

TEST(KvManager, adaptive_takes_every_spare_chunk_that_rows_can_use) {
  KvManager kv = make_manager(ResidencyMode::kAdaptive, 1024, 40);
  const auto memory = kv.admit(4096);
  ASSERT_TRUE(memory.has_value());
  kv.rebalance();
  const KvUsage usage = kv.usage();
  EXPECT_EQ(usage.chunks_free, 0);
  EXPECT_EQ(usage.chunks_index, 13);
  // All 4,096 rows would take 4 + 16 + 8 chunks, one more than there is: the poorest group, the one
  // with the largest records, goes without the last.
  EXPECT_EQ(usage.chunks_rows, (std::vector<int64_t>{4, 15, 8}));
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(KvManager, fixed_and_resident_take_what_they_require_and_no_more) {
  KvManager fixed = make_manager(ResidencyMode::kFixed, 1024, 200, 512);
  const auto a = fixed.admit(8192);
  fixed.rebalance();
  EXPECT_EQ(fixed.usage().chunks_rows, (std::vector<int64_t>{1, 2, 1}));
  KvManager resident = make_manager(ResidencyMode::kResident, 1024, 200);
  const auto b = resident.admit(8192);
  resident.rebalance();
  EXPECT_EQ(resident.usage().chunks_rows, (std::vector<int64_t>{8, 32, 16}));
}

// 900 tokens: 15 index items, pages for all or for a window, records of 448 bytes in all groups.
TEST(KvManager, what_a_request_requires_depends_on_its_decode_rows_only_where_the_mode_does) {
  const int64_t items = 15 * 3 * kPageBytes;
  const KvManager adaptive = make_manager(ResidencyMode::kAdaptive, 64, 40);
  EXPECT_EQ(adaptive.required_bytes(900, 200), items + 200 * 448);
  EXPECT_EQ(adaptive.required_bytes(900, 2000), items + 900 * 448);
  const KvManager fixed = make_manager(ResidencyMode::kFixed, 64, 40, 512);
  EXPECT_EQ(fixed.required_bytes(900, 200), items + 512 * 448);
  EXPECT_EQ(fixed.required_bytes(900, 600), items + 600 * 448);
  const KvManager resident = make_manager(ResidencyMode::kResident, 64, 40);
  EXPECT_EQ(resident.required_bytes(900, 200), items + 15 * 64 * 448);
  const KvManager drafting =
      make_manager(ResidencyMode::kAdaptive, 64, 40, 512, {.page_bytes = 1024});
  EXPECT_EQ(drafting.required_bytes(900, 200), items + 200 * 448 + 15 * 1024);
}

TEST(KvManager, an_admission_gets_optional_chunks_back_within_one_rebalance) {
  KvManager kv = make_manager(ResidencyMode::kAdaptive, 1024, 70);
  std::vector<SequenceMemory> running;
  running.push_back(*kv.admit(8192));
  kv.rebalance();
  ASSERT_EQ(kv.usage().chunks_free, 0);
  // The second request needs index chunks that only optional residency can give.
  auto second = kv.admit(8192);
  ASSERT_TRUE(second.has_value());
  const std::vector<ChunkMove> moves = kv.rebalance();
  std::set<int32_t> freed;
  int grown_index = 0;
  for (const ChunkMove& move : moves) {
    if (move.kind == ChunkMove::Kind::kReleaseRows) freed.insert(move.chunk.value);
    if (move.kind != ChunkMove::Kind::kGrowIndex) continue;
    ++grown_index;
    EXPECT_TRUE(freed.count(move.chunk.value)) << "a chunk changed hands before it was released";
  }
  EXPECT_GT(grown_index, 0);
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(KvManager, every_block_is_retired_once_before_it_is_used_again) {
  KvManager kv = make_manager(ResidencyMode::kAdaptive, 8, 40);
  std::set<int32_t> first_blocks;
  {
    const auto memory = kv.admit(512);
    EXPECT_EQ(memory->index_items().size(), 8u);
    for (HostBlockId block : memory->blocks()) first_blocks.insert(block.value);
  }
  ASSERT_EQ(first_blocks.size(), 8u);
  const auto again = kv.admit(512);  // the same blocks: there are no others
  ASSERT_TRUE(again.has_value());
  std::set<int32_t> retired;
  for (HostBlockId block : kv.take_retired_blocks()) retired.insert(block.value);
  EXPECT_EQ(retired, first_blocks);
  EXPECT_TRUE(kv.take_retired_blocks().empty());
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(KvManager, moving_a_lease_moves_what_it_holds) {
  KvManager kv = make_manager(ResidencyMode::kAdaptive, 16, 40);
  SequenceMemory first = *kv.admit(512);
  SequenceMemory second = std::move(first);
  EXPECT_EQ(second.max_tokens(), 512);
  second = SequenceMemory();
  EXPECT_EQ(kv.usage().host_blocks_used, 0);
  EXPECT_EQ(kv.check_invariants(), "");
}

// Applies moves to a model of ownership: what the store believes must agree with the manager.
class Ownership {
 public:
  Ownership(int groups, int chunks) : rows_(groups), owner_(chunks, kFree) {}

  void apply(const std::vector<ChunkMove>& moves) {
    for (const ChunkMove& move : moves) {
      int& owner = owner_[move.chunk.value];
      switch (move.kind) {
        case ChunkMove::Kind::kGrowRows:
          ASSERT_EQ(owner, kFree);
          ASSERT_EQ(move.segment, static_cast<int>(rows_[move.group].size()));
          rows_[move.group].push_back(move.chunk.value);
          owner = move.group;
          break;
        case ChunkMove::Kind::kReleaseRows:
          ASSERT_EQ(rows_[move.group].back(), move.chunk.value);
          ASSERT_EQ(move.segment, static_cast<int>(rows_[move.group].size()) - 1);
          rows_[move.group].pop_back();
          owner = kFree;
          break;
        case ChunkMove::Kind::kGrowIndex:
          ASSERT_EQ(owner, kFree);
          owner = kIndex;
          break;
        case ChunkMove::Kind::kReleaseIndex:
          ASSERT_EQ(owner, kIndex);
          owner = kFree;
          break;
        case ChunkMove::Kind::kGrowDraft:
          ASSERT_EQ(owner, kFree);
          owner = kDraft;
          break;
        case ChunkMove::Kind::kReleaseDraft:
          ASSERT_EQ(owner, kDraft);
          owner = kFree;
          break;
      }
    }
  }
  int64_t owned_by_rows(int group) const { return std::ssize(rows_[group]); }
  int64_t owned_by_draft() const { return std::count(owner_.begin(), owner_.end(), kDraft); }

 private:
  static constexpr int kFree = -1;
  static constexpr int kIndex = -2;
  static constexpr int kDraft = -3;
  std::vector<std::vector<int32_t>> rows_;
  std::vector<int> owner_;
};

void expect_blocks_held_once(const std::vector<SequenceMemory>& running) {
  std::set<int32_t> blocks;
  for (const SequenceMemory& memory : running) {
    for (HostBlockId block : memory.blocks()) {
      ASSERT_TRUE(blocks.insert(block.value).second) << "block " << block.value << " held twice";
    }
  }
}

class RandomTraffic : public testing::TestWithParam<ResidencyMode> {};

void come_and_go(KvManager kv) {
  Ownership ownership(3, kv.capacity().num_chunks);
  std::mt19937 random(11);
  std::vector<SequenceMemory> running;
  for (int step = 0; step < 5000; ++step) {
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 4096);
    if (random() % 2 == 0 && kv.fits(tokens).ok()) {
      if (auto memory = kv.admit(tokens)) running.push_back(*std::move(memory));
    } else if (!running.empty()) {
      running.erase(running.begin() + static_cast<int64_t>(random() % running.size()));
    }
    ownership.apply(kv.rebalance());
    ASSERT_EQ(kv.check_invariants(), "") << "step " << step;
    expect_blocks_held_once(running);
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << step;
    ASSERT_EQ(ownership.owned_by_draft(), kv.usage().chunks_draft);
    for (int g = 0; g < 3; ++g) {
      ASSERT_EQ(ownership.owned_by_rows(g), kv.usage().chunks_rows[g]);
    }
  }
}

TEST_P(RandomTraffic, invariants_hold_over_arrivals_and_departures) {
  come_and_go(make_manager(GetParam(), 300, 60));
}

TEST_P(RandomTraffic, invariants_hold_with_draft_pages) {
  come_and_go(make_manager(GetParam(), 300, 60, 512, {.page_bytes = 16 << 10}));
  come_and_go(make_manager(GetParam(), 300, 60, 512, {.page_bytes = 16 << 10, .window = 200}));
}

INSTANTIATE_TEST_SUITE_P(Modes, RandomTraffic,
                         testing::Values(ResidencyMode::kAdaptive, ResidencyMode::kFixed,
                                         ResidencyMode::kResident));

}  // namespace
}  // namespace dhs
