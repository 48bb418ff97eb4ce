#include "app/plan_table.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "app/size_text.h"

namespace dhs {
namespace {

std::string heading_of(ResidencyMode mode, const CapacityPlan& plan) {
  if (mode != ResidencyMode::kFixed) return name_of(mode);
  return absl::StrCat(name_of(mode), " (", plan.fixed_rows_per_request, " rows)");
}

}  // namespace

std::string plan_table(const CapacityPlan& plan) {
  std::string text;
  const std::string each =
      plan.num_ranks > 1 ? absl::StrCat(" on each of ", plan.num_ranks, " ranks") : std::string();
  absl::StrAppendFormat(&text, "model     %s (%s), context %d tokens, %d index groups, top-k %d\n",
                        plan.model_name, plan.family, plan.max_context, plan.num_groups,
                        plan.top_k);
  absl::StrAppendFormat(&text, "device    %s%s in chunks of %s\n",
                        size_text(plan.device_pool_bytes), each, size_text(plan.chunk_bytes));
  absl::StrAppendFormat(&text, "host      %s%s in blocks of 64 tokens, %s each\n",
                        size_text(plan.host_pool_bytes), each, size_text(plan.host_block_bytes));
  absl::StrAppendFormat(
      &text,
      "\nRequests at once that memory holds, each at its full length, and what the "
      "next one lacks.\nscheduler.max_running is %d.\n\n",
      plan.max_running);
  absl::StrAppendFormat(&text, "%9s", "tokens");
  for (const ModeCapacity& mode : plan.modes) {
    absl::StrAppendFormat(&text, "  %-22s", heading_of(mode.mode, plan));
  }
  text.erase(text.find_last_not_of(' ') + 1);
  text += '\n';
  for (size_t i = 0; !plan.modes.empty() && i < plan.modes.front().contexts.size(); ++i) {
    absl::StrAppendFormat(&text, "%9d", plan.modes.front().contexts[i].context);
    for (const ModeCapacity& mode : plan.modes) {
      const ContextCapacity& capacity = mode.contexts[i];
      absl::StrAppendFormat(&text, "  %6d %-15s", capacity.max_requests, name_of(capacity.limit));
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace dhs
