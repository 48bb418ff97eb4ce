#include <gtest/gtest.h>

#include <filesystem>

#include "dhisparse/base.h"
#include "src/config/parse_config.h"

namespace dhs {
namespace {

constexpr char kValid[] = "schema_version: 1\nmodel:\n  path: /m\n  name: file\n";

absl::StatusOr<LoadedConfig> with(const std::vector<std::string>& overrides) {
  return parse_config(kValid, "a.yaml", overrides);
}

std::string errors_with(const std::vector<std::string>& overrides) {
  return std::string(with(overrides).status().message());
}

std::string source_of(const LoadedConfig& loaded, const std::string& key) {
  for (const ConfigValue& value : loaded.provenance) {
    if (value.key == key) return value.source;
  }
  return "no such key";
}

TEST(Overrides, win_over_the_file_and_over_earlier_ones) {
  const auto loaded = with({"model.name=first", "residency.mode=fixed", "model.name=second"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.model.name, "second");
  EXPECT_EQ(loaded->config.residency.mode, ResidencyMode::kFixed);
  EXPECT_EQ(source_of(*loaded, "model.name"), "--set");
  EXPECT_EQ(source_of(*loaded, "residency.mode"), "--set");
  EXPECT_EQ(source_of(*loaded, "model.path"), "a.yaml:3:9");
  EXPECT_EQ(source_of(*loaded, "log.level"), "default");
}

TEST(Overrides, are_yaml_scalars) {
  EXPECT_EQ(with({"model.name=\"a: b=c\""})->config.model.name, "a: b=c");
  EXPECT_EQ(with({"model.name='[x]'"})->config.model.name, "[x]");
  EXPECT_EQ(with({"model.name=k=v"})->config.model.name, "k=v");
  EXPECT_EQ(with({"limits.max_request_time=90s"})->config.limits.max_request_time,
            absl::Seconds(90));
}

TEST(Overrides, supply_a_key_that_the_file_lacks) {
  const auto loaded = parse_config("schema_version: 1\n", "a.yaml", {"model.path=/m"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.model.path, "/m");
}

TEST(Overrides, take_relative_paths_from_the_working_directory) {
  const auto loaded = parse_config(kValid, "/etc/dhisparse/a.yaml", {"model.path=sub/model"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.model.path,
            (std::filesystem::canonical(".") / "sub/model").lexically_normal().string());
}

TEST(Overrides, do_not_hide_a_mistake_of_the_file) {
  const auto loaded =
      parse_config(absl::StrCat(kValid, "log: {level: loud}\n"), "a.yaml", {"log.level=info"});
  EXPECT_EQ(loaded.status().message(),
            "a.yaml:5:14: log.level: 'loud' is not one of debug, info, warning, error; write one "
            "of them");
}

TEST(Overrides, say_what_is_wrong_with_the_key) {
  EXPECT_EQ(errors_with({"residency.mod=fixed"}),
            "--set residency.mod=fixed: unknown key; did you mean 'residency.mode'?");
  EXPECT_EQ(errors_with({"residncy.mode=fixed"}),
            "--set residncy.mode=fixed: unknown key; did you mean 'residency.mode'?");
  EXPECT_EQ(errors_with({"mode=fixed"}),
            "--set mode=fixed: unknown key; did you mean 'parallel.mode' or 'residency.mode'?");
  EXPECT_EQ(errors_with({"a.b=c"}),
            "--set a.b=c: unknown key; the sections are: model, draft, device, parallel, host, kv, "
            "residency, scheduler, limits, server, log");
  EXPECT_EQ(errors_with({"kv=fp8"}),
            "--set kv=fp8: 'kv' is a section; set section.key=value with one of its keys: "
            "row_format, index_format, prefix_cache");
  EXPECT_EQ(errors_with({"schema_version=1"}),
            "--set schema_version=1: schema_version belongs to the file; remove this override");
}

TEST(Overrides, say_what_is_wrong_with_the_form) {
  for (const std::string text : {"log.level", "", "=debug", "="}) {
    EXPECT_EQ(errors_with({text}),
              "--set " + text + ": this is not key=value; write for example log.level=debug");
  }
}

TEST(Overrides, say_what_is_wrong_with_the_value) {
  EXPECT_EQ(
      errors_with({"scheduler.max_running="}),
      "--set scheduler.max_running=: there is no value; write a whole number from 1 to 65536");
  EXPECT_EQ(errors_with({"server.reflection=no"}),
            "--set server.reflection=no: 'no' is not a boolean; write true or false");
  EXPECT_EQ(errors_with({"model.name=a: b"}),
            "--set model.name=a: b: this is a map or a list; write a single value, in quotes if it "
            "has ': ', '[' or '{'");
  EXPECT_EQ(errors_with({"model.name=\"a"}),
            "--set model.name=\"a: syntax error: illegal EOF in scalar; write a single value, in "
            "quotes if it has special characters");
  EXPECT_EQ(errors_with({"model.name=a\nb"}),
            "--set model.name=a\\nb: the value has a line break; write it on one line");
}

TEST(Overrides, contradictions_are_reported_at_the_override) {
  EXPECT_EQ(errors_with({"device.memory=4MiB"}),
            "--set device.memory=4MiB: device.memory (4MiB) holds 2 chunks of device.chunk (2MiB), "
            "the minimum is 4; raise device.memory to 8MiB or lower device.chunk");
}

TEST(Overrides, come_after_the_errors_of_the_file_in_their_own_order) {
  const auto loaded = parse_config(absl::StrCat(kValid, "zzz: 1\n"), "a.yaml",
                                   {"log.level=x", "a=b", "host.pool=1"});
  const std::string errors(loaded.status().message());
  const size_t file = errors.find("a.yaml:5:1: zzz: ");
  const size_t first = errors.find("\n--set log.level=x: ");
  const size_t second = errors.find("\n--set a=b: ");
  const size_t third = errors.find("\n--set host.pool=1: ");
  EXPECT_EQ(file, 0u);
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_NE(third, std::string::npos);
}

}  // namespace
}  // namespace dhs
