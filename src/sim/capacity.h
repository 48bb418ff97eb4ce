// Memory of the simulated rank: what is left of HBM for chunks, and the geometry of what lies in
// them.
#pragma once

#include <absl/status/statusor.h>

#include "dhisparse/kv_geometry.h"
#include "dhisparse/sim.h"
#include "dhisparse/trace.h"

namespace dhs::sim {

struct Capacity {
  KvGeometry geometry;
  KvCapacity memory;
  SimMemory summary;
};

// Requests of the busiest rank when `concurrency` are spread evenly.
int64_t offered_on_rank(const SimConfig& config, int64_t concurrency);
// Of all times.
int64_t most_offered_on_rank(const SimConfig& config);

// A sampled group stands for an equal part of the model: records and index keys of the sampled
// groups sum up to the model's. decode_rows is the expected union of a request's query rows:
// k + share * k for every draft, and the rows it writes.
KvGeometry make_sampled_geometry(const SimConfig& config);

// The locality of the sampled groups.
SelectionProfile make_profile(const SimConfig& config);

// RESOURCE_EXHAUSTED when weights, workspace and draft leave no room for what is required.
absl::StatusOr<Capacity> plan_capacity(const SimConfig& config);

}  // namespace dhs::sim
