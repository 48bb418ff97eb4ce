// The table of keys, the manual and the committed configurations say the same.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "dhisparse/base.h"
#include "src/config/config_key.h"

namespace dhs {
namespace {

namespace fs = std::filesystem;

std::string manual() {
  std::ifstream file(DHS_SOURCE_DIR "/docs/CONFIG.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ConfigDocs, name_every_key_with_its_default_and_what_it_accepts) {
  const std::string text = manual();
  for (const ConfigKey& key : config_keys()) {
    const std::string value =
        key.required ? "required" : absl::StrCat("`", key.print(EngineConfig()), "`");
    const std::string row =
        absl::StrCat("\n| `", key.name, "` | ", value, " | ", key.accepts, " | ");
    EXPECT_NE(text.find(row), std::string::npos) << "docs/CONFIG.md has no row" << row;
  }
}

TEST(ConfigDocs, name_no_key_that_does_not_exist) {
  std::istringstream lines(manual());
  size_t num_rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const std::string name = line.substr(3, line.find('`', 3) - 3);
    EXPECT_NE(find_config_key(name), nullptr) << name;
    ++num_rows;
  }
  EXPECT_EQ(num_rows, config_keys().size());
}

TEST(ConfigDocs, committed_configurations_load) {
  size_t num_files = 0;
  for (const auto& file : fs::directory_iterator(DHS_SOURCE_DIR "/configs")) {
    if (file.path().extension() != ".yaml") continue;
    const auto loaded = load_config(file.path().string(), {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    ++num_files;
  }
  EXPECT_GE(num_files, 1u);
}

TEST(ConfigDocs, demo_configuration_serves_the_demo_model_locally) {
  const auto loaded = load_config(DHS_SOURCE_DIR "/configs/demo.yaml", {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.model.path,
            (fs::canonical(DHS_SOURCE_DIR) / "tests/models/demo").string());
  EXPECT_EQ(loaded->config.server.listen, "127.0.0.1:50051");
  EXPECT_EQ(loaded->config.device.memory_bytes, int64_t{64} << 20);
  EXPECT_EQ(loaded->config.host.pool_bytes, int64_t{256} << 20);
  EXPECT_EQ(loaded->config.residency.mode, ResidencyMode::kAdaptive);
}

TEST(ConfigKeys, are_unique_and_grouped_by_section) {
  std::set<std::string> names;
  for (const ConfigKey& key : config_keys()) EXPECT_TRUE(names.insert(key.name).second) << key.name;
  const std::vector<std::string>& listed = config_key_names().sections();
  EXPECT_EQ(std::set<std::string>(listed.begin(), listed.end()).size(), listed.size());
}

TEST(ConfigKeys, accept_their_own_default) {
  for (const ConfigKey& key : config_keys()) {
    std::string printed = key.print(EngineConfig());
    if (key.required) continue;
    const bool quoted = printed.starts_with('"');
    if (quoted) printed = printed.substr(1, printed.size() - 2);
    EngineConfig config;
    const absl::Status status =
        key.parse({.text = printed, .quoted = quoted, .directory = "/"}, config);
    EXPECT_TRUE(status.ok()) << key.name << ": " << status;
    EXPECT_EQ(key.print(config), key.print(EngineConfig())) << key.name;
  }
}

}  // namespace
}  // namespace dhs
