#include "dhisparse/scheduler.h"

#include <algorithm>

#include "scheduler/sequence.h"

namespace dhs {

int64_t RankPlan::num_rows() const {
  int64_t rows = 0;
  for (const SequenceWork& item : work) rows += std::ssize(item.tokens);
  return rows;
}

bool StepPlan::has_work() const {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const RankPlan& rank) { return !rank.work.empty(); });
}

// ---- Requests -----------------------------------------------------------------------------------

void Scheduler::Sequence::insert(std::unique_ptr<Sequence> sequence, Sequences& sequences) {
  const auto after = std::upper_bound(
      sequences.begin(), sequences.end(), sequence,
      [](const auto& left, const auto& right) { return left->goes_before(*right); });
  sequences.insert(after, std::move(sequence));
}

std::unique_ptr<Scheduler::Sequence> Scheduler::Sequence::take(const Sequence& sequence,
                                                               Sequences& sequences) {
  const auto found = std::find_if(sequences.begin(), sequences.end(),
                                  [&](const auto& other) { return other.get() == &sequence; });
  DHS_CHECK(found != sequences.end(), "request ", sequence.id.value, " is not where it should be");
  std::unique_ptr<Sequence> taken = std::move(*found);
  sequences.erase(found);
  return taken;
}

namespace {

// Of one record, over the link; 0: not known.
double record_fetch_s(const KvManager& kv) {
  const int64_t link_bytes_per_s = kv.capacity().link_bytes_per_s;
  if (link_bytes_per_s == 0) return 0;
  int64_t bytes = 0;
  for (const GroupGeometry& group : kv.geometry().groups) bytes += group.record_bytes;
  const auto num_groups = static_cast<double>(kv.geometry().groups.size());
  return static_cast<double>(bytes) / num_groups / static_cast<double>(link_bytes_per_s);
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, std::vector<KvManager*> kv,
                     std::vector<TokenId> stop_at)
    : config_(config), kv_(std::move(kv)), stop_at_(std::move(stop_at)) {
  DHS_CHECK(!kv_.empty(), "a scheduler of no rank");
  DHS_CHECK(config_.max_running <= config_.max_batched_tokens, "max_running ", config_.max_running,
            " exceeds max_batched_tokens ", config_.max_batched_tokens);
  draft_policy_ = std::make_unique<DraftPolicy>(config_.draft.num_tokens, config_.draft.is_adaptive,
                                                record_fetch_s(*kv_.front()));
}

Scheduler::~Scheduler() = default;

int64_t Scheduler::num_queued() const {
  return std::count_if(waiting_.begin(), waiting_.end(),
                       [](const auto& sequence) { return !sequence->is_admitted; });
}

int64_t Scheduler::num_queued_tokens() const {
  int64_t total = 0;
  for (const auto& sequence : waiting_) {
    if (!sequence->is_admitted) total += sequence->num_prompt_tokens;
  }
  return total;
}

bool Scheduler::is_at_rest() const {
  return running_.empty() && std::all_of(waiting_.begin(), waiting_.end(),
                                         [](const auto& sequence) { return sequence->is_paused; });
}

absl::Time Scheduler::next_deadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Sequences* sequences : {&running_, &waiting_}) {
    for (const auto& sequence : *sequences) next = std::min(next, sequence->request.deadline);
  }
  return next;
}

std::vector<RequestId> Scheduler::requests() const {
  std::vector<RequestId> ids;
  for (const auto& sequence : running_) ids.push_back(sequence->id);
  for (const auto& sequence : waiting_) ids.push_back(sequence->id);
  return ids;
}

Scheduler::Sequence* Scheduler::find(RequestId id) const {
  for (const Sequences* sequences : {&running_, &waiting_}) {
    for (const auto& sequence : *sequences) {
      if (sequence->id == id) return sequence.get();
    }
  }
  return nullptr;
}

