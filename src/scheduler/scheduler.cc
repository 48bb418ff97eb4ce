#include "dhisparse/scheduler.h"

#include <algorithm>

namespace dhs {

// One request: its tokens and how far they are computed; everything else follows from these.
struct Scheduler::Sequence {
  RequestId id;
  int rank = 0;  // where it runs
  GenerateRequest request;
  std::vector<TokenId> tokens;  // prompt and output; reserved for max_tokens(): spans stay valid
  int64_t num_prompt_tokens = 0;
  int64_t num_computed_tokens = 0;  // whose KV is written, or will be by a step already planned
  int64_t num_pending_tokens = 0;   // being drawn by steps that are not committed
  int32_t latest_draw = 0;          // of the pending ones, its number in its step
  std::vector<TokenId> stop_tokens;
  SequenceMemory memory;
  Usage usage;

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t num_output_tokens() const {
    return num_tokens() + num_pending_tokens - num_prompt_tokens;
  }
  int64_t max_tokens() const { return num_prompt_tokens + request.sampling.max_tokens; }
  int64_t num_waiting_tokens() const {
    return num_tokens() + num_pending_tokens - num_computed_tokens;
  }
  bool is_decoding() const { return num_waiting_tokens() == 1 && num_output_tokens() > 0; }
  // Its last token is being drawn: nothing is left to compute.
  bool is_ending() const { return num_tokens() + num_pending_tokens == max_tokens(); }
};

int64_t RankPlan::num_rows() const {
  int64_t rows = 0;
  for (const SequenceWork& item : work) rows += std::ssize(item.tokens);
  return rows;
}

bool StepPlan::has_work() const {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const RankPlan& rank) { return !rank.work.empty(); });
}

std::optional<int> choose_rank(std::span<const RankLoad> ranks) {
  std::optional<int> best;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].can_admit) continue;
    // a / m > b / n as a n > b m: no rounding.
    auto share = [&](const RankLoad& rank, const RankLoad& other) {
      return rank.optional_chunks * (other.num_running + 1);
    };
    if (!best.has_value() || share(ranks[i], ranks[*best]) > share(ranks[*best], ranks[i])) {
      best = static_cast<int>(i);
    }
  }
  return best;
}

Scheduler::Scheduler(const SchedulerConfig& config, std::vector<KvManager*> kv,
                     std::vector<TokenId> stop_at)
    : config_(config), kv_(std::move(kv)), stop_at_(std::move(stop_at)) {
  DHS_CHECK(!kv_.empty(), "a scheduler of no rank");
  DHS_CHECK(config_.max_running <= config_.max_batched_tokens, "max_running ", config_.max_running,
            " exceeds max_batched_tokens ", config_.max_batched_tokens);
}

Scheduler::~Scheduler() = default;

int64_t Scheduler::num_queued_tokens() const {
  int64_t total = 0;
  for (const auto& sequence : queue_) total += sequence->num_prompt_tokens;
  return total;
}

std::vector<RequestId> Scheduler::requests() const {
  std::vector<RequestId> ids;
  for (const auto& sequence : running_) ids.push_back(sequence->id);
  for (const auto& sequence : queue_) ids.push_back(sequence->id);
  return ids;
}

void Scheduler::enqueue(RequestId id, GenerateRequest request) {
  DHS_CHECK(!request.prompt.empty() && request.sampling.seed.has_value(), "request ", id.value,
            " was not validated");
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->num_prompt_tokens = static_cast<int64_t>(request.prompt.size());
  sequence->tokens = std::move(request.prompt);
  sequence->request = std::move(request);
  sequence->tokens.reserve(sequence->max_tokens());
  sequence->stop_tokens = sequence->request.sampling.stop_token_ids;
  if (!sequence->request.sampling.ignore_eos) {
    sequence->stop_tokens.insert(sequence->stop_tokens.end(), stop_at_.begin(), stop_at_.end());
  }
  sequence->usage.prompt_tokens = sequence->num_prompt_tokens;
  queue_.push_back(std::move(sequence));
}

std::optional<RequestUpdate> Scheduler::finish(RequestId id, FinishReason reason,
                                               absl::Status error) {
  auto take = [&](auto& sequences) -> std::optional<RequestUpdate> {
    const auto found = std::find_if(sequences.begin(), sequences.end(),
                                    [&](const auto& sequence) { return sequence->id == id; });
    if (found == sequences.end()) return std::nullopt;
    Finished finished{.reason = reason, .error = std::move(error), .usage = (*found)->usage};
    sequences.erase(found);
    return RequestUpdate{id, {}, std::move(finished)};
  };
  auto update = take(running_);
  return update.has_value() ? std::move(update) : take(queue_);
}

