#include "src/config/parse_config.h"

#include <absl/container/flat_hash_map.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>

#include "dhisparse/base.h"
#include "src/config/config_key.h"
#include "src/config/quantity.h"
#include "src/config/suggest.h"
#include "src/config/yaml_document.h"

namespace dhs {
namespace {

constexpr size_t kMaxReportedErrors = 100;
// Index keys, rows and draft KV each hold one, and one has to be free to move anything.
constexpr int64_t kMinChunks = 4;

// Absolute, links resolved, so that ".." of a relative path means what the kernel means by it.
std::string absolute_directory(const std::filesystem::path& directory) {
  std::error_code error;
  const std::filesystem::path start = directory.empty() ? "." : directory;
  std::filesystem::path resolved = std::filesystem::weakly_canonical(start, error);
  if (error) resolved = start;
  const std::filesystem::path absolute = std::filesystem::absolute(resolved, error);
  return (error ? resolved : absolute).string();
}

// One run over one text; collects errors until finish().
class ConfigParser {
 public:
  explicit ConfigParser(const std::string& file)
      : file_(file),
        file_directory_(absolute_directory(std::filesystem::path(file).parent_path())),
        working_directory_(absolute_directory(".")) {}

  void read_file(const YamlDocument& document);
  void apply_override(const std::string& text);
  absl::StatusOr<LoadedConfig> finish();

 private:
  // Where a value came from; a default has neither place.
  struct Origin {
    std::optional<SourcePosition> key_position;
    std::optional<SourcePosition> value_position;
    std::optional<std::string> override_text;
    bool valid = true;  // false: the value is unknown, an error is already listed
    bool given() const { return key_position || override_text; }
  };
  struct FileError {
    SourcePosition position;
    std::string line;
  };

  void add_file_error(SourcePosition position, std::string_view key, std::string_view message);
  void add_override_error(std::string_view text, std::string_view message);
  void read_top_level(const YamlEntry& entry);
  void read_version(const YamlEntry& entry);
  void read_key(const YamlEntry& entry);
  absl::Status set_from_file(const ConfigKey& key, const YamlEntry& entry);
  absl::Status set_from_override(std::string_view name, std::string_view value);
  void forgive_missing(const std::string& name);
  void require_keys();
  void fill_derived_values();
  void find_contradictions();
  void check_chunks();
  void check_batch();
  void check_link();
  bool all_valid(std::initializer_list<std::string_view> keys) const;
  void blame(std::initializer_list<std::string_view> keys, std::string_view message);
  std::string source_of(const std::string& key) const;

  const std::string file_;
  const std::string file_directory_;
  const std::string working_directory_;
  EngineConfig config_;
  absl::flat_hash_map<std::string, Origin> origins_;           // of keys that are not defaults
  absl::flat_hash_map<std::string, SourcePosition> sections_;  // keys of the top level, as read
  bool complete_ = true;                                       // the whole text was read
  std::vector<FileError> file_errors_;
  std::vector<std::string> override_errors_;
};

void ConfigParser::add_file_error(SourcePosition position, std::string_view key,
                                  std::string_view message) {
  file_errors_.push_back({position, absl::StrCat(file_, ":", position.line, ":", position.column,
                                                 ": ", printable(key), ": ", to_absl(message))});
}

void ConfigParser::add_override_error(std::string_view text, std::string_view message) {
  override_errors_.push_back(absl::StrCat("--set ", printable(text), ": ", to_absl(message)));
}

void ConfigParser::read_file(const YamlDocument& document) {
  complete_ = document.complete;
  for (const YamlError& error : document.errors) {
    add_file_error(error.position, error.path, error.message);
  }
  for (const YamlEntry& entry : document.entries) {
    if (section_of(entry.path).empty()) {
      read_top_level(entry);
    } else if (is_config_section(section_of(entry.path))) {
      read_key(entry);  // an unknown section is one error, whatever it holds
    }
  }
}

void ConfigParser::read_top_level(const YamlEntry& entry) {
  sections_[entry.path] = entry.key_position;
  if (entry.path == kSchemaVersionKey) return read_version(entry);
  if (!is_config_section(entry.path)) {
    const UnknownKey unknown = explain_unknown_key(entry.path);
    add_file_error(entry.key_position, entry.path, unknown.message);
    return forgive_missing(unknown.suggestion);
  }
  // A section may be empty: all its keys are commented out.
  if (entry.kind == YamlKind::kMap || entry.kind == YamlKind::kNull) return;
  forgive_missing(entry.path);
  if (entry.kind == YamlKind::kInvalid) return;
  add_file_error(entry.value_position, entry.path,
                 absl::StrCat("is a section; below it, indented, write its keys: ",
                              keys_of_section(entry.path)));
}

void ConfigParser::read_version(const YamlEntry& entry) {
  if (entry.kind == YamlKind::kInvalid) return;
  if (entry.kind == YamlKind::kPlain && entry.text == kSchemaVersion) return;
  const bool scalar = entry.kind == YamlKind::kPlain || entry.kind == YamlKind::kQuoted;
  add_file_error(entry.value_position, kSchemaVersionKey,
                 absl::StrCat(scalar ? quote(entry.text) : "this", " is not a version this build ",
                              "reads; write 'schema_version: ", kSchemaVersion,
                              "' and the keys of that version"));
}

void ConfigParser::read_key(const YamlEntry& entry) {
  const ConfigKey* key = find_config_key(entry.path);
  if (key == nullptr) {
    const UnknownKey unknown = explain_unknown_key(entry.path);
    add_file_error(entry.key_position, entry.path, unknown.message);
    return forgive_missing(unknown.suggestion);
  }
  Origin& origin = origins_[key->name];
  origin = {.key_position = entry.key_position,
            .value_position = entry.value_position,
            .override_text = std::nullopt};
  const absl::Status status = set_from_file(*key, entry);
  origin.valid = status.ok() && entry.kind != YamlKind::kInvalid;
  if (!status.ok()) {
    add_file_error(entry.value_position, key->name, to_std(status.message()));
  }
}

absl::Status ConfigParser::set_from_file(const ConfigKey& key, const YamlEntry& entry) {
  const auto wrong_kind = [&key](std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat(to_absl(what), "; write ", key.accepts, " or remove the key"));
  };
  switch (entry.kind) {
    case YamlKind::kInvalid:
      return absl::OkStatus();  // reported by the reader of the text
    case YamlKind::kNull:
      return wrong_kind("there is no value");
    case YamlKind::kMap:
      return wrong_kind("a map is not a value of this key");
    case YamlKind::kSequence:
      return wrong_kind("a list is not a value of this key");
    case YamlKind::kPlain:
    case YamlKind::kQuoted:
      break;
  }
  return key.parse(
      {.text = entry.text, .quoted = entry.kind == YamlKind::kQuoted, .directory = file_directory_},
      config_);
}

void ConfigParser::apply_override(const std::string& text) {
  const std::string_view view = text;
  const size_t equals = view.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return add_override_error(text, "this is not key=value; write for example log.level=debug");
  }
  const absl::Status status = set_from_override(view.substr(0, equals), view.substr(equals + 1));
  if (!status.ok()) add_override_error(text, to_std(status.message()));
  const std::string name(view.substr(0, equals));
  if (find_config_key(name) == nullptr) return;
  origins_[name].override_text = text;
  origins_[name].valid = status.ok();
}