void Scheduler::enqueue(RequestId id, GenerateRequest request) {
  DHS_CHECK(!request.prompt.empty() && request.sampling.seed.has_value(), "request ", id.value,
            " was not validated");
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->arrival = ++num_arrivals_;
  sequence->num_prompt_tokens = static_cast<int64_t>(request.prompt.size());
  sequence->num_lookahead_tokens = config_.draft.num_lookahead_tokens;
  sequence->tokens = std::move(request.prompt);
  sequence->request = std::move(request);
  SamplingParams& sampling = sequence->request.sampling;
  std::sort(sampling.logit_bias.begin(), sampling.logit_bias.end(),
            [](const LogitBias& left, const LogitBias& right) { return left.token < right.token; });
  sequence->seen_tokens = SeenTokens(sampling, sequence->tokens);
  sequence->tokens.reserve(sequence->max_tokens());
  sequence->stop_tokens = sampling.stop_token_ids;
  if (!sampling.ignore_eos) {
    sequence->stop_tokens.insert(sequence->stop_tokens.end(), stop_at_.begin(), stop_at_.end());
  }
  const DraftSchedule& draft = config_.draft;
  if (draft.ngram_max > 0) sequence->lookup.emplace(draft.ngram_min, draft.ngram_max);
  sequence->usage.prompt_tokens = sequence->num_prompt_tokens;
  Sequence::insert(std::move(sequence), waiting_);
}

void Scheduler::set_paused(RequestId id, bool is_paused) {
  if (Sequence* sequence = find(id)) sequence->is_paused = is_paused;
}

std::optional<RequestUpdate> Scheduler::finish(RequestId id, FinishReason reason,
                                               absl::Status error) {
  for (Sequences* sequences : {&running_, &waiting_}) {
    const auto found = std::find_if(sequences->begin(), sequences->end(),
                                    [&](const auto& sequence) { return sequence->id == id; });
    if (found == sequences->end()) continue;
    Finished finished{.reason = reason, .error = std::move(error), .usage = (*found)->usage};
    sequences->erase(found);
    return RequestUpdate{id, {}, std::move(finished)};
  }
  return std::nullopt;
}

void Scheduler::end_expired(absl::Time now, std::vector<RequestUpdate>& updates) {
  std::vector<RequestId> expired;
  for (const Sequences* sequences : {&running_, &waiting_}) {
    for (const auto& sequence : *sequences) {
      if (sequence->request.deadline <= now) expired.push_back(sequence->id);
    }
  }
  for (RequestId id : expired) {
    updates.push_back(*finish(id, FinishReason::kDeadline, absl::OkStatus()));
  }
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
  learn_cost(plan, result.elapsed);
  learn_traffic(plan, result);
  auto next_result = result.sequences.begin();
  for (const RankPlan& rank : plan.ranks) {
    for (const SequenceWork& work : rank.work) commit_work(work, *next_result++, updates);
  }
  if (plan.has_work()) learn_drafts(plan, result.elapsed);
}

void Scheduler::learn_cost(const StepPlan& plan, absl::Duration elapsed) {
  int64_t num_decodes = 0;
  int64_t prompt_tokens = 0;  // of the rank that has the most: the others wait for it
  for (const RankPlan& rank : plan.ranks) {
    int64_t tokens = 0;
    for (const SequenceWork& work : rank.work) {
      num_decodes += work.num_prompt_tokens == 0 ? 1 : 0;
      tokens += work.num_prompt_tokens;
    }
    prompt_tokens = std::max(prompt_tokens, tokens);
  }
  step_cost_.observe(num_decodes, prompt_tokens, elapsed);
}

void Scheduler::learn_traffic(const StepPlan& plan, const StepResult& result) {
  if (result.traffic.empty()) return;
  DHS_CHECK(result.traffic.size() == kv_.size(), "traffic of ", result.traffic.size(), " ranks");
  for (size_t rank = 0; rank < kv_.size(); ++rank) {
    const std::vector<SequenceWork>& work = plan.ranks[rank].work;
    const bool is_decode =
        !work.empty() && std::all_of(work.begin(), work.end(), [](const SequenceWork& item) {
          return item.num_prompt_tokens == 0;
        });
    if (is_decode) kv_[rank]->observe(result.traffic[rank], result.elapsed);
  }
}

void Scheduler::abandon(const StepPlan& plan) {
  DHS_CHECK(plan.step.value == num_committed_steps_ + 1, "step ", plan.step.value,
            " abandoned after step ", num_committed_steps_);
  if (plan.has_work()) draft_policy_->abandon_step();
  ++num_committed_steps_;
}

