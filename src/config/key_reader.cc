#include "src/config/key_reader.h"

#include <absl/strings/str_join.h>

#include <algorithm>
#include <filesystem>

#include "dhisparse/base.h"
#include "src/config/suggest.h"

namespace dhs {
namespace {

constexpr size_t kMaxReportedErrors = 100;

// Absolute, links resolved, so that ".." of a relative path means what the kernel means by it.
std::string absolute_directory(const std::filesystem::path& directory) {
  std::error_code error;
  const std::filesystem::path start = directory.empty() ? "." : directory;
  std::filesystem::path resolved = std::filesystem::weakly_canonical(start, error);
  if (error) resolved = start;
  const std::filesystem::path absolute = std::filesystem::absolute(resolved, error);
  return (error ? resolved : absolute).string();
}

}  // namespace

KeyReader::KeyReader(const KeyNames& names, std::vector<BoundKey> keys)
    : names_(names), keys_(std::move(keys)), working_directory_(absolute_directory(".")) {}

const BoundKey* KeyReader::find(std::string_view name) const {
  for (const BoundKey& key : keys_) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string KeyReader::text_of(const Place& place) const {
  return absl::StrCat(files_[place.file], ":", place.position.line, ":", place.position.column);
}

void KeyReader::add_file_error(Place place, std::string_view key, std::string_view message) {
  file_errors_.push_back(
      {place, absl::StrCat(text_of(place), ": ", printable(key), ": ", to_absl(message))});
}

void KeyReader::add_override_error(std::string_view text, std::string_view message) {
  override_errors_.push_back(absl::StrCat("--set ", printable(text), ": ", to_absl(message)));
}

void KeyReader::read_file(const std::string& file, std::string_view text) {
  files_.push_back(file);
  file_directory_ = absolute_directory(std::filesystem::path(file).parent_path());
  sections_.erase(kSchemaVersionKey);
  const YamlDocument document = read_yaml(text);
  complete_ = complete_ && document.complete;
  for (const YamlError& error : document.errors) {
    add_file_error(here(error.position), error.path, error.message);
  }
  for (const YamlEntry& entry : document.entries) {
    if (section_of(entry.path).empty()) {
      read_top_level(entry);
    } else if (names_.is_section(section_of(entry.path))) {
      read_key(entry);  // an unknown section is one error, whatever it holds
    }
  }
  if (document.complete && !sections_.contains(kSchemaVersionKey)) {
    add_file_error(here({}), kSchemaVersionKey,
                   absl::StrCat("the key is missing; start the file with 'schema_version: ",
                                kSchemaVersion, "'"));
  }
}

void KeyReader::read_top_level(const YamlEntry& entry) {
  sections_[entry.path] = here(entry.key_position);
  if (entry.path == kSchemaVersionKey) return read_version(entry);
  if (!names_.is_section(entry.path)) {
    const UnknownKey unknown = names_.explain_unknown(entry.path);
    add_file_error(here(entry.key_position), entry.path, unknown.message);
    return forgive_missing(unknown.suggestion);
  }
  // A section may be empty: all its keys are commented out.
  if (entry.kind == YamlKind::kMap || entry.kind == YamlKind::kNull) return;
  forgive_missing(entry.path);
  if (entry.kind == YamlKind::kInvalid) return;
  add_file_error(here(entry.value_position), entry.path,
                 absl::StrCat("is a section; below it, indented, write its keys: ",
                              names_.keys_of_section(entry.path)));
}

void KeyReader::read_version(const YamlEntry& entry) {
  if (entry.kind == YamlKind::kInvalid) return;
  if (entry.kind == YamlKind::kPlain && entry.text == kSchemaVersion) return;
  const bool scalar = entry.kind == YamlKind::kPlain || entry.kind == YamlKind::kQuoted;
  add_file_error(here(entry.value_position), kSchemaVersionKey,
                 absl::StrCat(scalar ? quote(entry.text) : "this", " is not a version this build ",
                              "reads; write 'schema_version: ", kSchemaVersion,
                              "' and the keys of that version"));
}

void KeyReader::read_key(const YamlEntry& entry) {
  const BoundKey* key = find(entry.path);
  if (key == nullptr) {
    const UnknownKey unknown = names_.explain_unknown(entry.path);
    add_file_error(here(entry.key_position), entry.path, unknown.message);
    return forgive_missing(unknown.suggestion);
  }
  Origin& origin = origins_[key->name];
  origin = {.key_place = here(entry.key_position),
            .value_place = here(entry.value_position),
            .override_text = std::nullopt};
  const absl::Status status = set_from_file(*key, entry);
  origin.valid = status.ok() && entry.kind != YamlKind::kInvalid;
  if (!status.ok()) {
    add_file_error(here(entry.value_position), key->name, to_std(status.message()));
  }
}

absl::Status KeyReader::set_from_file(const BoundKey& key, const YamlEntry& entry) {
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
  return key.parse({.text = entry.text,
                    .quoted = entry.kind == YamlKind::kQuoted,
                    .directory = file_directory_});
}

void KeyReader::apply_override(const std::string& text) {
  const std::string_view view = text;
  const size_t equals = view.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return add_override_error(text, "this is not key=value; write for example log.level=debug");
  }
  const absl::Status status = set_from_override(view.substr(0, equals), view.substr(equals + 1));
  if (!status.ok()) add_override_error(text, to_std(status.message()));
  const std::string name(view.substr(0, equals));
  if (find(name) == nullptr) return;
  origins_[name].override_text = text;
  origins_[name].valid = status.ok();
}

absl::Status KeyReader::set_from_override(std::string_view name, std::string_view value) {
  if (name == kSchemaVersionKey) {
    return absl::InvalidArgumentError("schema_version belongs to the file; remove this override");
  }
  if (names_.is_section(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", to_absl(name), "' is a section; set ",
                     "section.key=value with one of its keys: ", names_.keys_of_section(name)));
  }
  const BoundKey* key = find(name);
  if (key == nullptr) {
    const UnknownKey unknown = names_.explain_unknown(name);
    forgive_missing(unknown.suggestion);
    return absl::InvalidArgumentError(unknown.message);
  }
  DHS_ASSIGN_OR_RETURN(const YamlScalar scalar, read_yaml_scalar(value));
  if (scalar.kind == YamlKind::kNull) {
    return absl::InvalidArgumentError(absl::StrCat("there is no value; write ", key->accepts));
  }
  return key->parse({.text = scalar.text,
                     .quoted = scalar.kind == YamlKind::kQuoted,
                     .directory = working_directory_});
}

