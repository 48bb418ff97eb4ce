#include "scheduler_driver.h"

#include <gtest/gtest.h>

#include <numeric>

namespace dhs {
namespace {

constexpr int32_t kTopK = 4;
constexpr int64_t kChunkBytes = 4096;

KvGeometry geometry() {
  const std::vector<int32_t> layers_per_group = {1, 2};
  return make_geometry(layers_per_group, 16, 512, kTopK);
}

PlannedWork copy_of(const SequenceWork& work) {
  return {.request = work.request.value,
          .tokens = {work.tokens.begin(), work.tokens.end()},
          .first_position = work.first_position,
          .wants_token = work.wants_token,
          .num_draft_tokens = work.num_draft_tokens,
          .num_tokens_to_draft = work.num_tokens_to_draft,
          .masked = {work.masked_tokens.begin(), work.masked_tokens.end()},
          .seen = {work.seen_tokens.begin(), work.seen_tokens.end()},
          .seed = work.seed,
          .memory_tokens = work.memory->max_tokens()};
}

}  // namespace

const RequestUpdate* StepRecord::update_of(uint64_t request) const {
  for (const RequestUpdate& update : updates) {
    if (update.request.value == request) return &update;
  }
  return nullptr;
}

std::string describe(const std::vector<PlannedWork>& work) {
  std::string text;
  for (const PlannedWork& item : work) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", item.request, ": ", item.first_position, "+",
                    item.tokens.size(), item.wants_token ? "!" : "");
  }
  return text;
}

SchedulerDriver::SchedulerDriver(SchedulerConfig config, int32_t num_blocks, int32_t num_chunks)
    : kv_(geometry(), {num_blocks, num_chunks, kChunkBytes}, ResidencyConfig()),
      scheduler_(config, {&kv_}, {kEndToken, kOtherEnd}) {}

void SchedulerDriver::enqueue(uint64_t request, const Wanted& wanted) {
  GenerateRequest generate;
  generate.prompt.resize(wanted.prompt_tokens);
  std::iota(generate.prompt.begin(), generate.prompt.end(),
            static_cast<TokenId>((wanted.text > 0 ? wanted.text : request) * 1000));
  generate.priority = wanted.priority;
  generate.sampling.max_tokens = wanted.max_tokens;
  generate.sampling.min_tokens = wanted.min_tokens;
  generate.sampling.stop_token_ids = wanted.stop_token_ids;
  generate.sampling.repetition_penalty = wanted.repetition_penalty;
  generate.sampling.presence_penalty = wanted.presence_penalty;
  generate.sampling.logit_bias = wanted.logit_bias;
  generate.sampling.ignore_eos = wanted.ignore_eos;
  generate.sampling.seed = request + 100;
  generate.deadline = wanted.deadline;
  scheduler_.enqueue(RequestId(request), std::move(generate));
}

StepRecord SchedulerDriver::step(
    const std::function<std::vector<TokenId>(uint64_t request)>& draw) {
  StepRecord record;
  const StepPlan plan = scheduler_.plan(now_, record.updates);
  const RankPlan& rank = plan.ranks.at(0);
  record.retired_blocks = rank.retired_blocks;
  StepResult result;
  for (const SequenceWork& work : rank.work) {
    record.work.push_back(copy_of(work));
    SequenceResult sequence{.rows_selected = rows_selected_, .rows_fetched = rows_fetched_};
    if (work.wants_token) {
      const std::vector<TokenId> drawn =
          draw ? draw(work.request.value) : std::vector<TokenId>{kPlainToken};
      for (TokenId token : drawn) sequence.tokens.push_back({token, 0.0f, {}});
      const auto num_proposed = std::min<int64_t>(std::ssize(proposals_), work.num_tokens_to_draft);
      sequence.proposed.assign(proposals_.begin(), proposals_.begin() + num_proposed);
    }
    result.sequences.push_back(std::move(sequence));
  }
  if (elapsed_) result.elapsed = elapsed_(rank);
  scheduler_.commit(plan, result, record.updates);
  EXPECT_EQ(scheduler_.check_invariants(), "");
  return record;
}

std::vector<RequestUpdate> SchedulerDriver::finish_all() {
  std::vector<RequestUpdate> all;
  while (!scheduler_.idle()) {
    for (RequestUpdate& update : step().updates) all.push_back(std::move(update));
  }
  return all;
}

void SchedulerDriver::set_rows(int64_t selected, int64_t fetched) {
  rows_selected_ = selected;
  rows_fetched_ = fetched;
}

}  // namespace dhs
