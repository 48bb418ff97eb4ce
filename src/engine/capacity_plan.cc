#include "dhisparse/capacity_plan.h"

#include <algorithm>
#include <numeric>

#include "dhisparse/base.h"
#include "engine/engine_plan.h"

namespace dhs {
namespace {

constexpr int64_t kShortestContext = 1024;

std::vector<int64_t> contexts_of(int64_t max_context) {
  std::vector<int64_t> contexts;
  for (int64_t tokens = kShortestContext; tokens < max_context; tokens *= 2) {
    contexts.push_back(tokens);
  }
  contexts.push_back(max_context);
  return contexts;
}

CapacityLimit device_limit(const KvUsage& usage, ResidencyMode mode) {
  const int64_t rows =
      std::accumulate(usage.chunks_required.begin(), usage.chunks_required.end(), int64_t{0});
  if (usage.chunks_draft > std::max(rows, usage.chunks_index)) return CapacityLimit::kDraftPages;
  if (usage.chunks_index > rows) return CapacityLimit::kIndexKeys;
  switch (mode) {
    case ResidencyMode::kAdaptive:
      return CapacityLimit::kProtectedRows;
    case ResidencyMode::kFixed:
      return CapacityLimit::kFixedRows;
    case ResidencyMode::kResident:
      break;
  }
  return CapacityLimit::kWholeRows;
}

// What one request takes on a device that is large enough for it.
KvUsage usage_alone(const KvGeometry& geometry, KvCapacity capacity,
                    const ResidencyConfig& residency, int64_t context) {
  while (true) {
    KvManager kv(geometry, capacity, residency);
    if (kv.fits(context).ok()) {
      const std::optional<SequenceMemory> memory = kv.admit(context);
      return kv.usage();
    }
    if (capacity.num_chunks > INT32_MAX / 2) return kv.usage();
    capacity.num_chunks *= 2;
  }
}

ContextCapacity capacity_of(const EnginePlan& plan, const ResidencyConfig& residency,
                            int64_t context) {
  KvManager kv(plan.geometry, plan.capacity, residency);
  std::vector<SequenceMemory> requests;
  while (kv.fits(context).ok()) {
    std::optional<SequenceMemory> memory = kv.admit(context);
    if (!memory.has_value()) break;
    requests.push_back(*std::move(memory));
  }
  KvUsage usage = kv.usage();
  ContextCapacity result{.context = context, .max_requests = std::ssize(requests)};
  const int64_t blocks = ceil_div(context, kHostBlockTokens);
  if (usage.host_blocks_used + blocks > plan.capacity.num_host_blocks) return result;
  if (requests.empty()) usage = usage_alone(plan.geometry, plan.capacity, residency, context);
  result.limit = device_limit(usage, residency.mode);
  return result;
}

}  // namespace

absl::StatusOr<CapacityPlan> plan_capacity(const EngineConfig& config) {
  DHS_ASSIGN_OR_RETURN(const EnginePlan plan, make_plan(config));
  const int64_t num_holders = dhs::num_holders(config.parallel);
  CapacityPlan result{
      .model_name = config.model.name,
      .family = plan.model.family,
      .max_context = plan.max_context,
      .num_groups = std::ssize(plan.geometry.groups),
      .top_k = plan.geometry.top_k,
      .num_ranks = config.parallel.num_ranks,
      .device_pool_bytes = plan.capacity.num_chunks * plan.capacity.chunk_bytes,
      .chunk_bytes = plan.capacity.chunk_bytes,
      .host_pool_bytes = plan.capacity.num_host_blocks * plan.geometry.host_block_bytes,
      .host_block_bytes = plan.geometry.host_block_bytes,
      .fixed_rows_per_request = config.residency.fixed_rows_per_request,
      .max_running = config.scheduler.max_running * num_holders,
      .modes = {}};
  for (const ResidencyMode mode :
       {ResidencyMode::kAdaptive, ResidencyMode::kFixed, ResidencyMode::kResident}) {
    ResidencyConfig residency = config.residency;
    residency.mode = mode;
    ModeCapacity of_mode{.mode = mode, .contexts = {}};
    for (const int64_t context : contexts_of(plan.max_context)) {
      ContextCapacity capacity = capacity_of(plan, residency, context);
      capacity.max_requests *= num_holders;
      of_mode.contexts.push_back(capacity);
    }
    result.modes.push_back(std::move(of_mode));
  }
  return result;
}

const char* name_of(CapacityLimit limit) {
  switch (limit) {
    case CapacityLimit::kHostPool:
      return "host pool";
    case CapacityLimit::kIndexKeys:
      return "index keys";
    case CapacityLimit::kDraftPages:
      return "draft pages";
    case CapacityLimit::kProtectedRows:
      return "protected rows";
    case CapacityLimit::kFixedRows:
      return "fixed rows";
    case CapacityLimit::kWholeRows:
      return "whole rows";
  }
  return "?";
}

}  // namespace dhs
