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
// Order: requests start first come, first served; one that does not fit yet holds those behind it,
// so that a long request is never starved. A step takes one token of every decoding request, then
// fills max_batched_tokens with prompt chunks, oldest request first.
//
// Where several ranks hold requests of their own (data mode), each has its own accounting and its
// own part of the plan, and max_running and max_batched_tokens hold for each. Where all ranks work
// on the same requests (tensor mode), they are one to the scheduler.
//
// Owned by the engine thread.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/time/time.h>

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/config.h"
#include "dhisparse/kv.h"
#include "dhisparse/sampling.h"

namespace dhs {

enum class FinishReason { kStop, kLength, kCancelled, kDeadline, kError };

struct GenerateRequest {
  std::vector<TokenId> prompt;  // not empty; every id < vocab_size
  SamplingParams sampling;
  absl::Time deadline = absl::InfiniteFuture();
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_prompt_tokens = 0;  // taken from the prefix cache
  int64_t rows_selected = 0;         // rows the request's queries selected, all index groups
  int64_t rows_fetched = 0;          // of them, fetched from the host
};

struct Finished {
  FinishReason reason = FinishReason::kStop;
  std::optional<TokenId> stop_token =
      std::nullopt;  // kStop by token: which one; it is part of the output tokens
  absl::Status error = absl::OkStatus();  // kError only
  Usage usage = {};
};

// ---- A step, as data ----------------------------------------------------------------------------

struct SequenceWork {  // one sequence's query rows in this step
  RequestId request;
  std::span<const TokenId> tokens;  // a prompt chunk, or the newest token
  // Set when the newest token is not known yet: the draw of the step before that brings it.
  std::optional<int32_t> previous_draw;
  Position first_position = 0;             // of tokens[0]
  const SequenceMemory* memory = nullptr;  // covers every position up to the last row
  int64_t num_prompt_tokens = 0;           // of tokens; the others were generated
  bool wants_token = false;                // false for a chunk that is not the prompt's last
  const SamplingParams* sampling = nullptr;
  uint64_t seed = 0;
  std::span<const TokenId> masked_tokens;  // that may not be drawn
};

struct RankPlan {                           // one rank's part of a step
  std::vector<SequenceWork> work;           // decoding sequences first, then prompt chunks
  std::vector<HostBlockId> retired_blocks;  // applied first: their slots are forgotten
  std::vector<ChunkMove> chunk_moves;       // applied next, in order

  int64_t num_rows() const;
};

struct StepPlan {
  StepId step;
  std::vector<RankPlan> ranks;  // at least one

  bool has_work() const;
};

struct SequenceResult {             // one per SequenceWork, in its order, rank by rank
  std::vector<TokenOutput> tokens;  // empty unless wants_token
  int64_t rows_selected = 0;
  int64_t rows_fetched = 0;
};

struct StepResult {
  std::vector<SequenceResult> sequences;
};

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
};
// The rank, of those that can admit the request, that would have the most optional memory per
// running request with it; the lowest of equals. nullopt when none can.
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

  // Precondition: `plan` is the oldest not committed and `result` answers it. Reads no span and no
  // pointer of the plan.
  void commit(const StepPlan& plan, const StepResult& result, std::vector<RequestUpdate>& updates);

  // In place of commit, when the step failed: its requests are to be finished by the caller.
  void abandon(const StepPlan& plan);

  bool idle() const { return running_.empty() && queue_.empty(); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_queued() const { return static_cast<int64_t>(queue_.size()); }
  int64_t num_queued_tokens() const;
  std::vector<RequestId> requests() const;

  // The first violated invariant, or empty.
  std::string check_invariants() const;

 private:
  struct Sequence;

  void end_expired(absl::Time now, std::vector<RequestUpdate>& updates);
  void admit();
  std::vector<RankLoad> loads(int64_t max_tokens) const;
  int64_t num_running_on(int rank) const;
  RankPlan plan_rank(int rank);
  void add_decodes(int rank, RankPlan& plan, int64_t& budget);
  void add_prompt_chunks(int rank, RankPlan& plan, int64_t& budget);
  static void add_work(RankPlan& plan, Sequence& sequence, int64_t num_tokens);
  static SequenceWork work_of(const Sequence& sequence, int64_t num_tokens);
  void commit_work(const SequenceWork& work, const SequenceResult& result,
                   std::vector<RequestUpdate>& updates);
  void commit_sequence(Sequence& sequence, const SequenceWork& work, const SequenceResult& result,
                       std::vector<RequestUpdate>& updates);
  std::optional<Finished> end_of(const Sequence& sequence) const;

  const SchedulerConfig config_;
  const std::vector<KvManager*> kv_;  // by rank
  const std::vector<TokenId> stop_at_;
  uint64_t num_steps_ = 0;  // planned
  uint64_t num_committed_steps_ = 0;
  std::deque<std::unique_ptr<Sequence>> queue_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of admission
};

}  // namespace dhs
