// capacity_plan: how many requests a configuration holds at once, by their length. Asks the
// accounting that admits requests (kv.h), on empty tiers; needs no device and no running daemon.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dhisparse/config.h"

namespace dhs {

// What takes most of the tier in which the next request finds no room.
enum class CapacityLimit {
  kHostPool,
  kIndexKeys,
  kDraftPages,
  kProtectedRows,
  kFixedRows,
  kWholeRows
};

struct ContextCapacity {
  int64_t context = 0;       // tokens of each request, prompt and output together
  int64_t max_requests = 0;  // at once, all at their full length, on all ranks; by memory alone
  CapacityLimit limit = CapacityLimit::kHostPool;
};

struct ModeCapacity {
  ResidencyMode mode = ResidencyMode::kAdaptive;
  std::vector<ContextCapacity> contexts;  // by rising context
};

struct CapacityPlan {
  std::string model_name;
  std::string family;
  int64_t max_context = 0;
  int64_t num_groups = 0;
  int64_t top_k = 0;
  int64_t num_ranks = 1;
  // Of each rank.
  int64_t device_pool_bytes = 0;
  int64_t chunk_bytes = 0;
  int64_t host_pool_bytes = 0;
  int64_t host_block_bytes = 0;
  // Of the configuration.
  int64_t fixed_rows_per_request = 0;
  int64_t max_running = 0;  // on all ranks
  std::vector<ModeCapacity> modes;
};

// Contexts: the powers of two from 1024 that the model takes, and the longest that it takes. Reads
// the checkpoint, not its weights. Errors are those of start_engine.
absl::StatusOr<CapacityPlan> plan_capacity(const EngineConfig& config);

// "host pool", "index keys", "draft pages", "protected rows", "fixed rows", "whole rows".
const char* name_of(CapacityLimit limit);
// As residency.mode says it.
const char* name_of(ResidencyMode mode);

}  // namespace dhs
