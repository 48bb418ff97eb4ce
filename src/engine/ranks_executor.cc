#include "engine/ranks_executor.h"

#include <algorithm>
#include <iterator>

namespace dhs {
namespace {

// The counters of two ranks' row caches that hold different requests.
void add_group(const GroupState& other, GroupState& group) {
  group.capacity_rows += other.capacity_rows;
  group.resident_rows += other.resident_rows;
  group.rows_selected += other.rows_selected;
  group.rows_hit += other.rows_hit;
  group.rows_missed += other.rows_missed;
  group.fetched_bytes += other.fetched_bytes;
  group.rows_refilled += other.rows_refilled;
  group.refilled_bytes += other.refilled_bytes;
  group.rows_evicted += other.rows_evicted;
  group.rows_released += other.rows_released;
}

template <class T>
absl::Status first_error(const std::vector<absl::StatusOr<T>>& results) {
  for (const auto& result : results) DHS_RETURN_IF_ERROR(result.status());
  return absl::OkStatus();
}

}  // namespace

RanksExecutor::RanksExecutor(std::vector<std::unique_ptr<Communicator>> communicators,
                             ParallelMode mode)
    : mode_(mode), threads_(static_cast<int>(communicators.size())) {
  for (auto& communicator : communicators) ranks_.push_back({std::move(communicator), nullptr});
}

absl::StatusOr<std::unique_ptr<RanksExecutor>> RanksExecutor::create(
    std::vector<std::unique_ptr<Device>> devices,
    std::vector<std::unique_ptr<Communicator>> communicators, const EngineConfig& config,
    const EnginePlan& plan) {
  DHS_CHECK(!devices.empty() && devices.size() == communicators.size(), devices.size(),
            " devices and ", communicators.size(), " communicators");
  auto executor = std::unique_ptr<RanksExecutor>(
      new RanksExecutor(std::move(communicators), config.parallel.mode));
  std::vector<absl::StatusOr<std::unique_ptr<ModelExecutor>>> loaded(devices.size());
  executor->threads_.run([&](int rank) {
    loaded[rank] = ModelExecutor::load(std::move(devices[rank]),
                                       executor->ranks_[rank].communicator.get(), config, plan);
  });
  DHS_RETURN_IF_ERROR(first_error(loaded));
  for (size_t i = 0; i < loaded.size(); ++i) executor->ranks_[i].executor = *std::move(loaded[i]);
  return executor;
}

// Every rank on its own thread, all at once: giving a communicator back may wait for the others.
RanksExecutor::~RanksExecutor() {
  threads_.run([&](int rank) {
    ranks_[rank].executor.reset();
    ranks_[rank].communicator.reset();
  });
}

void RanksExecutor::submit(const StepPlan& plan) {
  const size_t num_parts = mode_ == ParallelMode::kData ? ranks_.size() : 1;
  DHS_CHECK(plan.ranks.size() == num_parts, "a plan of ", plan.ranks.size(), " parts, not ",
            num_parts);
  int64_t max_rank_rows = 0;
  for (const RankPlan& part : plan.ranks) max_rank_rows = std::max(max_rank_rows, part.num_rows());
  threads_.run([&](int rank) {
    const RankPlan& part = mode_ == ParallelMode::kData ? plan.ranks[rank] : plan.ranks.front();
    ranks_[rank].executor->submit_part(part, max_rank_rows);
  });
}

absl::StatusOr<StepResult> RanksExecutor::collect() {
  std::vector<absl::StatusOr<StepResult>> results(ranks_.size());
  threads_.run([&](int rank) {
    results[rank] = ranks_[rank].executor->collect();
    if (!results[rank].ok()) ranks_[rank].communicator->abort();
  });
  DHS_RETURN_IF_ERROR(first_error(results));
  StepResult all = *std::move(results.front());
  if (mode_ == ParallelMode::kTensor) return all;
  for (size_t i = 1; i < results.size(); ++i) {
    auto& sequences = results[i]->sequences;
    std::move(sequences.begin(), sequences.end(), std::back_inserter(all.sequences));
    all.traffic.push_back(std::move(results[i]->traffic.front()));
  }
  return all;
}

void RanksExecutor::describe(EngineState& state) const {
  ranks_.front().executor->describe(state);
  const bool is_data = mode_ == ParallelMode::kData;
  state.device =
      absl::StrCat(ranks_.size(), is_data ? " data" : " tensor", " parallel ranks: ", state.device);
  for (size_t i = 1; is_data && i < ranks_.size(); ++i) {
    EngineState other;
    ranks_[i].executor->describe(other);
    for (size_t g = 0; g < other.groups.size(); ++g) add_group(other.groups[g], state.groups[g]);
  }
}

}  // namespace dhs
