// scheduler: the state of every request, and which tokens the next step computes.
//
// Pure: no thread, no clock (`now` is passed in), no device. plan() turns state into a StepPlan,
// plain data that an executor carries out; commit() takes the drawn tokens back. So the simulator
// and every replay drive this very code.
//
// A step may be planned before the one before it is committed, so that the device never waits for
// the host: a decoding request's next row then waits for a token that is still being drawn. What
// such a row computes for a request that turns out to have ended is dropped.
//
// Order: higher priority first, then first come, first served; a request that does not fit yet
// holds those behind it, so that a long one is never starved; where it waits for host memory, only
// those that hold none. When memory or places are short,
// requests of lower priority are parked, the latest first; so is whoever cannot cover its next
// token. A parked request keeps its host blocks and its place, and goes on where it was.
//
// A step takes one token of every decoding request, with the drafts that were proposed to follow it
// and have room in max_batched_tokens; a request whose drafts are being verified or proposed is not
// planned ahead, nor is one with penalties, whose logits depend on the newest token. The executor
// proposes drafts, or, with ngram_max set, prompt lookup does. How many are asked for and verified
// is fixed, or adaptive (src/scheduler/draft_policy.h): it never depends on a draft's own token, so
// that the output has the target's distribution.
//
// Of prompts it takes what max_batched_tokens leaves, shared equally among the requests that wait
// for them; beside decoding requests no more than prefill_chunk, and no more than lets the step end
// within tpot_target.
//
// Where several ranks hold requests of their own (data mode), each has its own accounting and its
// own part of the plan, and max_running and max_batched_tokens hold for each. Where all ranks work
// on the same requests (tensor mode), they are one to the scheduler.
//
// Owned by the engine thread.
#pragma once

#include <absl/time/time.h>

#include <memory>
#include <span>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/config.h"
#include "dhisparse/draft_counts.h"
#include "dhisparse/kv.h"
#include "dhisparse/request.h"
#include "dhisparse/step.h"
#include "dhisparse/step_cost.h"

namespace dhs {

class DraftPolicy;

// What a request's owner is told.
struct RequestUpdate {
  RequestId request;
  std::vector<TokenOutput> tokens;
  std::optional<Finished> finished;
};

// ---- Placement ----------------------------------------------------------------------------------

struct RankLoad {
  bool can_admit = false;       // the request in question
  int64_t optional_chunks = 0;  // that no running request requires
  int64_t num_running = 0;
  int64_t cached_tokens = 0;  // of the request's prompt, where it is half of it or more
};
// The rank, of those that can admit the request, that has most of its prompt cached; of equals the
// one that would have the most optional memory per running request with it, then the lowest.
// nullopt when none can.
std::optional<int> choose_rank(std::span<const RankLoad> ranks);

// ---- The scheduler ------------------------------------------------------------------------------

class Scheduler {
 public:
  // kv: of each rank that holds requests of its own; all of one geometry, capacity and mode. They
  // must outlive the scheduler. stop_at: the model's end-of-sequence tokens.
  Scheduler(const SchedulerConfig& config, std::vector<KvManager*> kv,
            std::vector<TokenId> stop_at);
  ~Scheduler();

  // Precondition: the request is valid, its seed is set, and kv.fits(prompt + max_tokens).
  void enqueue(RequestId id, GenerateRequest request);

  // Takes the request out, whatever it is doing, and frees all it holds. nullopt when it is
  // unknown.
  std::optional<RequestUpdate> finish(RequestId id, FinishReason reason, absl::Status error);

  // Ends requests whose deadline passed, admits what fits, and lays out the next step. The plan's
  // spans and pointers are valid until the next call of anything here: an executor reads them when
  // the plan is submitted. Precondition: at most one plan is not committed yet.
  StepPlan plan(absl::Time now, std::vector<RequestUpdate>& updates);

  // Precondition: `plan` is the oldest not committed and `result` answers it. Follows no span
  // and no pointer of the plan.
  void commit(const StepPlan& plan, const StepResult& result, std::vector<RequestUpdate>& updates);

  // In place of commit, when the step failed: its requests are to be finished by the caller.
  void abandon(const StepPlan& plan);

  // A paused request is parked at the next plan and stays so; one that waits is stepped over.
  void set_paused(RequestId id, bool is_paused);

