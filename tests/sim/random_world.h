// A whole system in one step loop: real scheduler, real KV accounting, real row-cache policy;
// random arrivals of a few texts and three priorities, cancels, deadlines, pauses and drafts on
// tiny pools. Every invariant is checked after every step.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "byteless_executor.h"

namespace dhs::sim {

inline constexpr TokenId kEndToken = 7;

struct World {
  uint32_t seed = 0;
  int32_t num_blocks = 48;
  int32_t num_chunks = 40;
  int max_running = 6;
  int max_batched_tokens = 24;
  int num_draft_tokens = 0;
  bool is_draft_length_adaptive = false;
  bool looks_up_prompts = false;
  ResidencyConfig residency = {.fixed_rows_per_request = 48};
  int64_t link_bytes_per_s = 0;
  DraftPages draft;
  bool changes = false;  // other limits and residency now and then, while requests run
};

// Of all requests that are left when no more come.
inline constexpr int64_t kMostStepsToEnd = 50000;

// Worlds of all kinds by their seed.
inline World mixed_world(uint32_t seed) {
  World world{.seed = seed};
  world.residency.mode = static_cast<ResidencyMode>(seed % 3);
  if (seed % 4 == 0) world.num_chunks = 18;  // barely one long request
  if (seed % 5 == 0) world.max_batched_tokens = 6;
  if (seed % 2 == 0) world.num_draft_tokens = 3;
  world.is_draft_length_adaptive = seed % 4 == 0;
  world.looks_up_prompts = seed % 6 == 0;
  if (seed % 7 == 0) world.residency.headroom_steps = 0;
  if (seed % 3 == 0) world.residency.grow_delay = absl::Seconds(seed % 8);
  if (seed % 9 == 0) world.link_bytes_per_s = 20000;
  if (seed % 4 == 2) world.draft = {.page_bytes = 1000, .window = 70};
  if (seed % 8 == 1) world.draft = {.page_bytes = 500, .window = 0};
  return world;
}

// What a client saw of its request.
struct Seen {
  int64_t max_tokens = 0;
  int64_t num_tokens = 0;
  bool finished = false;
};

class Simulation {
 public:
  explicit Simulation(const World& world)
      : world_(world),
        random_(world.seed),
        kv_(geometry(world), {world.num_blocks, world.num_chunks, 4096, world.link_bytes_per_s},
            world.residency),
        scheduler_({.max_running = world.max_running,
                    .max_batched_tokens = world.max_batched_tokens,
                    .draft = {.num_tokens = world.num_draft_tokens,
                              .is_adaptive = world.is_draft_length_adaptive,
                              .ngram_min = world.looks_up_prompts ? 1 : 0,
                              .ngram_max = world.looks_up_prompts ? 3 : 0}},
                   {&kv_}, {kEndToken}),
        executor_(kv_.geometry(), kv_.capacity(), world.seed) {}

  void run(int num_steps) {
    for (int i = 0; i < num_steps; ++i) {
      arrive();
      cancel();
      pause();
      change();
      step();
      if (testing::Test::HasFatalFailure()) return;
    }
    for (uint64_t id = 1; id <= num_requests_; ++id) scheduler_.set_paused(RequestId(id), false);
    for (int64_t i = 0; !scheduler_.idle(); ++i) {
      ASSERT_LT(i, kMostStepsToEnd) << scheduler_.requests().size() << " requests never end";
      step();
      if (testing::Test::HasFatalFailure()) return;
    }
    step();
    EXPECT_EQ(kv_.usage().host_blocks_used, 0);
    EXPECT_EQ(kv_.usage().chunks_free, world_.num_chunks);
    for (const auto& [id, seen] : seen_) EXPECT_TRUE(seen.finished) << "request " << id;
  }

  uint64_t trace() const { return trace_; }
  int64_t num_requests() const { return static_cast<int64_t>(num_requests_); }
  int64_t most_running() const { return most_running_; }
  int64_t num_parked() const { return num_parked_; }
  int64_t num_preemptions() const { return scheduler_.num_preemptions(); }
  int64_t num_cached_tokens() const { return num_cached_tokens_; }
  int64_t num_restored() const { return executor_.num_restored(); }
  int64_t num_pages_restored() const { return executor_.num_pages_restored(); }
  int64_t num_refilled() const { return executor_.num_refilled(); }
  int64_t num_changes() const { return num_changes_; }
  int64_t num_accepted() const { return executor_.num_accepted(); }
  int64_t num_finished(FinishReason reason) { return num_finished_[reason]; }

 private:
  static KvGeometry geometry(const World& world) {
    const std::vector<int32_t> layers = {1, 3, 2};
    return make_geometry(layers, 16, 512, 8, world.draft);
  }

  void arrive() {
    if (random_() % 4 != 0 || scheduler_.requests().size() > 60) return;
    GenerateRequest request;
    request.prompt.resize(1 + random_() % 200, static_cast<TokenId>(random_() % 3));
    request.priority = static_cast<int32_t>(random_() % 3);
    if (random_() % 4 == 0) request.cache_salt = "salt";
    request.bypass_prefix_cache = random_() % 8 == 0;
    request.sampling.max_tokens = 1 + static_cast<int32_t>(random_() % 100);
    request.sampling.seed = random_();
    request.sampling.ignore_eos = random_() % 2 == 0;
    if (random_() % 16 == 0) request.deadline = now_ + absl::Seconds(random_() % 50);
    const int64_t total = std::ssize(request.prompt) + request.sampling.max_tokens;
    if (!kv_.fits(total).ok() || (world_.changes && !fits_any_residency(total))) return;
    const RequestId id(++num_requests_);
    seen_[id.value].max_tokens = request.sampling.max_tokens;
    scheduler_.enqueue(id, std::move(request));
  }

