// A step may be planned while the one before it still draws its tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "scheduler/draft_trials.h"
#include "scheduler_driver.h"

namespace dhs {
namespace {

constexpr uint64_t kEndless = 3;  // it draws no end token

SchedulerConfig config_with(const DraftSchedule& draft) {
  return {.max_running = 4, .max_batched_tokens = 16, .draft = draft};
}

KvGeometry tiny_geometry(DraftPages draft) {
  const std::vector<int32_t> layers = {1};
  return make_geometry(layers, 16, 512, 8, draft);
}

// Runs requests with `depth` steps in flight; tokens are drawn by hashing request and position, and
// drafts are what will be drawn.
class Pipeline {
 public:
  explicit Pipeline(int depth, DraftPages pages = {}, const DraftSchedule& draft = {})
      : depth_(depth),
        kv_(tiny_geometry(pages), {64, 64, 4096}, {}),
        scheduler_(config_with(draft), {&kv_}, {kEndToken}) {}

  void enqueue(uint64_t request, int32_t prompt_tokens, int32_t max_tokens) {
    GenerateRequest generate;
    generate.prompt.assign(prompt_tokens, 1);
    generate.sampling.max_tokens = max_tokens;
    generate.sampling.seed = request;
    generate.sampling.ignore_eos = request == kEndless;
    scheduler_.enqueue(RequestId(request), std::move(generate));
  }

  // Plans one step; collects the oldest when `depth` are in flight or nothing was planned.
  void step() {
    std::vector<RequestUpdate> updates;
    const StepPlan plan = scheduler_.plan(absl::UnixEpoch(), updates);
    ASSERT_EQ(scheduler_.check_invariants(), "");
    for (const SequenceWork& work : plan.ranks.at(0).work) {
      if (work.num_prompt_tokens == 0) verified_.push_back(work.num_draft_tokens);
      check_known_tokens(work);
      if (work.wants_token) check_draft_pages(work);
    }
    in_flight_.push_back({plan, draw(plan)});
    while (!in_flight_.empty() && (!plan.has_work() || std::ssize(in_flight_) >= depth_)) {
      scheduler_.commit(in_flight_.front().plan, in_flight_.front().result, updates);
      in_flight_.pop_front();
    }
    ASSERT_EQ(scheduler_.check_invariants(), "");
    for (const RequestUpdate& update : updates) {
      for (const TokenOutput& output : update.tokens) {
        tokens_[update.request.value].push_back(output.token);
      }
    }
  }

  void finish() {
    while (!scheduler_.idle() || !in_flight_.empty()) step();
    step();
  }

  Scheduler& scheduler() { return scheduler_; }
  KvManager& kv() { return kv_; }
  const std::map<uint64_t, std::vector<TokenId>>& tokens() const { return tokens_; }
  int64_t num_rows() const { return num_rows_; }
  int64_t num_waiting_rows() const { return num_waiting_rows_; }
  int64_t num_behind() const { return num_behind_; }  // blocks before a window, without a page
  // Drafts, by each request's decode step in turn.
  const std::vector<int>& verified() const { return verified_; }

 private:
  struct Step {
    StepPlan plan;
    StepResult result;
  };

  static TokenId token_at(uint64_t request, uint64_t position) {
    return static_cast<TokenId>(((request * 31 + position) * 0x9e3779b97f4a7c15ull) >> 59);
  }

  // A decoded row's token is known, or comes from the draw of the latest step that it names.
  void check_known_tokens(const SequenceWork& work) {
    num_rows_ += std::ssize(work.tokens);
    if (!work.previous_draw.has_value()) return;
    ++num_waiting_rows_;
    ASSERT_FALSE(in_flight_.empty());
    int32_t draw = -1;
    for (const SequenceWork& before : in_flight_.back().plan.ranks.at(0).work) {
      draw += before.wants_token ? 1 : 0;
      if (before.request == work.request) break;
    }
    ASSERT_EQ(*work.previous_draw, draw) << "request " << work.request.value;
  }

  // What follows the token that is drawn is drafted from the window before it.
  void check_draft_pages(const SequenceWork& work) {
    const KvGeometry& geometry = kv_.geometry();
    if (geometry.draft_page_bytes == 0) return;
    const int64_t drawn = work.first_position + std::ssize(work.tokens);
    const auto pages = work.memory->draft_pages();
    const int64_t first = std::max<int64_t>(0, drawn - geometry.draft_window) / kHostBlockTokens;
    for (int64_t block = 0; block * kHostBlockTokens < drawn; ++block) {
      ASSERT_LT(block, std::ssize(pages));
      ASSERT_TRUE(block < first || pages[block] >= 0)
          << "block " << block << " before position " << drawn;
      num_behind_ += pages[block] < 0 ? 1 : 0;
    }
  }

  StepResult draw(const StepPlan& plan) {
    StepResult result;
    for (const SequenceWork& work : plan.ranks.at(0).work) {
      SequenceResult sequence;
      if (work.wants_token) draw(work, sequence);
      result.sequences.push_back(std::move(sequence));
    }
    return result;
  }

  static void draw(const SequenceWork& work, SequenceResult& result) {
    const auto drafts = work.tokens.last(work.num_draft_tokens);
    uint64_t position = work.first_position + work.tokens.size() - drafts.size();
    const auto next = [&] { return token_at(work.request.value, position++); };
    result.tokens.push_back({next(), 0.0f, {}});
    for (size_t i = 0; i < drafts.size() && drafts[i] == result.tokens.back().token; ++i) {
      result.tokens.push_back({next(), 0.0f, {}});
    }
    for (int i = 0; i < work.num_tokens_to_draft; ++i) result.proposed.push_back(next());
  }