  // From the next plan on. Who has no place any more is parked, the last in order first.
  // Precondition: as of the constructor; as of KvManager::set_residency.
  void set_config(const SchedulerConfig& config);
  void set_residency(const ResidencyConfig& residency);

  const SchedulerConfig& config() const { return config_; }
  bool idle() const { return running_.empty() && waiting_.empty(); }
  // Whether there is nothing to plan: every request there is, if any, is paused.
  bool is_at_rest() const;
  absl::Time next_deadline() const;  // of all requests
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_queued() const;  // never started
  int64_t num_parked() const { return std::ssize(waiting_) - num_queued(); }
  int64_t num_queued_tokens() const;
  const DraftCounts& draft_counts() const { return draft_counts_; }
  // The most drafts that a request verifies at present; adaptive between 0 and num_draft_tokens.
  int draft_cap() const;
  // Since start: requests that made place for others; all that left the device; that came back.
  int64_t num_preemptions() const { return num_preemptions_; }
  int64_t num_parks() const { return num_parks_; }
  int64_t num_resumes() const { return num_resumes_; }
  std::vector<RequestId> requests() const;

  // The first violated invariant, or empty.
  std::string check_invariants() const;

 private:
  struct Sequence;
  using Sequences = std::vector<std::unique_ptr<Sequence>>;

  // scheduler.cc
  Sequence* find(RequestId id) const;
  void end_expired(absl::Time now, std::vector<RequestUpdate>& updates);
  void learn_cost(const StepPlan& plan, absl::Duration elapsed);
  void learn_traffic(const StepPlan& plan, const StepResult& result);
  void commit_work(const SequenceWork& work, const SequenceResult& result,
                   std::vector<RequestUpdate>& updates);
  std::optional<Finished> commit_tokens(Sequence& sequence, const SequenceResult& result,
                                        RequestUpdate& update);
  std::optional<Finished> end_of(const Sequence& sequence) const;
  // admission.cc
  void park_paused();
  bool park_last_on(int rank);
  bool cover(Sequence& sequence);
  void cover_running();
  void start_waiting();
  bool has_host_room(const Sequence& sequence) const;
  bool start(Sequence& sequence);
  bool start_parked(Sequence& sequence);
  bool start_new(Sequence& sequence);
  bool make_place(const Sequence& sequence);
  bool make_place_on(int rank, const Sequence& sequence);
  std::vector<Sequence*> lower_on(int rank, const Sequence& sequence) const;
  void park(Sequence& sequence);
  std::vector<RankLoad> loads(const KvDemand& demand) const;
  int64_t num_running_on(int rank) const;
  // plan.cc
  RankPlan plan_rank(int rank);
  int64_t prompt_budget(int64_t num_decode_rows) const;
  void add_decodes(int rank, RankPlan& plan);
  void add_prompt_chunks(int rank, RankPlan& plan);
  void add_work(RankPlan& plan, Sequence& sequence, int64_t num_tokens);
  void add_drafts(Sequence& sequence, SequenceWork& work) const;
  // drafts.cc
  void choose_draft_cap();
  bool set_decode_rows(int cap);
  std::vector<double> requests_by_cap() const;
  void begin_drafts();
  void learn_drafts(const SequenceWork& work, const SequenceResult& result, Sequence& sequence);
  void learn_drafts(const StepPlan& plan, absl::Duration elapsed);
  void keep_drafts(Sequence& sequence, const SequenceResult& result) const;
  static SequenceWork work_of(const Sequence& sequence, int64_t num_tokens);

  SchedulerConfig config_;
  const std::vector<KvManager*> kv_;  // by rank
  const std::vector<TokenId> stop_at_;
  StepCost step_cost_;
  std::unique_ptr<DraftPolicy> draft_policy_;
  DraftCounts draft_counts_;
  absl::Time now_ = absl::InfinitePast();  // of the latest plan
  uint64_t num_steps_ = 0;                 // planned
  uint64_t num_committed_steps_ = 0;
  uint64_t num_arrivals_ = 0;
  int64_t num_preemptions_ = 0;
  int64_t num_parks_ = 0;
  int64_t num_resumes_ = 0;
  Sequences waiting_;  // queued and parked, in order
  Sequences running_;  // in the same order
};

}  // namespace dhs
