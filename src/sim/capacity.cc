#include "sim/capacity.h"

#include <algorithm>
#include <cmath>

#include "dhisparse/base.h"
#include "sim/cost_model.h"

namespace dhs::sim {
namespace {

constexpr int64_t kAlignment = 64;
// Of a selection, not among those of the query row before: measured at k cached rows.
constexpr double kChurn = 0.30;

// The i-th of n whole parts of `total`.
int64_t part_of(int64_t total, int64_t n, int64_t i) { return total * (i + 1) / n - total * i / n; }

int64_t final_tokens(const SimWorkload& workload) {
  return workload.context + workload.output_tokens;
}

int64_t decode_rows(const SimConfig& config) {
  const SimModel& model = config.model;
  const auto k = static_cast<double>(model.top_k);
  const double query_rows = 1 + config.draft.num_tokens;
  // Several selections may read the same stored rows.
  const double selections =
      std::max(1.0, static_cast<double>(model.rows_per_selection) / model.rows_per_token);
  const double rows = k * (1 + kChurn * (query_rows - 1)) + query_rows;
  return static_cast<int64_t>(std::ceil(selections * rows));
}

// Bytes that a request requires on the device, drafts included.
int64_t required_bytes(const SimConfig& config, const KvGeometry& geometry) {
  const int64_t tokens = config.workload.context + 1;
  int64_t record_bytes = 0;
  for (const GroupGeometry& group : geometry.groups) record_bytes += group.record_bytes;
  int64_t rows = std::min(geometry.decode_rows, tokens);
  if (config.residency.mode == ResidencyMode::kFixed) {
    rows = std::max(rows, std::min(tokens, config.residency.fixed_rows_per_request));
  }
  if (config.residency.mode == ResidencyMode::kResident) rows = tokens;
  return rows * record_bytes + ceil_div(tokens, kHostBlockTokens) * geometry.index_item_bytes +
         config.draft.kv_bytes;
}

Locality locality_of(const SimLocalityConfig& locality) {
  switch (locality.regime) {
    case SimLocality::kClose:
      return kCloseLocality;
    case SimLocality::kWide:
      return kWideLocality;
    case SimLocality::kCustom:
      break;
  }
  return {locality.at_k, locality.at_2k, locality.at_4k};
}

absl::Status no_room(const SimConfig& config, int64_t pool_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "of ", config.hardware.hbm_bytes, " bytes of HBM (hardware.hbm), weights (",
      static_cast<int64_t>(weight_bytes(config)), "), deployment.workspace and draft leave ",
      pool_bytes, "; raise deployment.num_gpus or take a GPU with more memory"));
}

}  // namespace

int64_t offered_on_rank(const SimConfig& config, int64_t concurrency) {
  return ceil_div(concurrency, config.deployment.num_gpus);
}

int64_t most_offered_on_rank(const SimConfig& config) {
  int64_t most = config.workload.concurrency;
  for (const SimWorkload::Change& change : config.workload.changes) {
    most = std::max(most, change.concurrency);
  }
  return offered_on_rank(config, most);
}

KvGeometry make_sampled_geometry(const SimConfig& config) {
  const SimModel& model = config.model;
  const int64_t num_groups = config.run.sampled_groups;
  const auto record_bytes = static_cast<int64_t>(
      std::llround(model.rows_per_token * static_cast<double>(model.row_bytes)));
  const auto item_bytes = static_cast<int64_t>(std::llround(
      model.index_rows_per_token * static_cast<double>(model.index_row_bytes * kHostBlockTokens)));
  KvGeometry geometry;
  geometry.top_k = static_cast<int32_t>(model.top_k);
  geometry.decode_rows = decode_rows(config);
  int64_t record_offset = 0;
  int64_t page_offset = 0;
  for (int64_t i = 0; i < num_groups; ++i) {
    GroupGeometry group;
    group.first_layer = static_cast<int32_t>(i);
    group.num_layers = 1;
    group.record_bytes = part_of(record_bytes, num_groups, i);
    group.page_bytes = part_of(item_bytes, num_groups, i);
    group.record_offset = record_offset;
    group.page_offset = page_offset;
    geometry.groups.push_back(group);
    record_offset += kHostBlockTokens * group.record_bytes;
    page_offset += group.page_bytes;
  }
  geometry.index_item_offset = round_up(record_offset, kAlignment);
  geometry.index_item_bytes = page_offset;
  geometry.host_block_bytes = geometry.index_item_offset + page_offset;
  return geometry;
}

SelectionProfile make_profile(const SimConfig& config) {
  SelectionProfile profile;
  profile.num_groups = config.run.sampled_groups;
  profile.top_k = static_cast<int32_t>(config.model.top_k);
  profile.locality = locality_of(config.locality);
  profile.group_spread = config.locality.spread;
  profile.shift_period = static_cast<int32_t>(config.locality.shift_period);
  profile.shift_steps = static_cast<int32_t>(config.locality.shift_steps);
  profile.shift_factor = config.locality.shift_factor;
  profile.num_candidates = config.locality.num_candidates;
  return profile;
}

absl::StatusOr<Capacity> plan_capacity(const SimConfig& config) {
  Capacity capacity;
  capacity.geometry = make_sampled_geometry(config);
  SimMemory& summary = capacity.summary;
  summary.weight_bytes = std::llround(weight_bytes(config));
  summary.draft_weight_bytes = config.draft.num_tokens > 0 ? config.draft.weight_bytes : 0;
  int64_t pool = static_cast<int64_t>(config.deployment.hbm_share *
                                      static_cast<double>(config.hardware.hbm_bytes)) -
                 summary.weight_bytes - config.deployment.workspace_bytes -
                 summary.draft_weight_bytes;
  if (pool <= 0) return no_room(config, pool);
  const int64_t most_requests =
      std::min<int64_t>(config.scheduler.max_running, most_offered_on_rank(config));
  if (config.draft.num_tokens > 0) {
    summary.draft_requests =
        std::min(most_requests, pool / required_bytes(config, capacity.geometry));
    summary.draft_kv_bytes = summary.draft_requests * config.draft.kv_bytes;
    pool -= summary.draft_kv_bytes;
  }
  summary.pool_bytes = pool;
  summary.num_chunks = pool / config.deployment.chunk_bytes;
  summary.host_block_bytes = capacity.geometry.host_block_bytes;
  summary.decode_rows = capacity.geometry.decode_rows;
  // No more host blocks than can be in use: their number costs the simulation memory.
  const int64_t blocks_each = ceil_div(final_tokens(config.workload), kHostBlockTokens);
  const int64_t host_blocks = config.hardware.host_bytes / summary.host_block_bytes;
  summary.host_requests = host_blocks / blocks_each;
  capacity.memory = {
      .num_host_blocks = static_cast<int32_t>(std::min(host_blocks, most_requests * blocks_each)),
      .num_chunks = static_cast<int32_t>(summary.num_chunks),
      .chunk_bytes = config.deployment.chunk_bytes,
      .link_bytes_per_s = std::llround(CostModel(config).link_bandwidth())};
  if (summary.host_requests < 1) {
    return absl::ResourceExhaustedError(
        absl::StrCat("hardware.host (", config.hardware.host_bytes, ") holds no request of ",
                     final_tokens(config.workload), " tokens; raise it or shorten the workload"));
  }
  return capacity;
}

}  // namespace dhs::sim
