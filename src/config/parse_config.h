// load_config without the file, so that tests and fuzzers can feed it text.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

#include "dhisparse/config.h"

namespace dhs {

// `file` names the text in messages; relative paths of the text start at its directory.
absl::StatusOr<LoadedConfig> parse_config(std::string_view text, const std::string& file,
                                          const std::vector<std::string>& overrides);

}  // namespace dhs
