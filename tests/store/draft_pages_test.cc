// The draft's context in both tiers: what a step writes, what a window keeps on the device, and
// what comes back to it. StoreWorld checks every page after every step.
#include <gtest/gtest.h>

#include <algorithm>

#include "store_world.h"

namespace dhs {
namespace {

constexpr int kNumSteps = test::kOnCuda ? 30 : 300;

// Pages of 2,048 bytes, two a chunk.
WorldShape with_drafts(int64_t window, int32_t num_chunks = 64) {
  return {.num_chunks = num_chunks,
          .draft_page = {.num_layers = 1, .num_kv_heads = 2, .head_dim = 4},
          .draft_window = window};
}

int64_t num_pages(const SequenceMemory& memory) {
  const auto pages = memory.draft_pages();
  return std::ssize(pages) - std::count(pages.begin(), pages.end(), -1);
}

TEST(DraftPages, take_the_context_of_every_row_and_of_rows_written_anew) {
  StoreWorld world(with_drafts(0));
  const int sequence = *world.admit(300);
  world.step({{sequence, 70}});
  for (int i = 0; i < 12; ++i) world.step({{sequence, 1 + i, i % 3}});
  EXPECT_EQ(num_pages(world.memory(sequence)), 5);
}

TEST(DraftPages, of_another_type_and_more_layers_lie_as_their_layout_says) {
  WorldShape shape = with_drafts(0);
  shape.draft_page = {.dtype = DType::kF32, .num_layers = 2, .num_kv_heads = 1, .head_dim = 4};
  StoreWorld world(shape);
  const int one = *world.admit(100);
  const int other = *world.admit(100);
  world.step({{one, 60}, {other, 20}});
  for (int i = 0; i < 6; ++i) world.step({{other, 3, 1}, {one, 2}});
}

TEST(DraftPages, follow_the_window_and_reach_the_host_block_where_there_is_no_page) {
  StoreWorld world(with_drafts(70));
  const int sequence = *world.admit(400, 400);
  ASSERT_EQ(num_pages(world.memory(sequence)), 2) << "a window at the end";
  // Before it, no block has a page: what is written is in the host blocks alone.
  world.step({{sequence, 90}});
  world.park(sequence);
  ASSERT_TRUE(world.cover(sequence, 100));
  EXPECT_EQ(num_pages(world.memory(sequence)), 2) << "a window at token 90";
  world.step({{sequence, 10}});
  while (world.num_tokens(sequence) < 390) {
    ASSERT_TRUE(world.cover(sequence, world.num_tokens(sequence) + 10));
    world.step({{sequence, 10, 4}});
    ASSERT_LE(num_pages(world.memory(sequence)), 4);
    if (HasFatalFailure()) return;
  }
}

TEST(DraftPages, come_back_with_a_request_whose_memory_others_have_had) {
  StoreWorld world(with_drafts(70, 30));
  const int first = *world.admit(200, 100);
  world.step({{first, 95}});
  for (int i = 0; i < 4; ++i) {
    world.park(first);
    const std::optional<int> other = world.admit(192);
    ASSERT_TRUE(other.has_value());
    world.step({{*other, 90}});
    world.step({{*other, 90}});
    world.release(*other);
    ASSERT_TRUE(world.cover(first, world.num_tokens(first) + 20));
    world.step({{first, 20}});
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(world.num_tokens(first), 175);
}

// Requests that come, go on by a few tokens, leave, park and return at random.
class Traffic {
 public:
  explicit Traffic(int64_t window)
      : world_(with_drafts(window, 44), static_cast<uint32_t>(window)),
        random_(static_cast<uint32_t>(window) + 3) {}

  void step() {
    if (all_.size() < 4 && random_() % 3 == 0) arrive();
    std::vector<StepPart> parts;
    for (const int sequence : std::vector<int>(all_)) {
      if (const auto part = next_of(sequence)) parts.push_back(*part);
    }
    if (!parts.empty()) world_.step(parts);
  }

  int64_t num_parked() const { return num_parked_; }

 private:
  void arrive() {
    const auto sequence = world_.admit(200 + static_cast<int64_t>(random_() % 150), 64);
    if (sequence.has_value()) all_.push_back(*sequence);
  }

  std::optional<StepPart> next_of(int sequence) {
    const auto num_new = 1 + static_cast<int>(random_() % 20);
    const int64_t wanted = world_.num_tokens(sequence) + num_new;
    if (wanted > world_.max_tokens(sequence)) {
      world_.release(sequence);
      std::erase(all_, sequence);
      return std::nullopt;
    }
    if (random_() % 8 == 0 && !world_.memory(sequence).is_parked()) {
      world_.park(sequence);
      ++num_parked_;
      return std::nullopt;
    }
    if (random_() % 4 == 0 || !world_.cover(sequence, wanted)) return std::nullopt;
    const auto rewind = std::min<int64_t>(world_.num_tokens(sequence), random_() % 3);
    return StepPart{sequence, num_new, static_cast<int>(rewind)};
  }

  StoreWorld world_;
  std::mt19937 random_;
  std::vector<int> all_;
  int64_t num_parked_ = 0;
};

TEST(DraftPages, hold_what_was_written_whoever_comes_leaves_parks_or_returns) {
  for (const int64_t window : {0, 40, 130}) {
    Traffic traffic(window);
    for (int i = 0; i < kNumSteps; ++i) {
      traffic.step();
      if (HasFatalFailure()) FAIL() << "window " << window << ", step " << i;
    }
    EXPECT_GT(traffic.num_parked(), kNumSteps / 15) << window;
  }
}

TEST(DraftPages, are_written_where_the_rows_of_the_step_lie_and_nowhere_else) {
  StoreWorld world(with_drafts(0));
  const int sequence = *world.admit(60);
  world.step({{sequence, 30}});
  const std::byte* page = world.store().draft_pages().at(world.memory(sequence).draft_pages()[0]);
  EXPECT_NE(*page, kCanary);
  EXPECT_EQ(page[with_drafts(0).draft_page.offset(0, false, 30)], kCanary)
      << "no row beyond the step's is written";
}

}  // namespace
}  // namespace dhs