// `name` (a key or a section) was probably meant to be given: no second error says it is missing.
void KeyReader::forgive_missing(const std::string& name) {
  if (name == kSchemaVersionKey) sections_.try_emplace(name);
  for (const BoundKey& key : keys_) {
    if (key.name == name || section_of(key.name) == name) origins_[key.name].valid = false;
  }
}

void KeyReader::require_keys() {
  for (const BoundKey& key : keys_) {
    if (!key.required || origins_.contains(key.name)) continue;
    const auto section = sections_.find(to_absl(section_of(key.name)));
    add_file_error(section == sections_.end() ? Place{} : section->second, key.name,
                   absl::StrCat("the key is missing; write ", key.accepts));
    origins_[key.name].valid = false;
  }
}

bool KeyReader::all_valid(std::initializer_list<std::string_view> keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](std::string_view key) {
    const auto origin = origins_.find(to_absl(key));
    return origin == origins_.end() || origin->second.valid;
  });
}

void KeyReader::blame(std::initializer_list<std::string_view> keys, std::string_view message) {
  for (const std::string_view key : keys) {
    const auto origin = origins_.find(to_absl(key));
    if (origin == origins_.end() || !origin->second.given()) continue;
    if (origin->second.override_text) {
      return add_override_error(*origin->second.override_text, message);
    }
    return add_file_error(*origin->second.key_place, key, message);
  }
  DHS_CHECK(false, "the defaults contradict each other: ", to_absl(message));
}

std::string KeyReader::source_of(const std::string& key) const {
  const auto origin = origins_.find(key);
  if (origin == origins_.end()) return "default";
  if (origin->second.override_text) return "--set";
  return text_of(*origin->second.value_place);
}

absl::StatusOr<std::vector<ConfigValue>> KeyReader::finish() {
  std::stable_sort(file_errors_.begin(), file_errors_.end(),
                   [](const FileError& a, const FileError& b) { return a.place < b.place; });
  std::vector<std::string> lines;
  for (FileError& error : file_errors_) lines.push_back(std::move(error.line));
  lines.insert(lines.end(), override_errors_.begin(), override_errors_.end());
  if (lines.size() > kMaxReportedErrors) {
    const size_t num_more = lines.size() - kMaxReportedErrors;
    lines.resize(kMaxReportedErrors);
    lines.push_back(absl::StrCat("and ", num_more, " more errors; fix these first"));
  }
  if (!lines.empty()) return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));

  std::vector<ConfigValue> values;
  for (const BoundKey& key : keys_) values.push_back({key.name, key.print(), source_of(key.name)});
  return values;
}

}  // namespace dhs
