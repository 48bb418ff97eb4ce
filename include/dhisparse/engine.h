// engine: requests in, tokens out.
//
// One engine thread owns scheduler, KV accounting and model; it runs plan -> execute -> commit
// until stopped. Everything else reaches it through bounded queues. Results leave on one output
// thread: a slow sink delays other sinks, and steps only once thousands of results wait.
#pragma once

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/config.h"
#include "dhisparse/draft_counts.h"
#include "dhisparse/figures.h"
#include "dhisparse/sampling.h"
#include "dhisparse/scheduler.h"

namespace dhs {

// Called on the engine's output thread, in order; on_finished is the last call, exactly once.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void on_tokens(const std::vector<TokenOutput>& tokens) = 0;
  virtual void on_finished(const Finished& finished) = 0;
};

struct GroupState {  // one index group's row cache
  int32_t first_layer = 0;
  int32_t num_layers = 0;
  int64_t record_bytes = 0;
  int64_t capacity_rows = 0;
  int64_t resident_rows = 0;
  int64_t chunks = 0;
  int64_t chunks_required = 0;  // of them, by running requests; the others are optional
  // Counters since start.
  int64_t chunks_grown = 0;
  int64_t chunks_released = 0;
  int64_t rows_selected = 0;  // (query row, row) pairs
  int64_t rows_hit = 0;       // distinct rows of a pass that were resident
  int64_t rows_missed = 0;    // distinct rows of a pass that were fetched from the host
  int64_t fetched_bytes = 0;
  int64_t rows_refilled = 0;  // fetched again before they were wanted; no misses
  int64_t refilled_bytes = 0;
  int64_t rows_evicted = 0;
  int64_t rows_released = 0;

  int64_t rows_needed() const { return rows_hit + rows_missed; }
};

struct EngineState {
  std::string model_name;
  std::string device;
  std::string residency_mode;
  bool link_emulated = false;
  absl::Duration emulated_link_time;  // that steps spent on it since start
  std::string failure;                // why no step can run any more; empty: they can
  int64_t max_running = 0;
  int64_t max_batched_tokens = 0;
  int64_t steps = 0;
  int64_t running_requests = 0;
  int64_t queued_requests = 0;
  int64_t queued_tokens = 0;
  int64_t parked_requests = 0;
  int64_t peak_running_requests = 0;
  int64_t finished_requests = 0;
  int64_t prompt_tokens = 0;  // processed since start
  int64_t generated_tokens = 0;
  int64_t cached_prompt_tokens = 0;  // taken from the prefix cache instead
  int64_t preemptions = 0;           // times a running request was parked to make place
  int64_t parks = 0;                 // times one was parked, for whatever reason
  int64_t resumes = 0;
  int64_t refused_queue_full = 0;  // requests
  int64_t refused_unavailable = 0;
  PrefixCounts prefix;
  std::string draft_kind;  // "none", "dflash2", ...
  int64_t draft_cap = 0;   // drafts that a request verifies in a step at present, at most
  DraftCounts drafts;
  int64_t device_pool_bytes = 0;
  int64_t device_index_bytes = 0;
  int64_t device_draft_bytes = 0;  // in draft pages
  int64_t device_row_cache_bytes = 0;
  int64_t host_pool_bytes = 0;
  int64_t host_used_bytes = 0;    // of requests
  int64_t host_cached_bytes = 0;  // of the prefix cache alone
  int64_t chunk_bytes = 0;
  int64_t chunks_free = 0;
  ChunkCounts index_moves;
  ChunkCounts draft_moves;
  std::vector<GroupState> groups;
  RequestFigures request_figures;
  StepFigures step_figures;

  // Of the distinct rows that passes needed, the share that came from the host; 0 before any.
  double host_fetch_fraction() const {
    int64_t needed = 0;
    int64_t missed = 0;
    for (const GroupState& group : groups) {
      needed += group.rows_needed();
      missed += group.rows_missed;
    }
    return needed == 0 ? 0 : static_cast<double>(missed) / static_cast<double>(needed);
  }
};

struct ModelInfo {
  std::string name;
  // Tokens, prompt and completion together: what the model takes, and what memory can ever hold.
  int64_t max_context = 0;
  int64_t longest_request = 0;  // <= max_context
  int64_t vocab_size = 0;
  std::vector<TokenId> eos_token_ids;
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelInfo& model_info() const = 0;

  // Queues a request. INVALID_ARGUMENT: the request can never run as asked. RESOURCE_EXHAUSTED: the
  // queue is full, or the configured memory can never hold it. UNAVAILABLE: draining, or no step
  // can run any more. After OK the sink gets exactly one on_finished, whatever happens. Any thread.
  virtual absl::StatusOr<RequestId> submit(GenerateRequest request,
                                           std::shared_ptr<TokenSink> sink) = 0;

  // Ends the request within one step and frees all its memory; unknown ids are ignored. The reason
  // is what its sink hears and what is counted: kCancelled, or kStop when its output is complete.
  // Any thread.
  virtual void end(RequestId request, FinishReason reason) = 0;
  void cancel(RequestId request) { end(request, FinishReason::kCancelled); }

  // Parks the request within one step, or lets it go on: it keeps its host memory and its place,
  // and computes nothing meanwhile. Unknown ids are ignored. Any thread.
  virtual void set_paused(RequestId request, bool is_paused) = 0;

  // As of the last finished step: a copy of what it published, for which no step is waited. Any
  // thread.
  virtual EngineState state() const = 0;

  // Takes these over between two steps and returns when that is done; requests that have no place
  // any more are parked, and no output changes. FAILED_PRECONDITION, and nothing changed: it needs
  // a restart, since memory was laid out for less, or since the longest request that was promised
  // to clients would not fit any more. UNAVAILABLE: the engine has stopped. Any thread but its own.
  virtual absl::Status reconfigure(const ResidencyConfig& residency,
                                   const SchedulerConfig& scheduler) = 0;

  // `on_failure` is called once when no step can run any more, at once if that is so already; it
  // must not call back. Replaces the one before, which is not running any more on return; null for
  // none. Any thread.
  virtual void watch_failure(std::function<void(const absl::Status&)> on_failure) = 0;

  // Refuses new requests, waits for the running ones at most `timeout`, cancels the rest, stops the
  // threads. Any thread but the engine's own; later calls return at once.
  virtual void drain(absl::Duration timeout) = 0;
};

// Loads the model, reserves all memory and starts the threads.
absl::StatusOr<std::unique_ptr<Engine>> start_engine(const EngineConfig& config);

}  // namespace dhs