  const int depth_;
  KvManager kv_;
  Scheduler scheduler_;
  std::deque<Step> in_flight_;
  std::map<uint64_t, std::vector<TokenId>> tokens_;
  int64_t num_rows_ = 0;
  int64_t num_waiting_rows_ = 0;
  int64_t num_behind_ = 0;
  std::vector<int> verified_;
};

void run_many(Pipeline& pipeline) {
  for (uint64_t request = 1; request <= 12; ++request) {
    pipeline.enqueue(request, static_cast<int32_t>(1 + request * 7 % 40),
                     static_cast<int32_t>(1 + request * 5 % 33));
  }
  pipeline.finish();
}

TEST(PlannedAhead, requests_get_the_tokens_that_they_get_step_by_step) {
  Pipeline serial(1), ahead(2);
  run_many(serial);
  run_many(ahead);
  EXPECT_EQ(ahead.tokens(), serial.tokens());
  EXPECT_EQ(serial.num_waiting_rows(), 0);
  EXPECT_GT(ahead.num_waiting_rows(), 0);
  EXPECT_EQ(ahead.kv().usage().host_blocks_used, 0);
}

TEST(PlannedAhead, every_step_has_the_draft_pages_that_its_drafts_read) {
  for (const int depth : {1, 2}) {
    Pipeline pipeline(depth, {.page_bytes = 1024, .window = 64});
    for (uint64_t request = 1; request <= 6; ++request) {
      pipeline.enqueue(request, static_cast<int32_t>(30 * request), 300);
    }
    pipeline.finish();
    EXPECT_GT(pipeline.num_behind(), 50) << depth;
    EXPECT_EQ(pipeline.kv().usage().chunks_draft, 0);
  }
}

TEST(PlannedAhead, a_request_whose_length_is_reached_computes_no_row_too_many) {
  Pipeline serial(1), ahead(2);
  for (Pipeline* pipeline : {&serial, &ahead}) {
    pipeline->enqueue(kEndless, 5, 4);
    pipeline->finish();
  }
  EXPECT_EQ(ahead.tokens().at(kEndless).size(), 4u);
  EXPECT_EQ(ahead.num_rows(), serial.num_rows());
}

TEST(PlannedAhead, drafts_come_back_after_steps_without) {
  const DraftSchedule draft = {.num_tokens = 3, .is_adaptive = true};
  Pipeline serial(1, {}, draft), ahead(2, {}, draft);
  for (Pipeline* pipeline : {&serial, &ahead}) {
    pipeline->enqueue(kEndless, 5, 600);
    pipeline->finish();
    ASSERT_EQ(pipeline->tokens().at(kEndless).size(), 600u);
    // Trials without drafts, each as long as it should be, and as many as there are steps for.
    const std::vector<int>& verified = pipeline->verified();
    int64_t longest_without = 0;
    int64_t num_without = 0;
    for (const int num_drafts : verified) {
      num_without = num_drafts == 0 ? num_without + 1 : 0;
      longest_without = std::max(longest_without, num_without);
    }
    EXPECT_GE(longest_without, DraftTrials::kFewestSteps);
    EXPECT_LE(longest_without, DraftTrials::kFewestSteps + 2);
    EXPECT_GT(std::count(verified.begin(), verified.end(), 3), std::ssize(verified) / 2);
  }
  EXPECT_EQ(ahead.tokens(), serial.tokens());
}

TEST(PlannedAhead, steps_that_compute_nothing_are_of_no_trial) {
  Pipeline ahead(2, {}, {.num_tokens = 3, .is_adaptive = true});
  ahead.enqueue(kEndless, 5, 600);
  ahead.finish();
  const std::vector<int>& verified = ahead.verified();
  const auto first = std::find(verified.begin() + 1, verified.end(), 0);
  // What the first step of the trial verifies was asked for before it.
  EXPECT_EQ(first - verified.begin(), DraftTrials::kFirstPeriod);
}

TEST(PlannedAhead, a_request_that_is_parked_awaits_no_drafts) {
  Pipeline ahead(2, {}, {.num_tokens = 3});
  ahead.enqueue(kEndless, 5, 100);
  for (int i = 0; i < 3; ++i) ahead.step();  // the last one is on its way
  ahead.scheduler().set_paused(RequestId(kEndless), true);
  for (int i = 0; i < 3; ++i) ahead.step();
  ahead.scheduler().set_paused(RequestId(kEndless), false);
  ahead.finish();
  Pipeline plain(1);
  plain.enqueue(kEndless, 5, 100);
  plain.finish();
  EXPECT_EQ(ahead.tokens(), plain.tokens());
}

TEST(PlannedAhead, a_cancelled_request_is_not_heard_of_when_its_row_comes_back) {
  Pipeline ahead(2);
  ahead.enqueue(3, 3, 20);
  for (int i = 0; i < 4; ++i) ahead.step();
  const size_t num_before = ahead.tokens().at(3).size();
  EXPECT_TRUE(ahead.scheduler().finish(RequestId(3), FinishReason::kCancelled, absl::OkStatus()));
  ahead.finish();
  EXPECT_EQ(ahead.tokens().at(3).size(), num_before);
  EXPECT_EQ(ahead.kv().usage().host_blocks_used, 0);
}

}  // namespace
}  // namespace dhs
