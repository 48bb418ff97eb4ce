// checkpoint: a Hugging Face directory: config.json, optionally generation_config.json, and either
// model.safetensors or model.safetensors.index.json with the shards that it names.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/safetensors.h"

namespace dhs {

// Immutable after open(); movable without invalidating what find() returned.
class Checkpoint {
 public:
  // Opens every shard and checks that each tensor of the index is where the index says. The index
  // wins over a single file beside it.
  // NOT_FOUND names the missing file; INVALID_ARGUMENT the malformed one.
  static absl::StatusOr<Checkpoint> open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const std::string& config_json() const { return config_json_; }
  // Empty when the directory has none.
  const std::string& generation_config_json() const { return generation_config_json_; }

  std::vector<std::string_view> tensor_names() const;  // ascending
  std::optional<TensorBytes> find(std::string_view name) const;

 private:
  Checkpoint() = default;

  absl::Status open_single(const std::string& path);
  absl::Status open_index(const std::string& path);
  // Lists `tensors` as those of the newest shard.
  absl::Status list_shard(const std::vector<std::string>& tensors);

  std::string directory_;
  std::string config_json_;
  std::string generation_config_json_;
  std::vector<SafetensorsFile> shards_;
  // (tensor, index of its shard), ascending; the names are those of the shards.
  std::vector<std::pair<std::string_view, size_t>> shard_of_tensor_;
};

}  // namespace dhs
