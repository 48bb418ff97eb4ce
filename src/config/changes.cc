#include "dhisparse/base.h"
#include "src/config/config_key.h"

namespace dhs {

std::vector<ConfigChange> config_changes(const LoadedConfig& before, const LoadedConfig& after) {
  DHS_CHECK(before.provenance.size() == after.provenance.size(), "different tables of keys");
  std::vector<ConfigChange> changes;
  for (size_t i = 0; i < before.provenance.size(); ++i) {
    const ConfigValue& old_value = before.provenance[i];
    const ConfigValue& new_value = after.provenance[i];
    if (old_value.value == new_value.value) continue;
    changes.push_back({.key = new_value.key,
                       .before = old_value.value,
                       .after = new_value.value,
                       .is_live = is_live(new_value.key)});
  }
  return changes;
}

}  // namespace dhs
