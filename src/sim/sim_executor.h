// Carries a rank's plan out without a model: selections drawn per request, the real row-cache
// passes, drafts accepted by a counted random number, and a time from the cost model.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "dhisparse/sim.h"
#include "dhisparse/step.h"
#include "dhisparse/trace.h"
#include "sim/capacity.h"
#include "sim/cost_model.h"
#include "sim/row_caches.h"
#include "sim/selections.h"

namespace dhs::sim {

// What the latest step did.
struct StepRecord {
  int64_t num_decodes = 0;  // requests that decoded
  int64_t num_rows = 0;     // their query rows
  int64_t num_tokens = 0;   // that they drew
  int64_t num_admitted = 0;
  int64_t chunks_released = 0;  // by row caches
  double fetched_rows = 0;      // of row_bytes, all groups of the model
  int64_t rows_refilled = 0;    // of sampled groups, ahead of need
  RowCounts rows;
  StepTimes times;  // zero unless a request decoded
};

class SimExecutor {
 public:
  // Selections are drawn, or those of `load`, which must outlive the executor.
  SimExecutor(const SimConfig& config, const Capacity& capacity,
              const RecordedLoad* load = nullptr);

  // Requests offered to the whole deployment: what the other ranks compute follows from it.
  void set_concurrency(int64_t concurrency);
  // The share of a request that the rank's request stands for: below 1 where requests do not divide
  // evenly among the ranks.
  double share_of_rank() const { return share_of_rank_; }

  StepResult execute(const RankPlan& plan);
  void forget(RequestId request);

  const StepRecord& latest() const { return latest_; }
  const RowCaches& caches() const { return caches_; }

 private:
  struct Request {
    std::unique_ptr<Selections> selections;
    uint64_t key;  // of its random numbers
    int64_t num_steps = 0;
    double acceptance = 0;  // of its drafts, on average
    std::vector<double> draft_acceptance =
        {};                     // of those proposed last, if those before are accepted
    uint64_t num_proposed = 0;  // ever
  };

  void start_requests(const RankPlan& plan);
  void fill(const std::vector<const SequenceWork*>& started);
  void add_rows(const SequenceWork& work);
  int64_t num_accepted(Request& request, int64_t num_drafts);
  void propose(Request& request, int64_t num_drafts, SequenceResult& result);
  void run_decodes(const RankPlan& plan);
  double add_decode_results(const RankPlan& plan, StepResult& result);

  const SimConfig config_;
  const CostModel cost_;
  const SelectionModel model_;
  const RecordedLoad* load_;  // null: selections are drawn
  RowCaches caches_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Request>> requests_;
  double share_of_rank_ = 1;
  bool is_first_ = true;
  StepRecord latest_;
  StepRows rows_;
};

}  // namespace dhs::sim
