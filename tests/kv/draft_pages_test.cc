// Draft pages: the window of them that a request holds, where it moves, and what brings them back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "dhisparse/kv.h"

namespace dhs {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kChunkBytes = 4096;
constexpr int64_t kWindow = 100;

// One group; index items of 128 bytes, 32 a chunk; draft pages of 1,024 bytes, 4 a chunk.
KvGeometry make_kv_geometry(DraftPages draft) {
  const std::vector<int32_t> layers = {4};
  return make_geometry(layers, 16, 128, 64, draft);
}

KvManager make_manager(int32_t num_chunks, int64_t window,
                       ResidencyMode mode = ResidencyMode::kAdaptive) {
  return KvManager(make_kv_geometry({.page_bytes = 1024, .window = window}),
                   {2048, num_chunks, kChunkBytes}, {mode, 64});
}

std::vector<TokenId> tokens_from(TokenId first, int64_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Which host blocks have a page.
std::vector<int64_t> with_page(const SequenceMemory& memory) {
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i < std::ssize(memory.draft_pages()); ++i) {
    if (memory.draft_pages()[i] >= 0) blocks.push_back(i);
  }
  return blocks;
}

std::vector<int32_t> restored_pages(KvManager& kv) {
  std::vector<int32_t> blocks;
  for (const BlockRestore& restore : kv.take_restores()) {
    if (restore.is_draft) blocks.push_back(restore.block.value);
  }
  return blocks;
}

TEST(DraftPages, lie_behind_the_index_item_of_a_host_block) {
  const KvGeometry without = make_kv_geometry({});
  const KvGeometry with = make_kv_geometry({.page_bytes = 1000, .window = 7});
  EXPECT_EQ(without.draft_page_bytes, 0);
  EXPECT_EQ(without.host_block_bytes, without.index_item_offset + without.index_item_bytes);
  EXPECT_EQ(with.draft_page_offset, without.host_block_bytes);
  EXPECT_EQ(with.draft_page_bytes, 1024);
  EXPECT_EQ(with.host_block_bytes, without.host_block_bytes + 1024);
  EXPECT_EQ(with.draft_window, 7);
}

TEST(DraftPages, without_any_a_request_holds_none) {
  KvManager kv(make_kv_geometry({}), {64, 40, kChunkBytes}, {});
  SequenceMemory memory = *kv.admit(600);
  EXPECT_THAT(memory.draft_pages(), IsEmpty());
  EXPECT_EQ(kv.usage().chunks_draft, 0);
}

TEST(DraftPages, cover_the_window_before_the_newest_token_and_what_is_reached) {
  KvManager kv = make_manager(40, kWindow);
  SequenceMemory memory =
      *kv.admit({.max_tokens = 1000, .device_tokens = 501, .known_tokens = 500});
  // The newest token is at 499: its draft reads no position before 399, in block 6.
  EXPECT_THAT(with_page(memory), ElementsAre(6, 7));
  EXPECT_EQ(memory.draft_pages().size(), memory.index_items().size());
  EXPECT_EQ(kv.usage().chunks_draft, 1);
}

TEST(DraftPages, without_a_window_every_covered_block_has_one) {
  KvManager kv = make_manager(40, 0);
  SequenceMemory memory =
      *kv.admit({.max_tokens = 1000, .device_tokens = 300, .known_tokens = 299});
  EXPECT_THAT(with_page(memory), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(kv.usage().chunks_draft, 2);
  ASSERT_TRUE(kv.cover(memory, 400, 300, 399));
  EXPECT_THAT(with_page(memory), ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

TEST(DraftPages, the_window_moves_on_with_the_request_and_the_version_says_so) {
  KvManager kv = make_manager(40, kWindow);
  SequenceMemory memory = *kv.admit({.max_tokens = 2000, .device_tokens = 2, .known_tokens = 1});
  uint64_t version = memory.version();
  std::vector<int64_t> before = with_page(memory);
  int64_t num_changes = 0;
  for (int64_t known = 2; known < 2000; ++known) {
    // Now and then drafts reach further.
    const int64_t reached = std::min<int64_t>(2000, known + 1 + known % 5);
    ASSERT_TRUE(kv.cover(memory, reached, known - 1, known));
    const std::vector<int64_t> now = with_page(memory);
    ASSERT_EQ(now.front(), std::max<int64_t>(0, known - 1 - kWindow) / 64) << known;
    ASSERT_EQ(now.back(), std::ssize(memory.index_items()) - 1) << known;
    ASSERT_EQ(now.back() - now.front() + 1, std::ssize(now)) << known;
    ASSERT_LE(kv.usage().chunks_draft, 1) << known;
    ASSERT_EQ(memory.version() != version, now != before) << known;
    num_changes += memory.version() != version ? 1 : 0;
    version = memory.version();
    before = now;
    ASSERT_EQ(kv.check_invariants(), "");
    kv.rebalance();
    ASSERT_THAT(kv.take_restores(), IsEmpty()) << "what is new was not written yet";
  }
  EXPECT_GT(num_changes, 40);
}

TEST(DraftPages, a_prefix_hit_restores_those_of_the_window_alone) {
  KvManager kv = make_manager(40, kWindow);
  const std::vector<TokenId> tokens = tokens_from(0, 500);
  std::vector<HostBlockId> blocks;
  {
    SequenceMemory first = *kv.admit({.max_tokens = 510, .tokens = tokens});
    kv.publish(first, tokens);
    blocks.assign(first.blocks().begin(), first.blocks().end());
  }
  kv.take_restores();
  const std::span<const TokenId> prompt(tokens.data(), 450);
  SequenceMemory memory =
      *kv.admit({.max_tokens = 600, .device_tokens = 451, .known_tokens = 450, .tokens = prompt});
  ASSERT_EQ(memory.cached_tokens(), 448);
  EXPECT_THAT(with_page(memory), ElementsAre(5, 6, 7));
  const std::vector<BlockRestore> restores = kv.take_restores();
  std::vector<int64_t> items, pages;
  for (const BlockRestore& restore : restores) {
    const auto& table = restore.is_draft ? memory.draft_pages() : memory.index_items();
    const auto block = std::find(blocks.begin(), blocks.end(), restore.block) - blocks.begin();
    ASSERT_EQ(restore.index_item, table[block]);
    (restore.is_draft ? pages : items).push_back(block);
  }
  EXPECT_THAT(items, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(pages, ElementsAre(5, 6)) << "the last block is not written yet";
}

TEST(DraftPages, parking_gives_them_up_and_a_resume_brings_those_of_the_window_back) {
  KvManager kv = make_manager(40, kWindow);
  SequenceMemory memory =
      *kv.admit({.max_tokens = 1000, .device_tokens = 301, .known_tokens = 300});
  kv.rebalance();
  kv.park(memory);
  EXPECT_THAT(memory.draft_pages(), IsEmpty());
  EXPECT_EQ(kv.usage().chunks_draft, 0);
  ASSERT_TRUE(kv.cover(memory, 301, 299, 300));
  EXPECT_THAT(with_page(memory), ElementsAre(3, 4));
  EXPECT_THAT(restored_pages(kv), ElementsAre(memory.blocks()[3].value, memory.blocks()[4].value));
  kv.park(memory);
  ASSERT_TRUE(kv.cover(memory, 301, 299, 300));
  kv.park(memory);
  EXPECT_THAT(restored_pages(kv), IsEmpty()) << "it has left again";
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(DraftPages, of_a_shared_block_are_shared_and_stay_while_anyone_reads_them) {
  KvManager kv = make_manager(40, kWindow);
  const std::vector<TokenId> tokens = tokens_from(0, 200);
  const KvDemand demand{
      .max_tokens = 600, .device_tokens = 201, .known_tokens = 200, .tokens = tokens};
  SequenceMemory first = *kv.admit(demand);
  kv.publish(first, tokens);
  SequenceMemory second = *kv.admit(demand);
  ASSERT_EQ(second.cached_tokens(), 192);
  EXPECT_THAT(with_page(first), ElementsAre(1, 2, 3));
  EXPECT_EQ(second.draft_pages()[1], first.draft_pages()[1]);
  EXPECT_EQ(second.draft_pages()[2], first.draft_pages()[2]);
  EXPECT_NE(second.draft_pages()[3], first.draft_pages()[3]) << "each goes on for itself";
  EXPECT_THAT(restored_pages(kv), IsEmpty()) << "they are there";
  const int32_t page = second.draft_pages()[2];
  ASSERT_TRUE(kv.cover(first, 600, 200, 590));
  EXPECT_THAT(with_page(first), ElementsAre(7, 8, 9));
  SequenceMemory third = *kv.admit(demand);
  EXPECT_EQ(third.draft_pages()[2], page) << "the second keeps it";
  EXPECT_THAT(restored_pages(kv), IsEmpty());
  kv.park(second);
  kv.park(third);
  SequenceMemory fourth = *kv.admit(demand);
  EXPECT_EQ(restored_pages(kv).size(), 2u) << "nobody was left to keep them";
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(DraftPages, a_request_longer_than_the_pools_pages_runs_in_a_window_alone) {
  KvManager all = make_manager(64, 0);
  KvManager windowed = make_manager(64, kWindow);
  constexpr int64_t kLong = 100000;  // 49 chunks of index items; 391 of pages, were there all
  EXPECT_EQ(all.fits(kLong).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(windowed.fits(kLong).ok());
  SequenceMemory memory =
      *windowed.admit({.max_tokens = kLong, .device_tokens = 50001, .known_tokens = 50000});
  for (int64_t known = 50001; known < kLong; known += 50) {
    ASSERT_TRUE(windowed.cover(memory, known + 1, known - 1, known)) << known;
    ASSERT_LE(with_page(memory).size(), 4u);
    windowed.rebalance();
    ASSERT_EQ(windowed.check_invariants(), "");
  }
}

TEST(DraftPages, take_optional_residency_back_and_count_in_what_fits) {
  KvManager kv = make_manager(8, 0);
  SequenceMemory first = *kv.admit({.max_tokens = 640, .device_tokens = 250, .known_tokens = 249});
  kv.rebalance();
  EXPECT_EQ(kv.usage().chunks_draft, 1);
  // 1 chunk of index items, 2 of protected rows, 3 of pages.
  ASSERT_TRUE(kv.cover(first, 640, 249, 639));
  kv.rebalance();
  EXPECT_EQ(kv.usage().chunks_draft, 3);
  EXPECT_EQ(kv.num_optional_chunks(), 2);
  EXPECT_FALSE(kv.can_admit({.max_tokens = 640})) << "2 of rows and 3 of pages more";
  EXPECT_TRUE(kv.can_admit({.max_tokens = 64})) << "a chunk of rows, and pages that are free";
  const SequenceMemory* others[] = {&first};
  EXPECT_TRUE(kv.could_admit({.max_tokens = 640}, others));
  EXPECT_EQ(kv.check_invariants(), "");
}

// What a page holds according to the orders, against what its request needs.
class DraftPageTraffic : public testing::TestWithParam<ResidencyMode> {};

TEST_P(DraftPageTraffic, every_written_block_in_a_window_has_its_own_page_with_its_bytes) {
  KvManager kv = make_manager(20, kWindow, GetParam());
  struct Running {
    SequenceMemory memory;
    int64_t known = 0;    // all but the newest are written by a step
    int64_t written = 0;  // by the steps so far
  };
  std::vector<Running> all;
  std::vector<int32_t> block_in_page(20 * 4, -1);
  std::mt19937 random(23);
  int64_t num_parked = 0, num_refused = 0, num_restored = 0;
  const auto cover = [&](Running& one) {
    const int64_t reached = std::min(one.memory.max_tokens(), one.known + 1);
    return kv.cover(one.memory, reached, one.known - 1, one.known);
  };
  for (int step = 0; step < 20000; ++step) {
    const auto choice = random() % 8;
    Running* one = all.empty() ? nullptr : &all[random() % all.size()];
    if (choice == 0 || one == nullptr) {
      const int64_t max_tokens = 2 + static_cast<int64_t>(random() % 1500);
      if (!kv.fits(max_tokens).ok()) continue;
      auto memory = kv.admit({.max_tokens = max_tokens, .device_tokens = 2, .known_tokens = 1});
      if (memory.has_value()) all.push_back({*std::move(memory), 1});
    } else if (choice == 1 && !one->memory.is_parked()) {
      kv.park(one->memory);
      ++num_parked;
    } else if (choice == 2 && random() % 4 == 0) {
      all.erase(all.begin() + (one - all.data()));
    } else if (!one->memory.is_parked() && one->known + 40 < one->memory.max_tokens()) {
      one->known += static_cast<int64_t>(random() % 40);
      if (!cover(*one)) {
        ++num_refused;
        kv.park(one->memory);
      }
    } else if (one->memory.is_parked()) {
      num_refused += cover(*one) ? 0 : 1;
    }
    kv.rebalance();
    for (const BlockRestore& restore : kv.take_restores()) {
      if (!restore.is_draft) continue;
      block_in_page[restore.index_item] = restore.block.value;
      ++num_restored;
    }
    kv.take_retired_blocks();
    ASSERT_EQ(kv.check_invariants(), "") << "step " << step;
    for (Running& running : all) {
      for (int64_t block : with_page(running.memory)) {
        int32_t& held = block_in_page[running.memory.draft_pages()[block]];
        const int32_t own = running.memory.blocks()[block].value;
        if (block * kHostBlockTokens >= running.written) held = own;  // the step writes it
        ASSERT_EQ(held, own) << "step " << step;
      }
      if (!running.memory.is_parked()) running.written = running.known - 1;
    }
  }
  EXPECT_GT(num_parked, 100);
  EXPECT_GT(num_refused, 100);
  EXPECT_GT(num_restored, 100);
}

INSTANTIATE_TEST_SUITE_P(Modes, DraftPageTraffic,
                         testing::Values(ResidencyMode::kAdaptive, ResidencyMode::kFixed,
                                         ResidencyMode::kResident));

}  // namespace
}  // namespace dhs