absl::Status ConfigParser::set_from_override(std::string_view name, std::string_view value) {
  if (name == kSchemaVersionKey) {
    return absl::InvalidArgumentError("schema_version belongs to the file; remove this override");
  }
  if (is_config_section(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", to_absl(name), "' is a section; set ",
                     "section.key=value with one of its keys: ", keys_of_section(name)));
  }
  const ConfigKey* key = find_config_key(name);
  if (key == nullptr) {
    const UnknownKey unknown = explain_unknown_key(name);
    forgive_missing(unknown.suggestion);
    return absl::InvalidArgumentError(unknown.message);
  }
  DHS_ASSIGN_OR_RETURN(const YamlScalar scalar, read_yaml_scalar(value));
  if (scalar.kind == YamlKind::kNull) {
    return absl::InvalidArgumentError(absl::StrCat("there is no value; write ", key->accepts));
  }
  return key->parse({.text = scalar.text,
                     .quoted = scalar.kind == YamlKind::kQuoted,
                     .directory = working_directory_},
                    config_);
}

// `name` (a key or a section) was probably meant to be given: no second error says it is missing.
void ConfigParser::forgive_missing(const std::string& name) {
  if (name == kSchemaVersionKey) sections_.try_emplace(name);
  for (const ConfigKey& key : config_keys()) {
    if (key.name == name || section_of(key.name) == name) origins_[key.name].valid = false;
  }
}

void ConfigParser::require_keys() {
  if (!sections_.contains(kSchemaVersionKey)) {
    add_file_error({}, kSchemaVersionKey,
                   absl::StrCat("the key is missing; start the file with 'schema_version: ",
                                kSchemaVersion, "'"));
  }
  for (const ConfigKey& key : config_keys()) {
    if (!key.required || origins_.contains(key.name)) continue;
    const auto section = sections_.find(to_absl(section_of(key.name)));
    add_file_error(section == sections_.end() ? SourcePosition{} : section->second, key.name,
                   absl::StrCat("the key is missing; write ", key.accepts));
    origins_[key.name].valid = false;
  }
}

void ConfigParser::fill_derived_values() {
  if (!config_.model.name.empty() || !all_valid({"model.path", "model.name"})) return;
  config_.model.name = std::filesystem::path(config_.model.path).filename().string();
  if (config_.model.name.empty()) {
    blame({"model.path"}, absl::StrCat(quote(config_.model.path), " has no last component to name ",
                                       "the model after; set model.name"));
  }
}

void ConfigParser::find_contradictions() {
  check_chunks();
  check_batch();
  check_link();
}

