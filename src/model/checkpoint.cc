#include "model/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "dhisparse/base.h"
#include "model/json_value.h"

namespace dhs {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr char kGenerationConfigFile[] = "generation_config.json";
constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr int64_t kMaxIndexBytes = kMaxSafetensorsHeaderBytes;

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

absl::StatusOr<std::string> read_file(const std::string& path, int64_t max_bytes) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrCat(path, ": cannot read: ", error.message()));
  if (size > static_cast<uint64_t>(max_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", size, " bytes, the limit is ", max_bytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // Inserting an empty buffer sets failbit: an empty file is not an error here.
  if (file && size > 0) text << file.rdbuf();
  if (!file || !text) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot read: ", std::strerror(errno)));
  }
  return std::move(text).str();
}

// A shard is a file of the directory itself: an index must not reach anywhere else.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name.find("..") == std::string::npos &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// The weight_map of an index: shard -> its tensors, each list ascending.
using TensorsOfShard = std::map<std::string, std::vector<std::string>>;

absl::StatusOr<TensorsOfShard> read_weight_map(const std::string& path, const std::string& text) {
  absl::StatusOr<JsonValue> index = parse_json(text);
  if (!index.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", index.status().message()));
  }
  const JsonValue* map = index->find("weight_map");
  if (map == nullptr || map->object() == nullptr || map->object()->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": weight_map is missing, empty or no object; it must map tensors to files"));
  }
  TensorsOfShard tensors_of_shard;
  for (const JsonMember& member : *map->object()) {
    const std::string* shard = member.value.string();
    if (shard == nullptr || !is_plain_file_name(*shard)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": weight_map: tensor \"", member.key,
                                                     "\": ", json_excerpt(member.value),
                                                     " is not the plain name of a file beside it"));
    }
    tensors_of_shard[*shard].push_back(member.key);
  }
  return tensors_of_shard;
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::open(const std::string& directory) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  const std::string prefix = directory + "/";
  DHS_ASSIGN_OR_RETURN(checkpoint.config_json_, read_file(prefix + kConfigFile, kMaxConfigBytes));
  if (file_exists(prefix + kGenerationConfigFile)) {
    DHS_ASSIGN_OR_RETURN(checkpoint.generation_config_json_,
                         read_file(prefix + kGenerationConfigFile, kMaxConfigBytes));
  }
  // The index first: it says which files belong to the checkpoint, whatever else lies there.
  if (file_exists(prefix + kIndexFile)) {
    DHS_RETURN_IF_ERROR(checkpoint.open_index(prefix + kIndexFile));
  } else if (file_exists(prefix + kSingleFile)) {
    DHS_RETURN_IF_ERROR(checkpoint.open_single(prefix + kSingleFile));
  } else {
    return absl::NotFoundError(absl::StrCat(directory, ": holds neither ", kSingleFile, " nor ",
                                            kIndexFile,
                                            "; model.path must name a safetensors checkpoint"));
  }
  return checkpoint;
}

absl::Status Checkpoint::open_single(const std::string& path) {
  DHS_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  shards_.push_back(std::move(file));
  for (std::string_view name : shards_.back().names()) shard_of_tensor_.emplace_back(name, 0);
  return absl::OkStatus();
}

absl::Status Checkpoint::open_index(const std::string& path) {
  DHS_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxIndexBytes));
  DHS_ASSIGN_OR_RETURN(const TensorsOfShard tensors_of_shard, read_weight_map(path, text));
  for (const auto& [shard, tensors] : tensors_of_shard) {
    DHS_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(directory_ + "/" + shard));
    shards_.push_back(std::move(file));
    DHS_RETURN_IF_ERROR(list_shard(tensors));
  }
  std::sort(shard_of_tensor_.begin(), shard_of_tensor_.end());
  return absl::OkStatus();
}

absl::Status Checkpoint::list_shard(const std::vector<std::string>& tensors) {
  const SafetensorsFile& shard = shards_.back();
  const std::vector<std::string_view> names = shard.names();
  for (const std::string& tensor : tensors) {
    const auto found = std::lower_bound(names.begin(), names.end(), tensor);
    if (found == names.end() || *found != tensor) {
      return absl::InvalidArgumentError(
          absl::StrCat(shard.path(), ": tensor \"", tensor, "\" is missing, although ", kIndexFile,
                       " says that it is here; download the checkpoint again"));
    }
    shard_of_tensor_.emplace_back(*found, shards_.size() - 1);
  }
  if (names.size() > tensors.size()) {
    log_warning(shard.path(), ": ", names.size() - tensors.size(), " tensors are not in ",
                kIndexFile, " and are ignored");
  }
  return absl::OkStatus();
}

std::vector<std::string_view> Checkpoint::tensor_names() const {
  std::vector<std::string_view> names;
  names.reserve(shard_of_tensor_.size());
  for (const auto& [name, shard] : shard_of_tensor_) names.push_back(name);
  return names;
}

std::optional<TensorBytes> Checkpoint::find(std::string_view name) const {
  const auto found = std::lower_bound(shard_of_tensor_.begin(), shard_of_tensor_.end(),
                                      std::pair(name, size_t{0}));
  if (found == shard_of_tensor_.end() || found->first != name) return std::nullopt;
  return shards_[found->second].find(name);
}

}  // namespace dhs
