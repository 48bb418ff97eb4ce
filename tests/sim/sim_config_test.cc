// Simulation files: strict, all mistakes at once, later files win; and the manual agrees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "dhisparse/base.h"
#include "sim_world.h"
#include "src/config/sim_config_key.h"

namespace dhs {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string content_of(const std::string& path) {
  std::ifstream file(std::string(DHS_SOURCE_DIR "/") + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<SimSource> complete() {
  return {{"b200.yaml", content_of("configs/sim/b200.yaml")},
          {"glm.yaml", content_of("configs/sim/glm-5.3.yaml")}};
}

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  std::vector<SimSource> sources = complete();
  sources.push_back({"mine.yaml", "schema_version: 1\n" + text});
  const auto loaded = parse_sim_config(sources, overrides);
  return loaded.ok() ? "" : std::string(loaded.status().message());
}

TEST(SimConfig, takes_the_last_file_that_names_a_key_and_overrides_after_it) {
  std::vector<SimSource> sources = complete();
  sources.push_back({"a.yaml", "schema_version: 1\ncost: {layer_time: 40us, hide: 0.1}\n"});
  sources.push_back({"b.yaml", "schema_version: 1\ncost: {layer_time: 70us}\n"});
  const auto loaded = parse_sim_config(sources, {"cost.hide=0.9"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.cost.layer_time, absl::Microseconds(70));
  EXPECT_EQ(loaded->config.cost.hide, 0.9);
  const auto source_of = [&loaded](const std::string& key) {
    for (const ConfigValue& value : loaded->provenance) {
      if (value.key == key) return value.source;
    }
    return std::string();
  };
  EXPECT_EQ(source_of("cost.layer_time"), "b.yaml:2:20");
  EXPECT_EQ(source_of("cost.hide"), "--set");
  EXPECT_EQ(source_of("cost.gemm"), "default");
}

TEST(SimConfig, reads_the_daemons_own_residency_keys) {
  std::vector<SimSource> sources = complete();
  sources.push_back({"a.yaml", "schema_version: 1\nresidency: {mode: fixed}\n"});
  const auto loaded = parse_sim_config(sources, {"residency.headroom_steps=5"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.residency.mode, ResidencyMode::kFixed);
  EXPECT_EQ(loaded->config.residency.headroom_steps, 5);
}

TEST(SimConfig, reports_every_mistake_of_every_file_with_its_place) {
  const std::string errors = error_of(
      "cost:\n  layer_tme: 1us\n  hide: 1.5\n  hide: 0\nworkload: {concurrency: many}\n"
      "residency: {mode: adaptve}\n",
      {"draft.acceptance=2"});
  EXPECT_THAT(errors, HasSubstr("mine.yaml:3:3: cost.layer_tme: unknown key; did you mean "
                                "'cost.layer_time'?"));
  EXPECT_THAT(errors, HasSubstr("mine.yaml:4:9: cost.hide: 1.5 is above the maximum of 1"));
  EXPECT_THAT(errors, HasSubstr("mine.yaml:5:3: cost.hide: "));
  EXPECT_THAT(errors, HasSubstr("mine.yaml:6:25: workload.concurrency: 'many' is not a whole"));
  EXPECT_THAT(errors, HasSubstr("did you mean 'adaptive'?"));
  EXPECT_THAT(errors, HasSubstr("--set draft.acceptance=2: 2 is above the maximum of 1"));
}

TEST(SimConfig, says_which_facts_are_missing) {
  const auto loaded = parse_sim_config({{"glm.yaml", content_of("configs/sim/glm-5.3.yaml")}}, {});
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(std::string(loaded.status().message()),
              AllOf(HasSubstr("hardware.name: the key is missing"),
                    HasSubstr("hardware.hbm_bandwidth: the key is missing")));
  EXPECT_THAT(std::string(loaded.status().message()), Not(HasSubstr("model.")));
}

TEST(SimConfig, wants_a_version_in_every_file) {
  std::vector<SimSource> sources = complete();
  sources.push_back({"old.yaml", "cost: {hide: 0}\n"});
  const auto loaded = parse_sim_config(sources, {});
  EXPECT_THAT(std::string(loaded.status().message()),
              HasSubstr("old.yaml:1:1: schema_version: the key is missing"));
}

TEST(SimConfig, finds_keys_that_contradict_each_other) {
  EXPECT_THAT(error_of("run: {sampled_groups: 22}\n"), HasSubstr("model.index_groups (21)"));
  EXPECT_THAT(error_of("model: {moe_layers: 79}\n"), HasSubstr("model.layers (78)"));
  EXPECT_THAT(error_of("model: {experts_per_token: 300}\n"), HasSubstr("model.experts (256)"));
  EXPECT_THAT(error_of("locality: {shift_steps: 500}\n"), HasSubstr("shift_period (400)"));
  EXPECT_THAT(error_of("locality: {regime: custom, at_4k: 0.2}\n"), HasSubstr("must fall"));
  EXPECT_EQ(error_of("locality: {regime: close, at_4k: 0.2}\n"), "");
}

TEST(SimConfig, reads_changes_of_the_load_in_order) {
  std::vector<SimSource> sources = complete();
  sources.push_back({"a.yaml", "schema_version: 1\nworkload: {changes: \"400:256 900:48\"}\n"});
  const auto loaded = parse_sim_config(sources, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto& changes = loaded->config.workload.changes;
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].step, 400);
  EXPECT_EQ(changes[1].concurrency, 48);
  EXPECT_THAT(error_of("workload: {changes: \"400\"}\n"),
              HasSubstr("'400' is not step:concurrency"));
  EXPECT_THAT(error_of("workload: {changes: \"9:1 4:1\"}\n"), HasSubstr("does not come after"));
  EXPECT_THAT(error_of("workload: {changes: \"4:0\"}\n"), HasSubstr("a concurrency of 0"));
}

TEST(SimConfig, prints_values_that_it_reads_back) {
  const SimConfig config =
      test::committed({"gb200", "glm-5.3", "dflash2", "fitted"}, {"workload.changes=\"5:7\""});
  std::vector<std::string> overrides;
  for (const ConfigValue& value : config_values(config)) {
    overrides.push_back(absl::StrCat(value.key, "=", value.value));
  }
  const auto again = parse_sim_config({{"empty.yaml", "schema_version: 1\n"}}, overrides);
  ASSERT_TRUE(again.ok()) << again.status();
  const std::vector<ConfigValue> before = config_values(config);
  const std::vector<ConfigValue> after = config_values(again->config);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].value, after[i].value);
}

TEST(SimConfig, validate_names_a_context_that_can_never_run) {
  const SimConfig config =
      test::committed({"b200", "glm-5.3"}, {"workload.context=2000000", "residency.mode=resident"});
  const absl::Status status = validate(config);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(SimConfig, validate_lists_everything_that_is_wrong) {
  const SimConfig config = test::committed(
      {"h200", "glm-5.3"}, {"model.top_k=100", "deployment.num_gpus=4", "deployment.chunk=4KiB"});
  const std::string errors(validate(config).message());
  EXPECT_THAT(errors, AllOf(HasSubstr("top_k is 100"), HasSubstr("deployment.chunk (4096)"),
                            HasSubstr("hardware.hbm")));
}

// ---- The manual ---------------------------------------------------------------------------------

TEST(SimDocs, name_every_key_with_its_default_and_what_it_accepts) {
  const std::string manual = content_of("docs/SIMULATOR.md");
  for (const SimConfigKey& key : sim_config_keys()) {
    const std::string value =
        key.required ? "required" : absl::StrCat("`", key.print(SimConfig()), "`");
    const std::string row =
        absl::StrCat("\n| `", key.name, "` | ", value, " | ", key.accepts, " | ");
    EXPECT_NE(manual.find(row), std::string::npos) << "docs/SIMULATOR.md has no row" << row;
  }
}

TEST(SimDocs, name_no_key_that_does_not_exist) {
  std::istringstream lines(content_of("docs/SIMULATOR.md"));
  size_t num_rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    ++num_rows;
  }
  EXPECT_EQ(num_rows, sim_config_keys().size());
}

TEST(SimDocs, every_committed_machine_runs_every_committed_model) {
  int num_pairs = 0;
  for (const char* hardware : {"h200", "b200", "b300", "gb200"}) {
    for (const auto& [model, draft] : std::vector<std::pair<std::string, std::string>>{
             {"glm-5.3", "dflash2"}, {"deepseek-v4.1-flash", "dspark"}}) {
      const SimConfig config = test::committed({hardware, model, draft});
      EXPECT_TRUE(validate(config).ok()) << hardware << ", " << model << ": " << validate(config);
      ++num_pairs;
    }
  }
  EXPECT_EQ(num_pairs, 8);
  size_t num_files = 0;
  for (const auto& file : fs::directory_iterator(DHS_SOURCE_DIR "/configs/sim")) {
    num_files += file.path().extension() == ".yaml" ? 1 : 0;
  }
  EXPECT_EQ(num_files, 9u);  // four machines, two models, two drafts, one set of costs
}

}  // namespace
}  // namespace dhs
