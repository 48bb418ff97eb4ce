#include "src/config/key_names.h"

#include <absl/strings/str_join.h>

#include <algorithm>

#include "dhisparse/base.h"
#include "src/config/suggest.h"

namespace dhs {
namespace {

std::string_view leaf_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

std::string_view section_of(std::string_view name) {
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

KeyNames::KeyNames(std::vector<std::string> names) : names_(std::move(names)) {
  for (const std::string& name : names_) {
    const std::string_view section = section_of(name);
    if (sections_.empty() || sections_.back() != section) sections_.emplace_back(section);
  }
}

bool KeyNames::is_section(std::string_view name) const {
  return std::find(sections_.begin(), sections_.end(), name) != sections_.end();
}

std::string KeyNames::keys_of_section(std::string_view section) const {
  return absl::StrJoin(siblings(section), ", ");
}

// Names that may stand where a key of the section stands, without the section.
std::vector<std::string> KeyNames::siblings(std::string_view section) const {
  if (section.empty()) {
    std::vector<std::string> names = sections_;
    names.push_back(kSchemaVersionKey);
    return names;
  }
  std::vector<std::string> leaves;
  for (const std::string& name : names_) {
    if (section_of(name) == section) leaves.emplace_back(leaf_of(name));
  }
  return leaves;
}

std::optional<std::string> KeyNames::suggest(std::string_view name) const {
  const std::string_view section = section_of(name);
  // The right key in the wrong section; where several sections have it, the one spelt most like it.
  std::vector<std::string> namesakes;
  for (const std::string& other : names_) {
    if (leaf_of(other) == leaf_of(name)) namesakes.push_back(other);
  }
  if (const auto close = nearest(name, namesakes)) return close;
  if (!namesakes.empty()) return absl::StrJoin(namesakes, "' or '");
  const std::string prefix = section.empty() ? "" : absl::StrCat(to_absl(section), ".");
  if (const auto close = nearest(leaf_of(name), siblings(section))) return prefix + *close;
  if (section.empty()) return std::nullopt;
  // The right key in a misspelt section.
  return nearest(name, names_);
}

UnknownKey KeyNames::explain_unknown(std::string_view name) const {
  if (const std::optional<std::string> meant = suggest(name)) {
    return {*meant, absl::StrCat("unknown key; did you mean '", *meant, "'?")};
  }
  const std::string_view section = section_of(name);
  if (is_section(section)) {
    return {"", absl::StrCat("unknown key; the keys of '", to_absl(section),
                             "' are: ", keys_of_section(section))};
  }
  return {"", absl::StrCat("unknown key; the sections are: ", absl::StrJoin(sections_, ", "))};
}

}  // namespace dhs
