#include "engine/engine_plan.h"

#include <algorithm>

#include "dhisparse/base.h"
#include "dhisparse/capacity_plan.h"

namespace dhs {
namespace {

constexpr int64_t kChunkAlignment = 256;

absl::StatusOr<int64_t> choose_max_context(const EngineConfig& config,
                                           const ModelDescription& model) {
  if (config.model.max_context > model.max_position) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.max_context is ", config.model.max_context,
                     ", the checkpoint's max_position_embeddings is ", model.max_position));
  }
  if (config.model.max_context == 1) {
    return absl::InvalidArgumentError(
        "model.max_context is 1; a prompt and a completion need at least 2 tokens");
  }
  return config.model.max_context == 0 ? model.max_position : config.model.max_context;
}

// How many pieces the memory of `key` holds; ids of pieces are 32 bits wide.
absl::StatusOr<int32_t> count_of(const char* key, int64_t bytes, const char* piece,
                                 int64_t piece_bytes) {
  const int64_t count = bytes / piece_bytes;
  if (count > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " is ", bytes, " bytes, ", count, " times ", piece, " (", piece_bytes,
                     " bytes); the limit is ", INT32_MAX, " of them"));
  }
  return static_cast<int32_t>(count);
}

absl::Status check_chunk_size(const EnginePlan& plan) {
  const int64_t chunk = plan.capacity.chunk_bytes;
  int64_t largest = std::max(plan.geometry.index_item_bytes, plan.geometry.draft_page_bytes);
  for (const GroupGeometry& group : plan.geometry.groups) {
    largest = std::max(largest, group.record_bytes);
  }
  if (largest > chunk) {
    return absl::InvalidArgumentError(
        absl::StrCat("device.chunk is ", chunk, " bytes, this model needs at least ", largest,
                     " (its largest record, index item or draft page)"));
  }
  if (chunk % kChunkAlignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device.chunk is ", chunk, " bytes, which is no multiple of ", kChunkAlignment,
                     "; records must start where vector copies can"));
  }
  return absl::OkStatus();
}

bool has_model(DraftKind kind) { return kind != DraftKind::kNone && kind != DraftKind::kNgram; }

absl::Status check_draft(const EngineConfig& config, const DraftDescription& draft) {
  if (config.draft.max_tokens > draft.num_proposals) {
    return absl::InvalidArgumentError(absl::StrCat("draft.max_tokens is ", config.draft.max_tokens,
                                                   ", the draft of draft.path ", config.draft.path,
                                                   " proposes at most ", draft.num_proposals,
                                                   "; lower it or set it to auto"));
  }
  if (!config.draft.temperatures.empty() && !draft.has_confidence) {
    return absl::InvalidArgumentError(absl::StrCat(
        "draft.temperatures is ", config.draft.temperatures, ", and the draft of draft.path ",
        config.draft.path, " has no confidence head; remove draft.temperatures"));
  }
  if (config.draft.kind == DraftKind::kMtp && config.parallel.num_ranks > 1 &&
      config.parallel.mode == ParallelMode::kData) {
    return absl::InvalidArgumentError(
        "draft.kind: mtp does not work with parallel.mode: data, where the ranks' experts would "
        "have to meet for every draft token; use parallel.mode: tensor or another draft");
  }
  return absl::OkStatus();
}

absl::Status plan_draft(const EngineConfig& config, EnginePlan& plan) {
  if (config.draft.kind == DraftKind::kNone) return absl::OkStatus();
  if (has_model(config.draft.kind)) {
    const bool is_exact = config.kv.row_format == RowFormat::kF32;
    DHS_ASSIGN_OR_RETURN(plan.draft, describe_draft(config.draft, config.model.path,
                                                    is_exact ? DType::kF32 : DType::kBf16));
    plan.layout.draft_page = plan.draft.page;
    DHS_RETURN_IF_ERROR(check_draft(config, plan.draft));
  }
  plan.max_draft_tokens = draft_schedule(config.draft, plan.draft.num_proposals).num_tokens;
  return absl::OkStatus();
}

// A decode step's verify rows select rows in common: about 0.3 top-k more for each draft.
KvGeometry geometry_of(const EnginePlan& plan) {
  constexpr double kNewPerDraft = 0.3;
  std::vector<int32_t> layers_per_group = plan.model.layers_per_group;
  layers_per_group.insert(layers_per_group.end(), plan.draft.layers_per_group.begin(),
                          plan.draft.layers_per_group.end());
  KvGeometry geometry = make_geometry(
      layers_per_group, plan.layout.row.row_bytes(), plan.layout.index_key.page_bytes(),
      plan.model.top_k,
      {.page_bytes = plan.draft.page.num_layers > 0 ? plan.draft.page.page_bytes() : 0,
       .window = plan.draft.context_window});
  geometry.decode_rows =
      static_cast<int64_t>(plan.model.top_k * (1 + kNewPerDraft * plan.max_draft_tokens)) + 1 +
      plan.max_draft_tokens;
  return geometry;
}

}  // namespace