void Scheduler::commit_work(const SequenceWork& work, const SequenceResult& result,
                            std::vector<RequestUpdate>& updates) {
  Sequence* sequence = find(work.request);
  if (sequence == nullptr) return;  // it ended after this step was planned
  sequence->usage.rows_selected += result.rows_selected;
  sequence->usage.rows_fetched += result.rows_fetched;
  learn_drafts(work, result, *sequence);
  const auto num_drawn = std::ssize(result.tokens);
  DHS_CHECK(num_drawn <= (work.wants_token ? 1 + work.num_draft_tokens : 0) &&
                (num_drawn > 0 || !work.wants_token),
            "request ", work.request.value, " drew ", num_drawn, " tokens");
  // The step is done: what it wrote is in the host blocks. Accepted drafts are published with the
  // step after: they are not among the tokens yet.
  const int64_t num_durable = work.first_position + std::ssize(work.tokens) - work.num_draft_tokens;
  kv_[sequence->rank]->publish(sequence->memory,
                               std::span<const TokenId>(sequence->tokens).first(num_durable));
  // Ahead of its first draft, so that a long prompt is not taken over in one step.
  if (sequence->lookup.has_value()) {
    sequence->lookup->extend(std::span<const TokenId>(sequence->tokens).first(num_durable));
  }
  if (!work.wants_token) return;
  --sequence->num_pending_tokens;
  sequence->num_computed_tokens -= work.num_draft_tokens - (num_drawn - 1);
  RequestUpdate update{work.request, {}, std::nullopt};
  update.finished = commit_tokens(*sequence, result, update);
  const bool is_finished = update.finished.has_value();
  updates.push_back(std::move(update));
  if (!is_finished) keep_drafts(*sequence, result);
  if (is_finished) {
    Sequence::take(*sequence, sequence->memory.is_parked() ? waiting_ : running_);
  }
}

std::optional<Finished> Scheduler::commit_tokens(Sequence& sequence, const SequenceResult& result,
                                                 RequestUpdate& update) {
  for (const TokenOutput& output : result.tokens) {
    sequence.tokens.push_back(output.token);
    sequence.seen_tokens.add_output(output.token);
    ++sequence.usage.completion_tokens;
    update.tokens.push_back(output);
    if (auto finished = end_of(sequence)) return finished;
  }
  return std::nullopt;
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

// ---- Invariants ---------------------------------------------------------------------------------

std::string Scheduler::check_invariants() const {
  for (size_t rank = 0; rank < kv_.size(); ++rank) {
    if (num_running_on(static_cast<int>(rank)) > config_.max_running) {
      return absl::StrCat("more requests run on rank ", rank, " than max_running");
    }
    const std::string wrong = kv_[rank]->check_invariants();
    if (!wrong.empty()) return wrong;
  }
  auto in_order = [](const auto& left, const auto& right) { return left->goes_before(*right); };
  if (!std::is_sorted(running_.begin(), running_.end(), in_order) ||
      !std::is_sorted(waiting_.begin(), waiting_.end(), in_order)) {
    return "requests are out of order";
  }
  for (const auto& sequence : running_) {
    const bool computes = sequence->num_waiting_tokens() > 0 && !sequence->is_ending();
    if ((!computes && sequence->num_pending_tokens == 0) ||
        sequence->num_tokens() >= sequence->max_tokens()) {
      return absl::StrCat("request ", sequence->id.value, " runs with nothing to compute");
    }
    if (sequence->memory.max_tokens() != sequence->max_tokens() ||
        sequence->memory.device_tokens() < sequence->num_computed_tokens) {
      return absl::StrCat("request ", sequence->id.value, " runs without its memory");
    }
  }
  for (const auto& sequence : waiting_) {
    if (sequence->is_admitted != (sequence->memory.max_tokens() > 0) ||
        !sequence->memory.is_parked()) {
      return absl::StrCat("request ", sequence->id.value, " waits with memory on the device");
    }
    if (sequence->num_drafts_to_come > 0 || !sequence->drafts.empty()) {
      return absl::StrCat("request ", sequence->id.value, " waits and has drafts");
    }
  }
  return "";
}

}  // namespace dhs
