// What differs between two configurations, and which of it a running daemon takes over.
#include <gtest/gtest.h>

#include "src/config/config_key.h"
#include "src/config/parse_config.h"

namespace dhs {
namespace {

constexpr char kFile[] = "schema_version: 1\nmodel:\n  path: /m\n";

LoadedConfig with(const std::vector<std::string>& overrides) {
  return *parse_config(kFile, "a.yaml", overrides);
}

std::string changes(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  std::string text;
  for (const ConfigChange& change : config_changes(with(before), with(after))) {
    text += change.key + " " + change.before + " -> " + change.after +
            (change.is_live ? ", live\n" : ", restart\n");
  }
  return text;
}

TEST(ConfigChanges, name_every_key_that_differs_with_both_values) {
  EXPECT_EQ(changes({}, {}), "");
  EXPECT_EQ(changes({"residency.mode=adaptive"}, {}), "") << "the value counts, not where it is";
  EXPECT_EQ(changes({}, {"device.memory=1GiB", "residency.mode=fixed", "log.level=debug"}),
            "device.memory 64MiB -> 1GiB, restart\n"
            "residency.mode adaptive -> fixed, live\n"
            "log.level info -> debug, live\n");
  EXPECT_EQ(changes({"scheduler.tpot_target=25ms"}, {}),
            "scheduler.tpot_target 25ms -> inf, live\n");
}

TEST(ConfigChanges, are_live_in_three_sections_but_for_the_trace) {
  for (const ConfigKey& key : config_keys()) {
    const std::string_view section = section_of(key.name);
    const bool is_of_these = section == "residency" || section == "scheduler" || section == "log";
    EXPECT_EQ(is_live(key.name), is_of_these && !key.name.starts_with("residency.trace"))
        << key.name;
  }
}

}  // namespace
}  // namespace dhs