// ---- Plan ---------------------------------------------------------------------------------------

StepPlan Scheduler::plan(absl::Time now, std::vector<RequestUpdate>& updates) {
  end_expired(now, updates);
  admit();
  DHS_CHECK(num_steps_ - num_committed_steps_ <= 1, num_steps_ - num_committed_steps_,
            " steps are planned and not committed");
  StepPlan plan;
  plan.step = StepId(++num_steps_);
  for (size_t rank = 0; rank < kv_.size(); ++rank) {
    plan.ranks.push_back(plan_rank(static_cast<int>(rank)));
  }
  return plan;
}

RankPlan Scheduler::plan_rank(int rank) {
  RankPlan plan;
  int64_t budget = config_.max_batched_tokens;
  add_decodes(rank, plan, budget);
  add_prompt_chunks(rank, plan, budget);
  plan.retired_blocks = kv_[rank]->take_retired_blocks();
  plan.chunk_moves = kv_[rank]->rebalance();
  return plan;
}

void Scheduler::end_expired(absl::Time now, std::vector<RequestUpdate>& updates) {
  std::vector<RequestId> expired;
  auto collect = [&](const auto& sequences) {
    for (const auto& sequence : sequences) {
      if (sequence->request.deadline <= now) expired.push_back(sequence->id);
    }
  };
  collect(running_);
  collect(queue_);
  for (RequestId id : expired) {
    updates.push_back(*finish(id, FinishReason::kDeadline, absl::OkStatus()));
  }
}

int64_t Scheduler::num_running_on(int rank) const {
  return std::count_if(running_.begin(), running_.end(),
                       [&](const auto& sequence) { return sequence->rank == rank; });
}

std::vector<RankLoad> Scheduler::loads(int64_t max_tokens) const {
  std::vector<RankLoad> loads;
  for (size_t rank = 0; rank < kv_.size(); ++rank) {
    const int64_t running = num_running_on(static_cast<int>(rank));
    loads.push_back({.can_admit = running < config_.max_running && kv_[rank]->can_admit(max_tokens),
                     .optional_chunks = kv_[rank]->num_optional_chunks(),
                     .num_running = running});
  }
  return loads;
}

