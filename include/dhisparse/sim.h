// sim: what a deployment would do, by the real scheduler and the real KV accounting.
//
// One rank is simulated: the real Scheduler and KvManager, and for every sampled index group a row
// cache without bytes on which the real passes of kernels/resolve run. Selections are drawn from a
// model of locality (trace.h), acceptance of drafts from a constant probability. Only time is not
// real: a cost model says what a step takes, and a virtual clock advances by it.
//
// Attention is data parallel and the requests spread evenly, so the other ranks do the same;
// experts see the tokens of all. Prompts are prefilled elsewhere: they cost no time, select nothing
// and take no slots. docs/SIMULATOR.md says what follows from that and what is not modelled.
//
// Deterministic: the same configuration gives the same report.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dhisparse/sim_config.h"

namespace dhs {

// What a step takes, in seconds, by what takes it.
struct StepTimes {
  double gemm = 0;
  double index = 0;
  double top_k = 0;
  double attention = 0;
  double exchange = 0;
  double fetch = 0;  // what is not hidden
  double draft = 0;
  double fixed = 0;

  double total() const {
    return gemm + index + top_k + attention + exchange + fetch + draft + fixed;
  }
  void add(const StepTimes& other);
  StepTimes scaled(double factor) const;
};

// Rows of sampled groups and decode steps.
struct RowCounts {
  int64_t selected = 0;  // (query row, row) pairs
  int64_t needed = 0;    // distinct rows of a pass
  int64_t missed = 0;    // of them, fetched from the host
  int64_t evicted = 0;

  void add(const RowCounts& other);
  // The glossary's host-fetch fraction, and the one of all selected rows; 0 before any.
  double fetch_fraction() const { return needed == 0 ? 0 : double(missed) / needed; }
  double missed_per_selected() const { return selected == 0 ? 0 : double(missed) / selected; }
};

// What memory holds on the simulated rank.
struct SimMemory {
  int64_t weight_bytes = 0;
  int64_t draft_weight_bytes = 0;
  int64_t draft_kv_bytes = 0;  // reserved for draft_requests
  int64_t draft_requests = 0;
  int64_t pool_bytes = 0;  // chunks
  int64_t num_chunks = 0;
  int64_t host_block_bytes = 0;
  int64_t host_requests = 0;  // that the host tier holds
  int64_t decode_rows = 0;    // of a group that a decode step wants at once
};

struct SimPoint {          // of the time series: series_steps steps
  int64_t first_step = 0;  // counted from the first measured one
  double time = 0;         // seconds since the first measured step, at its end
  int64_t concurrency = 0;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t chunks_free = 0;
  int64_t chunks_index = 0;
  int64_t cached_rows = 0;      // slots with memory, per sampled group
  int64_t chunks_released = 0;  // by row caches, within these steps
  int64_t rows_refilled = 0;    // of sampled groups, ahead of need, within these steps
  double step_time = 0;
  RowCounts rows;
};

struct SimChangeReport {  // what a change of the offered concurrency led to
  int64_t step = 0;
  int64_t concurrency = 0;
  int64_t admitted = 0;         // requests, on the rank, until the next change
  int64_t chunks_released = 0;  // in the steps in which they were admitted
  // Steps from the arrival until the last of them was admitted with all memory it requires; 1: in
  // the first step that was planned after it. 0: none came.
  int64_t steps_to_admit = 0;
};

struct SimReport {
  SimConfig config;
  SimMemory memory;
  int64_t offered_on_rank = 0;
  int64_t steps = 0;  // measured
  double seconds = 0;
  double output_tokens_per_s_per_gpu = 0;
  double tpot_mean = 0;  // seconds per accepted token of a request
  double tpot_p50 = 0;   // over the requests
  double tpot_p99 = 0;
  double step_time = 0;
  StepTimes times;  // mean
  RowCounts rows;
  double fetched_rows_per_step = 0;  // of row_bytes, all groups
  double acceptance_length = 0;      // tokens per verified request and step
  double verified_drafts = 0;        // per request and step
  int draft_cap = 0;                 // at the end: the most that a request verifies
  int64_t max_running = 0;           // on the rank
  double mean_running = 0;
  int64_t num_preemptions = 0;
  double rows_per_request = 0;  // slots of a group's row cache per running request, mean
  std::vector<double> fetch_fraction_of_group;
  std::vector<SimPoint> series;
  std::vector<SimChangeReport> changes;
};

// Whether the simulation can run; INVALID_ARGUMENT and RESOURCE_EXHAUSTED carry one line per error.
absl::Status validate(const SimConfig& config);

// Precondition: validate() passes.
SimReport run_simulation(const SimConfig& config);

// One JSON object on one line, with everything that identifies the run. docs/SIMULATOR.md.
std::string report_json(const SimReport& report);
// The same for a person, in lines.
std::string report_text(const SimReport& report);

}  // namespace dhs
