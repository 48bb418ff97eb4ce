// Runs steps on a device: batch tables, forward pass, draws.
//
// Decode steps are captured once per batch bucket, where the device has graphs and every row cache
// can take the step in one pass: replaying needs no host work but the tables. In data mode the
// ranks' steps differ, so none is captured; nor is any where the ranks' exchanges cannot be, or
// where the draft is a model.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "dhisparse/device.h"
#include "dhisparse/model.h"
#include "dhisparse/store.h"
#include "engine/batch_tables.h"
#include "engine/proposer.h"
#include "engine/engine_plan.h"
#include "engine/executor.h"
#include "engine/selection_recorder.h"

namespace dhs {

class ModelExecutor final : public Executor {
 public:
  // Loads the model and reserves all memory of a rank. `ranks` is null for the only rank, and
  // otherwise outlives the executor. All ranks call the functions below in the same order, each on
  // one thread of its own.
  static absl::StatusOr<std::unique_ptr<ModelExecutor>> load(std::unique_ptr<Device> device,
                                                             Communicator* ranks,
                                                             const EngineConfig& config,
                                                             const EnginePlan& plan);
  ~ModelExecutor() override;

  int max_in_flight() const override { return max_in_flight_; }
  void submit(const StepPlan& plan) override;
  // This rank's part of a step in which no rank has more than `max_rank_rows` rows.
  void submit_part(const RankPlan& plan, int64_t max_rank_rows);
  absl::StatusOr<StepResult> collect() override;
  void describe(EngineState& state) const override;

  // For tests: bytes of both tiers.
  KvStore& store() { return *parts_.store; }
  int64_t num_graph_launches() const { return num_graph_launches_; }

 private:
  struct Parts {
    std::unique_ptr<Device> device;
    std::unique_ptr<KvStore> store;
    std::unique_ptr<TargetModel> model;
    std::unique_ptr<Proposer> proposer;             // null: nothing is drafted here
    std::unique_ptr<SelectionRecorder> recorder;  // null: selections are not recorded
    Communicator* ranks = nullptr;
    bool can_capture = false;
  };
  struct Draw {
    int32_t draw = 0;       // number of the step's draw
    int32_t first_row = 0;  // of its logit rows
    int32_t num_logprobs = 0;
    int32_t num_wanted = 0;  // proposals
  };
  struct InFlight {  // what collect() needs to know of a queued step
    int place = 0;   // of its results, and of its report
    bool is_decode = false;
    std::vector<int32_t> sequence_rows;      // of the tables, by work
    std::vector<std::optional<Draw>> draws;  // by work
  };
  struct Bucket {
    int num_plain_steps = 0;
    std::unique_ptr<Graph> graph;
  };

  ModelExecutor(Parts parts, BatchTables tables);

  // OK for the only rank; otherwise whether the ranks' exchanges still work.
  absl::Status exchanges() const;
  int64_t bucket_of(const RankPlan& plan) const;
  void run_rows(const RankPlan& plan, int64_t max_rank_rows, int place);
  void launch_rows(const RankPlan& plan, int64_t max_rank_rows, int place);
  std::vector<GroupTraffic> traffic_since(int place);  // the report collected before
  void remember(const RankPlan& plan, int place);
  void add_draw(int place, const Draw& draw, SequenceResult& result) const;

  Parts parts_;
  BatchTables tables_;
  int max_in_flight_ = 1;
  std::array<std::unique_ptr<Event>, 2> done_;  // by place
  std::deque<InFlight> in_flight_;
  int next_place_ = 1;                // place 0 holds what create() reported
  int collected_place_ = 0;           // of the latest report that describe() may read
  std::vector<int64_t> rows_missed_;  // by group, as that report says
  std::map<std::pair<int64_t, bool>, Bucket> buckets_;  // by number of rows and retrieval
  int64_t num_graph_launches_ = 0;
};

}  // namespace dhs
