// The table of a simulation's keys; those of `residency` are the daemon's own rows and not in it.
#pragma once

#include <string>
#include <vector>

#include "dhisparse/sim_config.h"
#include "src/config/config_key.h"

namespace dhs {

using SimConfigKey = KeyOf<SimConfig>;

// In the order of the structs; keys of a section are neighbours.
const std::vector<SimConfigKey>& sim_config_keys();

// The daemon's keys that a simulation reads too: residency, but for what is recorded of it.
std::vector<const ConfigKey*> shared_config_keys();

// Of sim_config_keys, then of shared_config_keys.
const KeyNames& sim_config_key_names();

// "400:256 900:48": from step 400 on a concurrency of 256, from step 900 on one of 48.
using SimChanges = std::vector<SimWorkload::Change>;
inline constexpr char kAcceptsChanges[] = "step:concurrency pairs with spaces between";
absl::StatusOr<SimChanges> parse_changes(const KeyInput& input);
std::string print_changes(const SimChanges& changes);

// load_sim_config without the files.
struct SimSource {
  std::string file;  // names the text in messages
  std::string text;
};
absl::StatusOr<LoadedSimConfig> parse_sim_config(const std::vector<SimSource>& sources,
                                                 const std::vector<std::string>& overrides);

}  // namespace dhs