void ConfigParser::check_link() {
  const DeviceConfig& device = config_.device;
  if (!device.emulate_link) return;
  if (all_valid({"device.link_bandwidth"}) && device.link_bandwidth == 0) {
    blame({"device.emulate_link"},
          "device.emulate_link is true and device.link_bandwidth is not given; set it to the bytes "
          "a second of the link");
  }
  if (all_valid({"device.backend"}) && device.backend == BackendKind::kCuda) {
    blame({"device.emulate_link", "device.backend"},
          "device.emulate_link is true and device.backend is cuda, which has a link of its own; "
          "set device.backend to cpu, or device.emulate_link to false");
  }
}

// Every running request computes at least one token a step.
void ConfigParser::check_batch() {
  if (!all_valid({"scheduler.max_running", "scheduler.max_batched_tokens"})) return;
  const SchedulerConfig& scheduler = config_.scheduler;
  if (scheduler.max_running <= scheduler.max_batched_tokens) return;
  blame(
      {"scheduler.max_running", "scheduler.max_batched_tokens"},
      absl::StrCat("scheduler.max_running (", scheduler.max_running,
                   ") is larger than scheduler.max_batched_tokens (", scheduler.max_batched_tokens,
                   "); lower scheduler.max_running or raise scheduler.max_batched_tokens"));
}

void ConfigParser::check_chunks() {
  if (!all_valid({"device.memory", "device.chunk"})) return;
  const int64_t memory = config_.device.memory_bytes;
  const int64_t chunk = config_.device.chunk_bytes;
  if (chunk > memory) {
    blame({"device.chunk", "device.memory"},
          absl::StrCat("device.chunk (", format_bytes(chunk), ") is larger than device.memory (",
                       format_bytes(memory), "); lower device.chunk or raise device.memory"));
  } else if (memory / chunk < kMinChunks) {
    blame({"device.memory", "device.chunk"},
          absl::StrCat("device.memory (", format_bytes(memory), ") holds ", memory / chunk,
                       " chunks of device.chunk (", format_bytes(chunk), "), the minimum is ",
                       kMinChunks, "; raise device.memory to ", format_bytes(kMinChunks * chunk),
                       " or lower device.chunk"));
  }
}

bool ConfigParser::all_valid(std::initializer_list<std::string_view> keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](std::string_view key) {
    const auto origin = origins_.find(to_absl(key));
    return origin == origins_.end() || origin->second.valid;
  });
}

// Reports at the first of `keys` that the operator set, an override before the file: it won.
void ConfigParser::blame(std::initializer_list<std::string_view> keys, std::string_view message) {
  for (const std::string_view key : keys) {
    const auto origin = origins_.find(to_absl(key));
    if (origin == origins_.end() || !origin->second.given()) continue;
    if (origin->second.override_text) {
      return add_override_error(*origin->second.override_text, message);
    }
    return add_file_error(*origin->second.key_position, key, message);
  }
  DHS_CHECK(false, "the defaults contradict each other: ", to_absl(message));
}

std::string ConfigParser::source_of(const std::string& key) const {
  const auto origin = origins_.find(key);
  if (origin == origins_.end()) return "default";
  if (origin->second.override_text) return "--set";
  const SourcePosition position = *origin->second.value_position;
  return absl::StrCat(file_, ":", position.line, ":", position.column);
}

absl::StatusOr<LoadedConfig> ConfigParser::finish() {
  if (complete_) {
    require_keys();
    fill_derived_values();
    find_contradictions();
  }
  std::stable_sort(file_errors_.begin(), file_errors_.end(),
                   [](const FileError& a, const FileError& b) { return a.position < b.position; });
  std::vector<std::string> lines;
  for (FileError& error : file_errors_) lines.push_back(std::move(error.line));
  lines.insert(lines.end(), override_errors_.begin(), override_errors_.end());
  if (lines.size() > kMaxReportedErrors) {
    const size_t num_more = lines.size() - kMaxReportedErrors;
    lines.resize(kMaxReportedErrors);
    lines.push_back(absl::StrCat("and ", num_more, " more errors; fix these first"));
  }
  if (!lines.empty()) return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));

  LoadedConfig loaded{.config = config_, .provenance = {}};
  for (const ConfigKey& key : config_keys()) {
    loaded.provenance.push_back({key.name, key.print(config_), source_of(key.name)});
  }
  return loaded;
}

}  // namespace

absl::StatusOr<LoadedConfig> parse_config(std::string_view text, const std::string& file,
                                          const std::vector<std::string>& overrides) {
  ConfigParser parser(file);
  parser.read_file(read_yaml(text));
  for (const std::string& override_text : overrides) parser.apply_override(override_text);
  return parser.finish();
}

absl::StatusOr<LoadedConfig> load_config(const std::string& path,
                                         const std::vector<std::string>& overrides) {
  DHS_ASSIGN_OR_RETURN(const std::string text, read_source(path));
  return parse_config(text, path, overrides);
}

}  // namespace dhs