void Scheduler::admit() {
  while (!queue_.empty()) {
    Sequence& first = *queue_.front();
    const std::optional<int> rank = choose_rank(loads(first.max_tokens()));
    if (!rank.has_value()) return;
    std::optional<SequenceMemory> memory = kv_[*rank]->admit(first.max_tokens());
    DHS_CHECK(memory.has_value(), "rank ", *rank, " refuses request ", first.id.value);
    first.rank = *rank;
    first.memory = *std::move(memory);
    running_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
}

void Scheduler::add_decodes(int rank, RankPlan& plan, int64_t& budget) {
  for (const auto& sequence : running_) {
    if (sequence->rank != rank || !sequence->is_decoding() || sequence->is_ending()) continue;
    DHS_CHECK(budget > 0, "more running requests than tokens in a step");
    add_work(plan, *sequence, 1);
    --budget;
  }
}

void Scheduler::add_prompt_chunks(int rank, RankPlan& plan, int64_t& budget) {
  for (const auto& sequence : running_) {
    // Planned in this very step already, or with nothing left to compute.
    if (sequence->rank != rank || sequence->is_decoding() || sequence->is_ending()) continue;
    if (budget == 0) return;
    const int64_t num_tokens = std::min(budget, sequence->num_waiting_tokens());
    add_work(plan, *sequence, num_tokens);
    budget -= num_tokens;
  }
}

void Scheduler::add_work(RankPlan& plan, Sequence& sequence, int64_t num_tokens) {
  const SequenceWork work = work_of(sequence, num_tokens);
  sequence.num_computed_tokens += num_tokens;
  if (work.wants_token) {
    ++sequence.num_pending_tokens;
    sequence.latest_draw = static_cast<int32_t>(
        std::count_if(plan.work.begin(), plan.work.end(),
                      [](const SequenceWork& other) { return other.wants_token; }));
  }
  plan.work.push_back(work);
}

SequenceWork Scheduler::work_of(const Sequence& sequence, int64_t num_tokens) {
  static constexpr TokenId kBeingDrawn[] = {0};
  const SamplingParams& sampling = sequence.request.sampling;
  SequenceWork work;
  work.request = sequence.id;
  if (sequence.num_computed_tokens < sequence.num_tokens()) {
    work.tokens =
        std::span<const TokenId>(sequence.tokens).subspan(sequence.num_computed_tokens, num_tokens);
  } else {
    work.tokens = kBeingDrawn;
    work.previous_draw = sequence.latest_draw;
  }
  work.first_position = static_cast<Position>(sequence.num_computed_tokens);
  work.num_prompt_tokens =
      std::clamp<int64_t>(sequence.num_prompt_tokens - sequence.num_computed_tokens, 0, num_tokens);
  work.memory = &sequence.memory;
  work.wants_token = num_tokens == sequence.num_waiting_tokens();
  work.sampling = &sampling;
  work.seed = *sampling.seed;
  if (sequence.num_output_tokens() < sampling.min_tokens) {
    work.masked_tokens = sequence.stop_tokens;
  }
  return work;
}

// ---- Commit -------------------------------------------------------------------------------------

void Scheduler::commit(const StepPlan& plan, const StepResult& result,
                       std::vector<RequestUpdate>& updates) {
  DHS_CHECK(plan.step.value == num_committed_steps_ + 1, "commit of step ", plan.step.value,
            " after step ", num_committed_steps_);
  size_t num_sequences = 0;
  for (const RankPlan& rank : plan.ranks) num_sequences += rank.work.size();
  DHS_CHECK(result.sequences.size() == num_sequences, result.sequences.size(), " results for ",
            num_sequences, " sequences");
  ++num_committed_steps_;
  auto next_result = result.sequences.begin();
  for (const RankPlan& rank : plan.ranks) {
    for (const SequenceWork& work : rank.work) commit_work(work, *next_result++, updates);
  }
}

void Scheduler::commit_work(const SequenceWork& work, const SequenceResult& result,
                            std::vector<RequestUpdate>& updates) {
  const auto found = std::find_if(running_.begin(), running_.end(), [&](const auto& sequence) {
    return sequence->id == work.request;
  });
  if (found == running_.end()) return;  // it ended after this step was planned
  commit_sequence(**found, work, result, updates);
  if (!updates.empty() && updates.back().request == work.request &&
      updates.back().finished.has_value()) {
    running_.erase(found);
  }
}

void Scheduler::abandon(const StepPlan& plan) {
  DHS_CHECK(plan.step.value == num_committed_steps_ + 1, "step ", plan.step.value,
            " abandoned after step ", num_committed_steps_);
  ++num_committed_steps_;
}

void Scheduler::commit_sequence(Sequence& sequence, const SequenceWork& work,
                                const SequenceResult& result, std::vector<RequestUpdate>& updates) {
  sequence.usage.rows_selected += result.rows_selected;
  sequence.usage.rows_fetched += result.rows_fetched;
  DHS_CHECK(work.wants_token != result.tokens.empty(), "request ", work.request.value, " drew ",
            result.tokens.size(), " tokens");
  if (!work.wants_token) return;
  --sequence.num_pending_tokens;
  RequestUpdate update{work.request, {}, std::nullopt};
  for (const TokenOutput& output : result.tokens) {
    sequence.tokens.push_back(output.token);
    ++sequence.usage.completion_tokens;
    update.tokens.push_back(output);
    update.finished = end_of(sequence);
    if (update.finished.has_value()) break;
  }
  updates.push_back(std::move(update));
}

std::optional<Finished> Scheduler::end_of(const Sequence& sequence) const {
  const TokenId newest = sequence.tokens.back();
  const auto& stops = sequence.stop_tokens;
  if (std::find(stops.begin(), stops.end(), newest) != stops.end()) {
    return Finished{.reason = FinishReason::kStop, .stop_token = newest, .usage = sequence.usage};
  }
  if (sequence.num_tokens() == sequence.max_tokens()) {
    return Finished{.reason = FinishReason::kLength, .usage = sequence.usage};
  }
  return std::nullopt;
}

std::string Scheduler::check_invariants() const {
  for (size_t rank = 0; rank < kv_.size(); ++rank) {
    if (num_running_on(static_cast<int>(rank)) > config_.max_running) {
      return absl::StrCat("more requests run on rank ", rank, " than max_running");
    }
    const std::string wrong = kv_[rank]->check_invariants();
    if (!wrong.empty()) return wrong;
  }
  for (const auto& sequence : running_) {
    const bool computes = sequence->num_waiting_tokens() > 0 && !sequence->is_ending();
    if ((!computes && sequence->num_pending_tokens == 0) ||
        sequence->num_tokens() >= sequence->max_tokens()) {
      return absl::StrCat("request ", sequence->id.value, " runs with nothing to compute");
    }
    if (sequence->memory.max_tokens() != sequence->max_tokens()) {
      return absl::StrCat("request ", sequence->id.value, " runs without its memory");
    }
  }
  return "";
}

}  // namespace dhs
