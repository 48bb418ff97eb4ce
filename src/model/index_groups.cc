#include "model/index_groups.h"

#include <algorithm>

namespace dhs {
namespace {

constexpr int64_t kMaxFrequency = 1024;

using FullLayers = std::vector<bool>;  // whether each layer is full

std::optional<FullLayers> from_types(ConfigReader& reader, const std::vector<std::string>& types) {
  FullLayers full;
  for (const std::string& type : types) {
    if (type != "full" && type != "shared") {
      reader.error("indexer_types", "\"", type, "\" is neither \"full\" nor \"shared\"");
      return std::nullopt;
    }
    full.push_back(type == "full");
  }
  return full;
}

std::optional<FullLayers> from_pattern(ConfigReader& reader, const std::string& pattern) {
  if (pattern.find_first_not_of("FS") != std::string::npos) {
    reader.error("index_topk_pattern", "\"", pattern, "\" may hold only F (full) and S (shared)");
    return std::nullopt;
  }
  FullLayers full;
  for (char layer : pattern) full.push_back(layer == 'F');
  return full;
}

FullLayers from_rule(int64_t frequency, int64_t offset, int num_layers) {
  FullLayers full;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    full.push_back(std::max<int64_t>(layer - offset + 1, 0) % frequency == 0);
  }
  return full;
}

}  // namespace

std::vector<IndexGroup> read_index_groups(ConfigReader& reader, int num_layers) {
  const auto types = reader.texts("indexer_types");
  const auto pattern = reader.text("index_topk_pattern");
  const int64_t frequency = reader.integer("index_topk_freq", {1, kMaxFrequency}, 1);
  const bool has_offset = reader.find("index_skip_topk_offset") != nullptr;
  const int64_t offset = reader.integer("index_skip_topk_offset", {0, kMaxFrequency}, 1);

  std::string key = "index_skip_topk_offset";
  std::optional<FullLayers> full;
  if (types) {
    key = "indexer_types";
    full = from_types(reader, *types);
  } else if (pattern) {
    key = "index_topk_pattern";
    full = from_pattern(reader, *pattern);
  } else if (frequency > 1 && !has_offset) {
    reader.error(key, "is missing; index_topk_freq ", frequency, " has no meaning without it");
  } else {
    full = from_rule(frequency, offset, num_layers);
  }
  if (!full) return {{0, num_layers}};
  if (static_cast<int>(full->size()) != num_layers) {
    reader.error(key, full->size(), " layers, num_hidden_layers is ", num_layers);
    return {{0, num_layers}};
  }
  if (!full->front()) reader.error(key, "layer 0 is shared, but no layer before it selects rows");
  std::vector<IndexGroup> groups;
  for (int layer = 0; layer < num_layers; ++layer) {
    if ((*full)[layer] || groups.empty()) {
      groups.push_back({layer, 1});
    } else {
      ++groups.back().num_layers;
    }
  }
  return groups;
}

}  // namespace dhs
