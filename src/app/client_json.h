// The --json output of dhisparse: one object, one line, always valid UTF-8. Documented in
// docs/OPERATIONS.md.
#pragma once

#include <string>
#include <vector>

#include "dhisparse/capacity_plan.h"
#include "dhisparse/client.h"

namespace dhs {

// `logprobs`: they were asked for.
std::string generate_json(const ClientOutput& output, bool logprobs);
std::string state_json(const ServerState& state);
std::string reload_json(const std::vector<ConfigChange>& changes);
std::string plan_json(const CapacityPlan& plan);
std::string tokenize_json(const std::vector<TokenId>& token_ids);
std::string detokenize_json(const std::string& text);

}  // namespace dhs
