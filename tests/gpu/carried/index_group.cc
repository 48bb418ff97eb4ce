// The two lookups of a TargetConfig that the forward pass makes; their home in src/model reads
// JSON.
#include <algorithm>

#include "model/target_config.h"

namespace dhs {

int index_group_of_layer(const TargetConfig& config, int layer) {
  const auto& groups = config.index_groups;
  const auto next = std::upper_bound(
      groups.begin(), groups.end(), layer,
      [](int wanted, const IndexGroup& group) { return wanted < group.first_layer; });
  return static_cast<int>(next - groups.begin()) - 1;
}

bool layer_has_indexer(const TargetConfig& config, int layer) {
  return config.index_groups[index_group_of_layer(config, layer)].first_layer == layer;
}

}  // namespace dhs
