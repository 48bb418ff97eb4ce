// Drafts: how many to ask for, what became of them, and the memory that follows from it.
#include <algorithm>
#include <cmath>

#include "scheduler/sequence.h"

namespace dhs {
namespace {

// Of a row's selection, about as much is not in that of the row before.
constexpr double kChurn = 0.3;

// How many rows of a group a decode step wants at once with so many drafts, in proportion.
double rows_with(const KvGeometry& geometry, int num_drafts) {
  return geometry.top_k * (1 + kChurn * num_drafts) + 1 + num_drafts;
}

// The geometry's are those of the most drafts.
int64_t decode_rows_with(const KvGeometry& geometry, int num_drafts, int most) {
  const double share = rows_with(geometry, num_drafts) / rows_with(geometry, most);
  const auto rows = std::ceil(static_cast<double>(geometry.decode_rows) * share);
  return std::clamp(static_cast<int64_t>(rows),
                    std::min<int64_t>(geometry.top_k + 1, geometry.decode_rows),
                    geometry.decode_rows);
}

}  // namespace

int Scheduler::draft_cap() const { return draft_policy_->cap(); }

// ---- The cap ------------------------------------------------------------------------------------

// By cap: how many times as many requests would run. Where none waits for memory, as many as do;
// else what each requires of it decides.
std::vector<double> Scheduler::requests_by_cap() const {
  std::vector<double> running(config_.draft.num_tokens + 1, 1.0);
  const auto num_waiting = std::count_if(waiting_.begin(), waiting_.end(),
                                         [](const auto& sequence) { return !sequence->is_paused; });
  const auto num_running = std::ssize(running_);
  if (num_waiting == 0 || num_running == 0) return running;
  int64_t tokens = 0;
  for (const auto& sequence : running_) tokens += sequence->num_tokens();
  const KvManager& kv = *kv_.front();
  const auto required = [&](int cap) {
    return static_cast<double>(kv.required_bytes(
        tokens / num_running, decode_rows_with(kv.geometry(), cap, config_.draft.num_tokens)));
  };
  const double places = static_cast<double>(config_.max_running) * std::ssize(kv_);
  const double most = std::min(places, static_cast<double>(num_running + num_waiting)) /
                      static_cast<double>(num_running);
  for (int cap = 0; cap < std::ssize(running); ++cap) {
    running[cap] = std::min(most, required(draft_cap()) / required(cap));
  }
  return running;
}

// Of every rank, or of none: false where a rank has no memory for more rows.
bool Scheduler::set_decode_rows(int cap) {
  const auto rows = [&](int with) {
    return decode_rows_with(kv_.front()->geometry(), with, config_.draft.num_tokens);
  };
  for (size_t rank = 0; rank < kv_.size(); ++rank) {
    if (kv_[rank]->set_decode_rows(rows(cap))) continue;
    while (rank-- > 0) kv_[rank]->set_decode_rows(rows(draft_cap()));
    return false;
  }
  return true;
}

void Scheduler::choose_draft_cap() {
  std::vector<const RequestDrafts*> requests;
  for (const auto& sequence : running_) {
    if (sequence->num_output_tokens() > 0) requests.push_back(&sequence->draft_record);
  }
  const int cap = draft_policy_->best_cap(requests, requests_by_cap());
  if (cap != draft_cap() && set_decode_rows(cap)) draft_policy_->set_cap(cap);
}

// ---- A step -------------------------------------------------------------------------------------

// One that computes nothing is none.
void Scheduler::begin_drafts() {
  bool has_work = false;
  bool has_prompts = false;
  for (const auto& sequence : running_) {
    has_work = has_work || sequence->can_be_planned();
    has_prompts = has_prompts || sequence->has_prompt_to_compute();
  }
  if (has_work) draft_policy_->begin_step(has_prompts);
}

// ---- What became of them ------------------------------------------------------------------------

void Scheduler::learn_drafts(const SequenceWork& work, const SequenceResult& result,
                             Sequence& sequence) {
  if (work.num_prompt_tokens > 0 || result.tokens.empty()) return;
  const int64_t num_accepted = std::ssize(result.tokens) - 1;
  if (work.num_draft_tokens > 0) {
    draft_counts_.add(work.num_draft_tokens, num_accepted);
    sequence.usage.drafts_verified += work.num_draft_tokens;
    sequence.usage.drafts_accepted += num_accepted;
  }
  draft_policy_->observe(sequence.draft_record, {.num_verified = work.num_draft_tokens,
                                                 .num_accepted = num_accepted,
                                                 .rows_fetched = result.rows_fetched});
}

void Scheduler::learn_drafts(const StepPlan& plan, absl::Duration elapsed) {
  int64_t prompt_tokens = 0;  // of the rank that has the most: the others wait for it
  bool is_proposing = false;
  for (const RankPlan& rank : plan.ranks) {
    int64_t tokens = 0;
    for (const SequenceWork& work : rank.work) {
      tokens += work.num_prompt_tokens;
      is_proposing = is_proposing || work.num_tokens_to_draft > 0;
    }
    prompt_tokens = std::max(prompt_tokens, tokens);
  }
  draft_policy_->end_step(prompt_tokens, is_proposing, elapsed);
}

// As many as were asked for and can be of use: the step that verifies them draws one token more.
// None where a token after the newest is being drawn already: they would not follow it, and those
// that are to come follow that token.
void Scheduler::keep_drafts(Sequence& sequence, const SequenceResult& result) const {
  sequence.draft_record.confidence.clear();
  if (sequence.num_pending_tokens > 0) return;
  const int64_t num_asked = std::exchange(sequence.num_drafts_to_come, 0);
  if (sequence.memory.is_parked()) return;
  const int64_t most = std::min(num_asked, sequence.max_tokens() - sequence.num_tokens() - 1);
  if (sequence.lookup.has_value()) {
    sequence.drafts = sequence.lookup->propose(sequence.tokens, most);
    return;
  }
  const int64_t kept = std::min(std::ssize(result.proposed), most);
  sequence.drafts.assign(result.proposed.begin(), result.proposed.begin() + kept);
  if (result.confidence.empty()) return;
  DHS_CHECK(result.confidence.size() == result.proposed.size(), result.confidence.size(),
            " confidences of ", result.proposed.size(), " drafts");
  sequence.draft_record.confidence.assign(result.confidence.begin(),
                                          result.confidence.begin() + kept);
}

}  // namespace dhs
