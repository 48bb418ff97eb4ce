// Files and overrides into a table's fields: one run, all errors collected until finish().
//
// Several files may follow each other: what a later one says wins, and what an earlier one says is
// still checked. Overrides win over files.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

#include <compare>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dhisparse/config.h"
#include "src/config/config_key.h"
#include "src/config/source_text.h"
#include "src/config/yaml_document.h"

namespace dhs {

// A row of a table and the configuration it writes to.
struct BoundKey {
  std::string name;
  std::string accepts;
  bool required = false;
  std::function<absl::Status(const KeyInput&)> parse;
  std::function<std::string()> print;
};

// `config` must outlive the result.
template <class Config>
BoundKey bind_key(const KeyOf<Config>& key, Config& config) {
  return {.name = key.name,
          .accepts = key.accepts,
          .required = key.required,
          .parse = [&key, &config](const KeyInput& input) { return key.parse(input, config); },
          .print = [&key, &config] { return key.print(config); }};
}

class KeyReader {
 public:
  KeyReader(const KeyNames& names, std::vector<BoundKey> keys);

  // `file` names the text in messages; relative paths of the text start at its directory.
  void read_file(const std::string& file, std::string_view text);
  void apply_override(const std::string& text);

  // Every text was read to its end: only then is it known what is missing or contradicts itself.
  bool is_complete() const { return complete_; }
  void require_keys();
  bool all_valid(std::initializer_list<std::string_view> keys) const;
  // Reports at the first of `keys` that the operator set, an override before a file: it won.
  void blame(std::initializer_list<std::string_view> keys, std::string_view message);

  // Every key with its value and source, or INVALID_ARGUMENT with one line per error.
  absl::StatusOr<std::vector<ConfigValue>> finish();

 private:
  struct Place {
    size_t file = 0;  // number
    SourcePosition position;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  // Where a value came from; a default has neither place.
  struct Origin {
    std::optional<Place> key_place;
    std::optional<Place> value_place;
    std::optional<std::string> override_text;
    bool valid = true;  // false: the value is unknown, an error is already listed
    bool given() const { return key_place || override_text; }
  };
  struct FileError {
    Place place;
    std::string line;
  };

  Place here(SourcePosition position) const { return {files_.size() - 1, position}; }
  std::string text_of(const Place& place) const;
  const BoundKey* find(std::string_view name) const;
  void add_file_error(Place place, std::string_view key, std::string_view message);
  void add_override_error(std::string_view text, std::string_view message);
  void read_top_level(const YamlEntry& entry);
  void read_version(const YamlEntry& entry);
  void read_key(const YamlEntry& entry);
  absl::Status set_from_file(const BoundKey& key, const YamlEntry& entry);
  absl::Status set_from_override(std::string_view name, std::string_view value);
  void forgive_missing(const std::string& name);
  std::string source_of(const std::string& key) const;

  const KeyNames& names_;
  const std::vector<BoundKey> keys_;
  const std::string working_directory_;
  std::vector<std::string> files_;
  std::string file_directory_;                        // of the latest file
  absl::flat_hash_map<std::string, Origin> origins_;  // of keys that are not defaults
  absl::flat_hash_map<std::string, Place> sections_;  // keys of the top level, as read
  bool complete_ = true;
  std::vector<FileError> file_errors_;
  std::vector<std::string> override_errors_;
};

}  // namespace dhs
