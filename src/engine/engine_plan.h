// Everything that depends on machine, checkpoint and configuration together; logged at start.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "dhisparse/config.h"
#include "dhisparse/draft_description.h"
#include "dhisparse/kv.h"
#include "dhisparse/model.h"
#include "dhisparse/store.h"

namespace dhs {

struct EnginePlan {
  ModelDescription model;
  DraftDescription draft;        // num_proposals 0: no model drafts
  int32_t max_draft_tokens = 0;  // that a request verifies in a step
  // Of each rank.
  StoreLayout layout;
  KvGeometry geometry;
  KvCapacity capacity;
  int64_t max_context = 0;
};

// INVALID_ARGUMENT names the key that does not go with the checkpoint.
absl::StatusOr<EnginePlan> make_plan(const EngineConfig& config);

// The longest request (prompt + completion) that can run alone, at most max_context.
int64_t longest_request(const KvManager& kv, int64_t max_context);

// device: how it describes itself.
void log_plan(const EnginePlan& plan, const EngineConfig& config, const std::string& device,
              int64_t longest);

const char* name_of(DraftKind kind);  // as draft.kind has it

// Ranks that hold requests of their own: all in data mode, one in tensor mode.
int num_holders(const ParallelConfig& config);

}  // namespace dhs
