#include "dhisparse/sim_config.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include <utility>

#include "dhisparse/base.h"
#include "src/config/key_reader.h"
#include "src/config/sim_config_key.h"
#include "src/config/suggest.h"

namespace dhs {
namespace {

constexpr int64_t kMaxConcurrency = 1 << 20;

// The keys that do not fit each other, each pair reported once.
class SimConfigChecks {
 public:
  SimConfigChecks(const SimConfig& config, KeyReader& reader) : config_(config), reader_(reader) {}

  void run() {
    const SimModel& model = config_.model;
    at_most("model.moe_layers", model.moe_layers, "model.layers", model.layers);
    at_most("model.experts_per_token", model.experts_per_token, "model.experts", model.experts);
    at_most("run.sampled_groups", config_.run.sampled_groups, "model.index_groups",
            model.index_groups);
    at_most("locality.shift_steps", config_.locality.shift_steps, "locality.shift_period",
            config_.locality.shift_period);
    check_order();
  }

 private:
  void at_most(const char* key, int64_t value, const char* limit_key, int64_t limit) {
    if (!reader_.all_valid({key, limit_key}) || value <= limit) return;
    reader_.blame({key, limit_key},
                  absl::StrCat(key, " (", value, ") is larger than ", limit_key, " (", limit,
                               "); lower ", key, " or raise ", limit_key));
  }

  void check_order() {
    const SimLocalityConfig& locality = config_.locality;
    if (locality.regime != SimLocality::kCustom ||
        !reader_.all_valid({"locality.at_k", "locality.at_2k", "locality.at_4k"})) {
      return;
    }
    if (locality.at_k > locality.at_2k && locality.at_2k > locality.at_4k && locality.at_4k > 0) {
      return;
    }
    reader_.blame({"locality.at_4k", "locality.at_2k", "locality.at_k", "locality.regime"},
                  absl::StrCat("locality.at_k (", locality.at_k, "), at_2k (", locality.at_2k,
                               ") and at_4k (", locality.at_4k,
                               ") must fall and stay above 0: more rows miss less"));
  }

  const SimConfig& config_;
  KeyReader& reader_;
};

std::vector<BoundKey> bind_keys(SimConfig& config, EngineConfig& shared) {
  std::vector<BoundKey> keys;
  for (const SimConfigKey& key : sim_config_keys()) keys.push_back(bind_key(key, config));
  for (const ConfigKey* key : shared_config_keys()) keys.push_back(bind_key(*key, shared));
  return keys;
}

}  // namespace

std::vector<const ConfigKey*> shared_config_keys() {
  std::vector<const ConfigKey*> keys;
  for (const ConfigKey& key : config_keys()) {
    if (section_of(key.name) == "residency" && is_live(key.name)) keys.push_back(&key);
  }
  return keys;
}

const KeyNames& sim_config_key_names() {
  static const KeyNames kNames = [] {
    std::vector<std::string> names;
    for (const SimConfigKey& key : sim_config_keys()) names.push_back(key.name);
    for (const ConfigKey* key : shared_config_keys()) names.push_back(key->name);
    return KeyNames(std::move(names));
  }();
  return kNames;
}

absl::StatusOr<SimChanges> parse_changes(const KeyInput& input) {
  SimChanges changes;
  for (const absl::string_view word : absl::StrSplit(to_absl(input.text), ' ', absl::SkipEmpty())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(word, ':');
    SimWorkload::Change change;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &change.step) ||
        !absl::SimpleAtoi(parts[1], &change.concurrency)) {
      return absl::InvalidArgumentError(
          absl::StrCat(quote(to_std(word)), " is not step:concurrency; write ", kAcceptsChanges));
    }
    if (change.concurrency < 1 || change.concurrency > kMaxConcurrency) {
      return absl::InvalidArgumentError(
          absl::StrCat("a concurrency of ", change.concurrency, "; write 1 to ", kMaxConcurrency));
    }
    if (change.step < (changes.empty() ? 0 : changes.back().step + 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("step ", change.step, " does not come after the one before; order them"));
    }
    changes.push_back(change);
  }
  return changes;
}

std::string print_changes(const SimChanges& changes) {
  return absl::StrCat("\"",
                      absl::StrJoin(changes, " ",
                                    [](std::string* out, const SimWorkload::Change& change) {
                                      absl::StrAppend(out, change.step, ":", change.concurrency);
                                    }),
                      "\"");
}

std::vector<ConfigValue> config_values(const SimConfig& config) {
  std::vector<ConfigValue> values;
  for (const SimConfigKey& key : sim_config_keys()) {
    values.push_back({key.name, key.print(config), ""});
  }
  EngineConfig shared;
  shared.residency = config.residency;
  for (const ConfigKey* key : shared_config_keys()) {
    values.push_back({key->name, key->print(shared), ""});
  }
  return values;
}

absl::StatusOr<LoadedSimConfig> parse_sim_config(const std::vector<SimSource>& sources,
                                                 const std::vector<std::string>& overrides) {
  LoadedSimConfig loaded;
  EngineConfig shared;
  KeyReader reader(sim_config_key_names(), bind_keys(loaded.config, shared));
  for (const SimSource& source : sources) reader.read_file(source.file, source.text);
  for (const std::string& override_text : overrides) reader.apply_override(override_text);
  if (reader.is_complete()) {
    reader.require_keys();
    SimConfigChecks(loaded.config, reader).run();
  }
  DHS_ASSIGN_OR_RETURN(loaded.provenance, reader.finish());
  loaded.config.residency = shared.residency;
  return loaded;
}

absl::StatusOr<LoadedSimConfig> load_sim_config(const std::vector<std::string>& paths,
                                                const std::vector<std::string>& overrides) {
  std::vector<SimSource> sources;
  for (const std::string& path : paths) {
    DHS_ASSIGN_OR_RETURN(std::string text, read_source(path));
    sources.push_back({path, std::move(text)});
  }
  return parse_sim_config(sources, overrides);
}

}  // namespace dhs
