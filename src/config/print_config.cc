#include <absl/strings/str_cat.h>

#include "dhisparse/config.h"
#include "src/config/config_key.h"
#include "src/config/suggest.h"

namespace dhs {

std::string print_config(const LoadedConfig& loaded) {
  std::string text = absl::StrCat(kSchemaVersionKey, ": ", kSchemaVersion, "\n");
  std::string section;
  for (const ConfigValue& value : loaded.provenance) {
    const std::string value_section(section_of(value.key));
    if (value_section != section) {
      section = value_section;
      absl::StrAppend(&text, section, ":\n");
    }
    absl::StrAppend(&text, "  ", value.key.substr(section.size() + 1), ": ", value.value, "  # ",
                    printable(value.source), "\n");
  }
  return text;
}

}  // namespace dhs
