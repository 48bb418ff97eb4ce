// What the next step computes.
#include <algorithm>
#include <utility>

#include "scheduler/sequence.h"
#include "scheduler/shares.h"

namespace dhs {

StepPlan Scheduler::plan(absl::Time now, std::vector<RequestUpdate>& updates) {
  DHS_CHECK(num_steps_ - num_committed_steps_ <= 1, num_steps_ - num_committed_steps_,
            " steps are planned and not committed");
  now_ = now;
  end_expired(now, updates);
  park_paused();
  if (draft_policy_->is_due()) choose_draft_cap();
  cover_running();
  start_waiting();
  begin_drafts();
  for (const auto& sequence : running_) {
    const std::optional<absl::Time> arrived = sequence->request.arrived;
    if (arrived.has_value() && !sequence->usage.queued.has_value()) {
      sequence->usage.queued = now - *arrived;
    }
  }
  StepPlan plan;
  plan.step = StepId(++num_steps_);
  for (size_t rank = 0; rank < kv_.size(); ++rank) {
    plan.ranks.push_back(plan_rank(static_cast<int>(rank)));
  }
  return plan;
}

RankPlan Scheduler::plan_rank(int rank) {
  RankPlan plan;
  add_decodes(rank, plan);
  add_prompt_chunks(rank, plan);
  plan.retired_blocks = kv_[rank]->take_retired_blocks();
  plan.chunk_moves = kv_[rank]->rebalance(now_);
  plan.restores = kv_[rank]->take_restores();
  plan.refill_rows = kv_[rank]->refill_rows();
  return plan;
}

// Drafts take what max_batched_tokens leaves when every decoding request has its row.
void Scheduler::add_decodes(int rank, RankPlan& plan) {
  const auto decodes_here = [&](const auto& sequence) {
    return sequence->rank == rank && sequence->is_decoding() && sequence->can_be_planned();
  };
  int64_t num_left =
      config_.max_batched_tokens - std::count_if(running_.begin(), running_.end(), decodes_here);
  for (const auto& sequence : running_) {
    if (!decodes_here(sequence)) continue;
    const int64_t num_drafts = draft_policy_->num_to_verify(
        sequence->draft_record, std::min(std::ssize(sequence->drafts), num_left));
    sequence->drafts.resize(num_drafts);
    num_left -= num_drafts;
    add_work(plan, *sequence, 1);
  }
}

int64_t Scheduler::prompt_budget(int64_t num_decode_rows) const {
  const int64_t left = config_.max_batched_tokens - num_decode_rows;
  if (num_decode_rows == 0) return left;
  const int64_t most = std::min<int64_t>(left, config_.prefill_chunk);
  return step_cost_.max_prompt_tokens(config_.tpot_target, most);
}

void Scheduler::add_prompt_chunks(int rank, RankPlan& plan) {
  std::vector<Sequence*> sequences;
  std::vector<int64_t> wanted;
  for (const auto& sequence : running_) {
    if (sequence->rank != rank || !sequence->has_prompt_to_compute()) continue;
    sequences.push_back(sequence.get());
    wanted.push_back(sequence->num_waiting_tokens());
  }
  const std::vector<int64_t> shares = share_out(prompt_budget(plan.num_rows()), wanted);
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (shares[i] > 0) add_work(plan, *sequences[i], shares[i]);
  }
}

void Scheduler::add_work(RankPlan& plan, Sequence& sequence, int64_t num_tokens) {
  SequenceWork work = work_of(sequence, num_tokens);
  if (work.wants_token) add_drafts(sequence, work);
  sequence.num_computed_tokens += std::ssize(work.tokens);
  if (work.wants_token) {
    ++sequence.num_pending_tokens;
    sequence.latest_draw = static_cast<int32_t>(
        std::count_if(plan.work.begin(), plan.work.end(),
                      [](const SequenceWork& other) { return other.wants_token; }));
  }
  plan.work.push_back(work);
}

// The row becomes the newest token and its drafts.
void Scheduler::add_drafts(Sequence& sequence, SequenceWork& work) const {
  const int num_asked = draft_policy_->num_to_ask(sequence.draft_record);
  sequence.num_drafts_to_come = num_asked;
  if (!sequence.lookup.has_value()) work.num_tokens_to_draft = num_asked;
  if (sequence.drafts.empty()) return;
  sequence.verify_row.assign(work.tokens.begin(), work.tokens.end());
  sequence.verify_row.insert(sequence.verify_row.end(), sequence.drafts.begin(),
                             sequence.drafts.end());
  work.tokens = sequence.verify_row;
  work.num_draft_tokens = static_cast<int32_t>(std::exchange(sequence.drafts, {}).size());
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
  work.seen_tokens = sequence.seen_tokens.tokens();
  work.seed = *sampling.seed;
  const int64_t after = sequence.num_computed_tokens + num_tokens;
  if (after < sequence.num_tokens()) work.next_token = sequence.tokens[after];
  const int64_t num_masked = sampling.min_tokens - sequence.num_output_tokens();
  if (num_masked > 0) {
    work.masked_tokens = sequence.stop_tokens;
    work.num_masked_draws = static_cast<int32_t>(num_masked);
  }
  return work;
}

}  // namespace dhs