int num_holders(const ParallelConfig& config) {
  return config.mode == ParallelMode::kData ? config.num_ranks : 1;
}

absl::StatusOr<EnginePlan> make_plan(const EngineConfig& config) {
  EnginePlan plan;
  DHS_ASSIGN_OR_RETURN(plan.model, describe_model(config.model.path));
  DHS_ASSIGN_OR_RETURN(plan.max_context, choose_max_context(config, plan.model));
  plan.layout.row = {config.kv.row_format, plan.model.latent_dim, plan.model.rope_dim};
  plan.layout.index_key = {config.kv.index_format, plan.model.index_dim, kHostBlockTokens};
  plan.layout.max_query_rows = config.scheduler.max_batched_tokens;
  plan.layout.max_sequences = config.scheduler.max_running;
  const int ranks_of_a_row = config.parallel.num_ranks / num_holders(config.parallel);
  plan.layout.num_heads = std::max(1, plan.model.num_heads / ranks_of_a_row);
  DHS_RETURN_IF_ERROR(plan_draft(config, plan));
  plan.geometry = geometry_of(plan);
  plan.capacity.chunk_bytes = config.device.chunk_bytes;
  plan.capacity.link_bytes_per_s = config.device.link_bandwidth;
  DHS_ASSIGN_OR_RETURN(plan.capacity.num_chunks,
                       count_of("device.memory", config.device.memory_bytes, "device.chunk",
                                config.device.chunk_bytes));
  DHS_ASSIGN_OR_RETURN(plan.capacity.num_host_blocks,
                       count_of("host.pool", config.host.pool_bytes, "a host block",
                                plan.geometry.host_block_bytes));
  DHS_RETURN_IF_ERROR(check_chunk_size(plan));
  return plan;
}

int64_t longest_request(const KvManager& kv, int64_t max_context) {
  int64_t low = 0;
  int64_t high = max_context;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (kv.fits(middle).ok()) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

const char* name_of(ResidencyMode mode) {
  switch (mode) {
    case ResidencyMode::kAdaptive:
      return "adaptive";
    case ResidencyMode::kFixed:
      return "fixed";
    case ResidencyMode::kResident:
      return "resident";
  }
  return "?";
}

const char* name_of(DraftKind kind) {
  switch (kind) {
    case DraftKind::kNone:
      return "none";
    case DraftKind::kDflash2:
      return "dflash2";
    case DraftKind::kDspark:
      return "dspark";
    case DraftKind::kDflash:
      return "dflash";
    case DraftKind::kMtp:
      return "mtp";
    case DraftKind::kNgram:
      return "ngram";
  }
  return "?";
}

void log_plan(const EnginePlan& plan, const EngineConfig& config, const std::string& device,
              int64_t longest) {
  const KvCapacity& capacity = plan.capacity;
  log_info("engine: ", plan.model.family, " on ", device);
  if (config.parallel.num_ranks > 1) {
    log_info("engine: ", config.parallel.num_ranks, " ranks, ",
             config.parallel.mode == ParallelMode::kTensor ? "tensor" : "data",
             " parallel; what follows is of each");
  }
  log_info("engine: device pool ", capacity.num_chunks, " chunks of ", capacity.chunk_bytes >> 10,
           " KiB; host pool ", capacity.num_host_blocks, " blocks of ",
           plan.geometry.host_block_bytes >> 10, " KiB (",
           int64_t{capacity.num_host_blocks} * kHostBlockTokens, " tokens)");
  log_info("engine: ", plan.geometry.groups.size(), " index groups, top-k ", plan.geometry.top_k,
           ", context ", plan.max_context, ", longest request that fits ", longest, " tokens");
  if (plan.max_draft_tokens == 0) return;
  log_info("engine: ", name_of(config.draft.kind), " drafts, up to ", plan.max_draft_tokens,
           " a request and step", config.draft.max_tokens == 0 ? ", by what they are worth" : "",
           plan.geometry.draft_page_bytes == 0
               ? ""
               : absl::StrCat("; pages of ", plan.geometry.draft_page_bytes >> 10, " KiB, window ",
                              plan.geometry.draft_window));
}

}  // namespace dhs
