// The prefix cache: which blocks a request takes over, and what becomes of blocks nobody holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "dhisparse/kv.h"
#include "kv/host_blocks.h"

namespace dhs {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<TokenId> tokens_from(TokenId first, int64_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class PrefixCache : public testing::Test {
 protected:
  // Groups of one and two layers; 12 host blocks, and chunks that hold two index items each.
  static KvGeometry geometry() {
    const std::vector<int32_t> layers = {1, 2};
    return make_geometry(layers, 16, 1024, 8);
  }
  SequenceMemory admit(const std::vector<TokenId>& prompt, std::string_view salt = "",
                       int64_t max_tokens = 0) {
    auto memory = kv_.admit({.max_tokens = max_tokens > 0 ? max_tokens : std::ssize(prompt) + 10,
                             .tokens = prompt,
                             .salt = salt});
    EXPECT_TRUE(memory.has_value());
    return memory.has_value() ? *std::move(memory) : SequenceMemory();
  }
  // A request that ran over these tokens and ended.
  std::vector<HostBlockId> leave_behind(const std::vector<TokenId>& tokens,
                                        std::string_view salt = "") {
    SequenceMemory memory = admit(tokens, salt);
    kv_.publish(memory, tokens);
    return {memory.blocks().begin(), memory.blocks().end()};
  }
  ~PrefixCache() override { EXPECT_EQ(kv_.check_invariants(), ""); }

  KvManager kv_{geometry(), {12, 64, 4096}, {}};
};

TEST_F(PrefixCache, a_request_takes_the_full_blocks_it_begins_with_and_restores_their_index_keys) {
  const auto before = leave_behind(tokens_from(0, 200));
  EXPECT_EQ(kv_.usage().host_blocks_cached, 3) << "the fourth block is not full";
  kv_.take_restores();
  const SequenceMemory memory = admit(tokens_from(0, 190));
  EXPECT_EQ(memory.cached_tokens(), 128) << "190 tokens begin with two full blocks";
  EXPECT_EQ(memory.blocks()[0], before[0]);
  EXPECT_EQ(memory.blocks()[1], before[1]);
  const auto restores = kv_.take_restores();
  ASSERT_EQ(restores.size(), 2u);
  EXPECT_EQ(restores[0].block, before[0]);
  EXPECT_EQ(restores[0].index_item, memory.index_items()[0]);
  EXPECT_THAT(kv_.take_restores(), IsEmpty());
}

TEST_F(PrefixCache, the_last_token_of_a_prompt_is_always_computed) {
  leave_behind(tokens_from(0, 128));
  EXPECT_EQ(admit(tokens_from(0, 128)).cached_tokens(), 64);
  EXPECT_EQ(admit(tokens_from(0, 129)).cached_tokens(), 128);
}

TEST_F(PrefixCache, only_equal_tokens_after_equal_tokens_match) {
  std::vector<TokenId> one = tokens_from(0, 128);
  leave_behind(one);
  std::vector<TokenId> other = one;
  other[63] = 9999;
  other.push_back(0);
  EXPECT_EQ(admit(other).cached_tokens(), 0) << "its second block is equal, what precedes is not";
  one[64] = 9999;
  one.push_back(0);
  EXPECT_EQ(admit(one).cached_tokens(), 64);
}

TEST_F(PrefixCache, never_crosses_salts) {
  leave_behind(tokens_from(0, 100), "tenant a");
  EXPECT_EQ(admit(tokens_from(0, 100), "tenant b").cached_tokens(), 0);
  EXPECT_EQ(admit(tokens_from(0, 100)).cached_tokens(), 0);
  EXPECT_EQ(admit(tokens_from(0, 100), "tenant a").cached_tokens(), 64);
}

TEST_F(PrefixCache, is_bypassed_by_a_request_without_tokens) {
  const std::vector<TokenId> tokens = tokens_from(0, 100);
  {
    auto memory = *kv_.admit({.max_tokens = 110});
    kv_.publish(memory, tokens);
  }
  EXPECT_EQ(kv_.usage().host_blocks_cached, 0);
  leave_behind(tokens);
  EXPECT_EQ(kv_.admit({.max_tokens = 110})->cached_tokens(), 0);
}

TEST_F(PrefixCache, gives_up_what_was_left_first_and_the_end_of_a_chain_before_its_beginning) {
  const auto first = leave_behind(tokens_from(0, 192));
  const auto second = leave_behind(tokens_from(5000, 64));
  kv_.take_retired_blocks();
  // 8 of 12 blocks are free, and the part blocks at the ends of both are among them.
  const SequenceMemory large = *kv_.admit({.max_tokens = 9 * 64});
  EXPECT_THAT(kv_.take_retired_blocks(), ElementsAre(first[2]));
  const SequenceMemory next = *kv_.admit({.max_tokens = 64});
  EXPECT_THAT(kv_.take_retired_blocks(), ElementsAre(first[1]));
  EXPECT_EQ(kv_.cached_tokens({.max_tokens = 200, .tokens = tokens_from(0, 193)}), 64);
  EXPECT_EQ(kv_.cached_tokens({.max_tokens = 200, .tokens = tokens_from(5000, 65)}), 64);
}

TEST_F(PrefixCache, a_hit_makes_a_chain_young_again) {
  const auto first = leave_behind(tokens_from(0, 64));
  const auto second = leave_behind(tokens_from(5000, 64));
  { const SequenceMemory again = admit(tokens_from(0, 65)); }
  kv_.take_retired_blocks();
  const SequenceMemory large = *kv_.admit({.max_tokens = 11 * 64});
  EXPECT_THAT(kv_.take_retired_blocks(), ElementsAre(second[0]));
}

TEST_F(PrefixCache, a_running_requests_blocks_are_shared_with_their_index_items) {
  const std::vector<TokenId> tokens = tokens_from(0, 130);
  SequenceMemory first = admit(tokens);
  kv_.publish(first, tokens);
  const int64_t items_before = std::ssize(first.index_items());
  const SequenceMemory second = admit(tokens);
  EXPECT_EQ(second.blocks()[1], first.blocks()[1]);
  EXPECT_EQ(second.index_items()[1], first.index_items()[1]);
  EXPECT_NE(second.index_items()[2], first.index_items()[2]);
  EXPECT_THAT(kv_.take_restores(), IsEmpty()) << "the keys are on the device already";
  EXPECT_EQ(kv_.usage().host_blocks_used, items_before + 1);
  first = SequenceMemory();
  EXPECT_EQ(kv_.usage().host_blocks_used, 3) << "the second holds the shared ones on";
}

TEST_F(PrefixCache, two_that_compute_the_same_at_once_keep_one_chain_and_lose_no_block) {
  const std::vector<TokenId> tokens = tokens_from(0, 192);
  SequenceMemory first = admit(tokens);
  SequenceMemory second = admit(tokens);
  EXPECT_EQ(second.cached_tokens(), 0);
  kv_.publish(first, tokens);
  kv_.publish(second, std::span(tokens).first(70));
  kv_.publish(second, tokens);
  const HostBlockId kept = first.blocks()[0];
  first = SequenceMemory();
  EXPECT_EQ(kv_.check_invariants(), "");
  // The second goes on from the first's chain, which it holds.
  const SequenceMemory third = admit(tokens_from(0, 193));
  EXPECT_EQ(third.cached_tokens(), 192);
  EXPECT_EQ(third.blocks()[0], kept);
  second = SequenceMemory();
  EXPECT_EQ(kv_.usage().host_blocks_used, std::ssize(third.blocks()));
}

TEST_F(PrefixCache, blocks_that_a_hit_would_take_over_do_not_count_as_room_for_its_others) {
  leave_behind(tokens_from(0, 6 * 64));
  const SequenceMemory other = *kv_.admit({.max_tokens = 6 * 64});
  // Six cached blocks remain; the request takes five of them over and needs two more.
  EXPECT_FALSE(kv_.can_admit({.max_tokens = 7 * 64, .tokens = tokens_from(0, 6 * 64)}));
  EXPECT_TRUE(kv_.can_admit({.max_tokens = 6 * 64, .tokens = tokens_from(0, 6 * 64)}));
  EXPECT_TRUE(kv_.admit({.max_tokens = 6 * 64, .tokens = tokens_from(0, 6 * 64)}).has_value());
}

TEST(PrefixIndex, forgets_a_salt_with_its_last_block) {
  PrefixIndex index(4);
  const PrefixNode root = index.hold_root("a");
  EXPECT_EQ(index.hold_root("a"), root);
  index.release_root(root);
  const std::vector<TokenId> tokens = tokens_from(0, kHostBlockTokens);
  index.add(root, HostBlockId(2), tokens);
  index.release_root(root);
  EXPECT_EQ(index.find_root("a"), root) << "a block continues it";
  EXPECT_EQ(index.find(root, tokens), HostBlockId(2));
  index.remove(HostBlockId(2));
  EXPECT_EQ(index.find_root("a"), std::nullopt);
  EXPECT_NE(index.hold_root("a"), root) << "a number is not used again soon";
}

// Requests over few texts, so that they meet often: what the cache says is checked against a plain
// list of what was published.
TEST(PrefixTraffic, a_hit_is_always_the_text_that_its_blocks_were_published_with) {
  const std::vector<int32_t> layers = {1, 2};
  KvManager kv(make_geometry(layers, 16, 1024, 8), {40, 64, 4096}, {});
  std::mt19937 random(5);
  struct Running {
    SequenceMemory memory;
    std::vector<TokenId> tokens;
    std::string salt;
    int64_t num_durable = 0;
  };
  std::vector<Running> running;
  std::vector<std::vector<TokenId>> content(40);  // of each block, as last written
  int64_t num_hits = 0;
  for (int step = 0; step < 20000; ++step) {
    const auto choice = random() % 3;
    if (choice == 0) {
      std::vector<TokenId> tokens;
      for (int64_t i = 0; i < 1 + static_cast<int64_t>(random() % 5); ++i) {
        const auto part = tokens_from(static_cast<TokenId>(random() % 3) * 1000, 64);
        tokens.insert(tokens.end(), part.begin(), part.end());
      }
      const std::string salt = random() % 4 == 0 ? "b" : "a";
      auto memory =
          kv.admit({.max_tokens = std::ssize(tokens) + 20, .tokens = tokens, .salt = salt});
      if (!memory.has_value()) continue;
      const int64_t cached = memory->cached_tokens();
      num_hits += cached > 0 ? 1 : 0;
      for (int64_t i = 0; i < cached / 64; ++i) {
        std::vector<TokenId> expected(tokens.begin(), tokens.begin() + (i + 1) * 64);
        expected.push_back(salt == "b" ? 1 : 0);
        ASSERT_EQ(content[memory->blocks()[i].value], expected) << "step " << step;
      }
      running.push_back({*std::move(memory), std::move(tokens), salt, cached});
    } else if (choice == 1 && !running.empty()) {
      Running& one = running[random() % running.size()];
      const int64_t before = one.num_durable;
      one.num_durable = std::min<int64_t>(std::ssize(one.tokens), before + random() % 150);
      for (int64_t i = before / 64; (i + 1) * 64 <= one.num_durable; ++i) {
        auto& block = content[one.memory.blocks()[i].value];
        block.assign(one.tokens.begin(), one.tokens.begin() + (i + 1) * 64);
        block.push_back(one.salt == "b" ? 1 : 0);
      }
      kv.publish(one.memory, std::span(one.tokens).first(one.num_durable));
    } else if (!running.empty()) {
      running.erase(running.begin() + static_cast<int64_t>(random() % running.size()));
    }
    ASSERT_EQ(kv.check_invariants(), "") << "step " << step;
    for (HostBlockId block : kv.take_retired_blocks()) content[block.value].clear();
    kv.rebalance();
    kv.take_restores();
  }
  EXPECT_GT(num_hits, 1000);
}

}  // namespace
}  // namespace dhs