  void cancel() {
    if (random_() % 64 != 0 || num_requests_ == 0) return;
    const RequestId id(1 + random_() % num_requests_);
    auto update = scheduler_.finish(id, FinishReason::kCancelled, absl::OkStatus());
    if (update.has_value()) see(*update);
  }

  void pause() {
    if (random_() % 16 != 0 || num_requests_ == 0) return;
    // Few are told to go on by chance alone: all that were paused are, now and then.
    if (random_() % 4 == 0) {
      for (uint64_t id = 1; id <= num_requests_; ++id) scheduler_.set_paused(RequestId(id), false);
    } else {
      for (RequestId id : scheduler_.requests()) {
        if (random_() % 4 == 0) scheduler_.set_paused(id, true);
      }
    }
  }

  static constexpr int64_t kMostFixedRows = 100;

  ResidencyConfig residency(ResidencyMode mode, int64_t fixed_rows) const {
    ResidencyConfig residency = world_.residency;
    residency.mode = mode;
    residency.fixed_rows_per_request = fixed_rows;
    return residency;
  }

  // Whatever is changed, whoever has come must be able to run.
  bool fits_any_residency(int64_t max_tokens) const {
    for (const ResidencyMode mode : {ResidencyMode::kFixed, ResidencyMode::kResident}) {
      const KvManager alone(geometry(world_), kv_.capacity(), residency(mode, kMostFixedRows));
      if (!alone.fits(max_tokens).ok()) return false;
    }
    return true;
  }

  void change() {
    if (!world_.changes || random_() % 16 != 0) return;
    SchedulerConfig limits = scheduler_.config();
    limits.max_running = 1 + static_cast<int>(random_() % world_.max_running);
    limits.max_batched_tokens =
        std::max(limits.max_running, 1 + static_cast<int>(random_() % world_.max_batched_tokens));
    scheduler_.set_config(limits);
    scheduler_.set_residency(residency(static_cast<ResidencyMode>(random_() % 3),
                                       1 + static_cast<int64_t>(random_() % kMostFixedRows)));
    ++num_changes_;
  }

  void step() {
    now_ += absl::Seconds(1);
    std::vector<RequestUpdate> updates;
    const StepPlan plan = scheduler_.plan(now_, updates);
    most_running_ = std::max(most_running_, scheduler_.num_running());
    const StepResult result = executor_.execute(plan.ranks.at(0));
    check_plan(plan.ranks.at(0));
    scheduler_.commit(plan, result, updates);
    for (const RequestUpdate& update : updates) see(update);
    ASSERT_EQ(scheduler_.check_invariants(), "");
  }

  void check_plan(const RankPlan& plan) {
    int64_t num_tokens = 0;
    std::vector<bool> held(world_.num_blocks);
    for (const SequenceWork& work : plan.work) {
      num_tokens += std::ssize(work.tokens);
      for (HostBlockId block : work.memory->blocks()) held[block.value] = true;
    }
    ASSERT_LE(num_tokens, world_.max_batched_tokens);
    // A running request whose prompt waits for its turn is not in the plan but holds blocks too,
    // with rows of earlier chunks: blocks seen before and not retired since.
    for (const auto& block : blocks_held_by_waiting(plan)) held[block] = true;
    ASSERT_EQ(executor_.check_invariants(held, kv_.usage()), "");
  }

  // Blocks of running requests that are not in this plan: all held ones minus those of the plan.
  std::vector<int32_t> blocks_held_by_waiting(const RankPlan& plan) {
    for (HostBlockId block : plan.retired_blocks) last_holder_.erase(block.value);
    std::vector<int32_t> waiting;
    for (const auto& [block, id] : last_holder_) waiting.push_back(block);
    for (const SequenceWork& work : plan.work) {
      for (HostBlockId block : work.memory->blocks()) {
        last_holder_[block.value] = work.request.value;
      }
    }
    return waiting;
  }

  void see(const RequestUpdate& update) {
    Seen& seen = seen_[update.request.value];
    EXPECT_FALSE(seen.finished) << "request " << update.request.value << " heard of after its end";
    seen.num_tokens += std::ssize(update.tokens);
    EXPECT_LE(seen.num_tokens, seen.max_tokens);
    for (const TokenOutput& output : update.tokens) mix(output.token);
    mix(update.request.value);
    if (!update.finished.has_value()) return;
    seen.finished = true;
    num_parked_ += update.finished->usage.times_parked;
    num_cached_tokens_ += update.finished->usage.cached_prompt_tokens;
    ++num_finished_[update.finished->reason];
    EXPECT_EQ(update.finished->usage.completion_tokens, seen.num_tokens);
    if (update.finished->reason == FinishReason::kLength) {
      EXPECT_EQ(seen.num_tokens, seen.max_tokens);
    }
    mix(static_cast<uint64_t>(update.finished->usage.rows_fetched));
  }

  void mix(uint64_t value) { trace_ = (trace_ ^ value) * 0x100000001b3ull; }

  const World world_;
  std::mt19937 random_;
  KvManager kv_;
  Scheduler scheduler_;
  ByteLessExecutor executor_;
  absl::Time now_ = absl::UnixEpoch();
  uint64_t num_requests_ = 0;
  std::map<uint64_t, Seen> seen_;
  std::map<int32_t, uint64_t> last_holder_;
  std::map<FinishReason, int64_t> num_finished_;
  int64_t most_running_ = 0;
  int64_t num_changes_ = 0;
  int64_t num_parked_ = 0;
  int64_t num_cached_tokens_ = 0;
  uint64_t trace_ = 0xcbf29ce484222325ull;
};

}  // namespace dhs::sim
