// The names of a table's keys: "section.key", two levels, keys of a section neighbours.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dhs {

// The key at the top of every file and the only value of it that this build reads.
inline constexpr char kSchemaVersionKey[] = "schema_version";
inline constexpr char kSchemaVersion[] = "1";

// "device" of "device.memory"; empty for a name without a dot.
std::string_view section_of(std::string_view name);

// What the writer of an unknown key or section probably meant, as a full name.
struct UnknownKey {
  std::string suggestion;  // empty: nothing is close
  std::string message;     // "unknown key; did you mean 'device.memory'?"
};

class KeyNames {
 public:
  explicit KeyNames(std::vector<std::string> names);

  // "model", "device", ... in order.
  const std::vector<std::string>& sections() const { return sections_; }
  bool is_section(std::string_view name) const;
  // "memory, chunk, ..."
  std::string keys_of_section(std::string_view section) const;
  UnknownKey explain_unknown(std::string_view name) const;

 private:
  std::vector<std::string> siblings(std::string_view section) const;
  std::optional<std::string> suggest(std::string_view name) const;

  std::vector<std::string> names_;
  std::vector<std::string> sections_;
};

}  // namespace dhs
