#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "dhisparse/base.h"
#include "dhisparse/config.h"

namespace dhs {
namespace {

namespace fs = std::filesystem;

// A fresh directory, removed with the fixture.
class LoadConfig : public testing::Test {
 protected:
  LoadConfig()
      : directory_(fs::canonical(testing::TempDir()) / absl::StrCat("dhs_config_", ::getpid())) {
    fs::create_directories(directory_);
  }
  ~LoadConfig() override { fs::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = directory_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  const fs::path directory_;
};

constexpr const char* kEveryKey = R"(schema_version: 1
model: {path: /models/glm, name: glm, max_context: 131072}
draft: {kind: dspark, path: /models/spark, temperatures: /models/sts.json,
        max_tokens: 5, ngram_min: 3, ngram_max: 6}
device: {backend: cpu, memory: 1GiB, chunk: 4MiB, threads: 3, ordinal: 2, scratch: 32MiB,
         gemm: library, link_bandwidth: 45GB, link_latency: 5us, emulate_link: true}
parallel: {ranks: 4, mode: data}
host: {pool: 1.5GiB}
kv: {row_format: fp8, index_format: f32, prefix_cache: false}
residency: {mode: resident, fixed_rows_per_request: 6144, headroom_steps: 5, grow_delay: 3s,
            grow_link_share: 0.25, grow_worth: 0, trace: /tmp/a.trace, trace_limit: 2MiB}
scheduler:
  max_running: 8
  max_batched_tokens: 256
  max_queued_requests: 9
  max_queued_tokens: 10000000000
  prefill_chunk: 99
  tpot_target: 25ms
limits:
  max_message: 4MB
  max_prompt_tokens: 1000
  max_prompt: 2MiB
  max_stop_strings: 0
  max_stop_string: 32
  max_stop_token_ids: 5
  max_logprobs: 6
  max_adjusted_tokens: 77
  max_streams_per_connection: 7
  max_metadata: 8KiB
  max_arriving: 16MiB
  max_unread_output: 2KiB
  park_after: 3s
  max_request_time: 10m
server: {listen: "[::1]:1234", metrics: off, reflection: false, drain_timeout: 250ms}
log: {level: debug}
)";

void expect_memory_keys(const EngineConfig& c) {
  EXPECT_EQ(c.model.path, "/models/glm");
  EXPECT_EQ(c.model.name, "glm");
  EXPECT_EQ(c.model.max_context, 131072);
  EXPECT_EQ(c.draft.kind, DraftKind::kDspark);
  EXPECT_EQ(c.draft.path, "/models/spark");
  EXPECT_EQ(c.draft.temperatures, "/models/sts.json");
  EXPECT_EQ(c.draft.max_tokens, 5);
  EXPECT_EQ(c.draft.ngram_min, 3);
  EXPECT_EQ(c.draft.ngram_max, 6);
  EXPECT_EQ(c.device.backend, BackendKind::kCpu);
  EXPECT_EQ(c.device.memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(c.device.chunk_bytes, int64_t{4} << 20);
  EXPECT_EQ(c.device.num_threads, 3);
  EXPECT_EQ(c.device.ordinal, 2);
  EXPECT_EQ(c.device.scratch_bytes, int64_t{32} << 20);
  EXPECT_EQ(c.device.gemm, GemmProvider::kLibrary);
  EXPECT_EQ(c.device.link_bandwidth, 45000000000);
  EXPECT_EQ(c.device.link_latency, absl::Microseconds(5));
  EXPECT_TRUE(c.device.emulate_link);
  EXPECT_EQ(c.parallel.num_ranks, 4);
  EXPECT_EQ(c.parallel.mode, ParallelMode::kData);
  EXPECT_EQ(c.host.pool_bytes, int64_t{3} << 29);
  EXPECT_EQ(c.kv.row_format, RowFormat::kFp8);
  EXPECT_EQ(c.kv.index_format, RowFormat::kF32);
  EXPECT_EQ(c.residency.mode, ResidencyMode::kResident);
  EXPECT_EQ(c.residency.fixed_rows_per_request, 6144);
  EXPECT_EQ(c.residency.headroom_steps, 5);
  EXPECT_EQ(c.residency.grow_delay, absl::Seconds(3));
  EXPECT_EQ(c.residency.grow_link_share, 0.25);
  EXPECT_EQ(c.residency.grow_worth, 0);
  EXPECT_EQ(c.residency.trace, "/tmp/a.trace");
  EXPECT_EQ(c.residency.trace_limit_bytes, 2 << 20);
}

void expect_serving_keys(const EngineConfig& c) {
  EXPECT_EQ(c.scheduler.max_running, 8);
  EXPECT_EQ(c.scheduler.max_batched_tokens, 256);
  EXPECT_EQ(c.scheduler.max_queued_requests, 9);
  EXPECT_EQ(c.scheduler.max_queued_tokens, 10000000000);
  EXPECT_EQ(c.limits.max_message_bytes, 4000000);
  EXPECT_EQ(c.limits.max_prompt_tokens, 1000);
  EXPECT_EQ(c.limits.max_prompt_bytes, int64_t{2} << 20);
  EXPECT_EQ(c.limits.max_stop_strings, 0);
  EXPECT_EQ(c.limits.max_stop_string_bytes, 32);
  EXPECT_EQ(c.limits.max_stop_token_ids, 5);
  EXPECT_EQ(c.limits.max_logprobs, 6);
  EXPECT_EQ(c.limits.max_adjusted_tokens, 77);
  EXPECT_EQ(c.limits.max_streams_per_connection, 7);
  EXPECT_EQ(c.limits.max_metadata_bytes, 8 << 10);
  EXPECT_EQ(c.limits.max_arriving_bytes, 16 << 20);
  EXPECT_EQ(c.limits.max_unread_output_bytes, 2 << 10);
  EXPECT_FALSE(c.kv.prefix_cache);
  EXPECT_EQ(c.scheduler.prefill_chunk, 99);
  EXPECT_EQ(c.scheduler.tpot_target, absl::Milliseconds(25));
  EXPECT_EQ(c.limits.park_after, absl::Seconds(3));
  EXPECT_EQ(c.limits.max_request_time, absl::Minutes(10));
  EXPECT_EQ(c.server.listen, "[::1]:1234");
  EXPECT_EQ(c.server.metrics, "off");
  EXPECT_FALSE(c.server.reflection);
  EXPECT_EQ(c.server.drain_timeout, absl::Milliseconds(250));
  EXPECT_EQ(c.log.level, "debug");
}

TEST_F(LoadConfig, reads_every_key) {
  const std::string path = write("a.yaml", kEveryKey);
  const auto loaded = load_config(path, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  expect_memory_keys(loaded->config);
  expect_serving_keys(loaded->config);
  for (const ConfigValue& value : loaded->provenance) {
    EXPECT_TRUE(value.source.starts_with(path + ":")) << value.key << " from " << value.source;
  }
}

TEST_F(LoadConfig, keeps_the_defaults_of_the_header) {
  const std::string path = write("a.yaml", "schema_version: 1\nmodel: {path: /m}\nlog:\n");
  const auto loaded = load_config(path, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const EngineConfig defaults;
  EXPECT_EQ(loaded->config.device.memory_bytes, defaults.device.memory_bytes);
  EXPECT_EQ(loaded->config.device.gemm, GemmProvider::kOwn);
  EXPECT_EQ(loaded->config.scheduler.max_running, defaults.scheduler.max_running);
  EXPECT_EQ(loaded->config.limits.max_request_time, defaults.limits.max_request_time);
  EXPECT_EQ(loaded->config.server.listen, defaults.server.listen);
}

TEST_F(LoadConfig, takes_a_relative_path_from_the_directory_of_the_file) {
  const std::string path =
      write("conf/a.yaml", "schema_version: 1\nmodel: {path: ../models/glm/}\n");
  const auto loaded = load_config(path, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.model.path, (directory_ / "models/glm").string());
  EXPECT_EQ(loaded->config.model.name, "glm");
}

TEST_F(LoadConfig, takes_the_path_of_a_draft_like_that_of_the_model) {
  const std::string path = write("conf/a.yaml",
                                 "schema_version: 1\nmodel: {path: /m}\n"
                                 "draft: {kind: dflash2, path: ../models/draft/}\n");
  const auto loaded = load_config(path, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.draft.path, (directory_ / "models/draft").string());
  EXPECT_EQ(loaded->config.draft.max_tokens, 0) << "auto";
}

TEST_F(LoadConfig, resolves_the_link_of_the_directory_before_going_up_from_it) {
  write("real/conf/a.yaml", "schema_version: 1\nmodel: {path: ../m}\n");
  fs::create_directory_symlink(directory_ / "real/conf", directory_ / "link");
  const auto loaded = load_config((directory_ / "link/a.yaml").string(), {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.model.path, (directory_ / "real/m").string());
}

TEST_F(LoadConfig, accepts_a_byte_order_mark_and_windows_line_ends) {
  const std::string path =
      write("a.yaml", "\xEF\xBB\xBFschema_version: 1\r\nmodel:\r\n  path: /m\r\n");
  EXPECT_TRUE(load_config(path, {}).ok()) << load_config(path, {}).status();
}

TEST_F(LoadConfig, prints_what_it_reads_back) {
  const std::string path = write("a.yaml", R"(schema_version: 1
model: {path: "/models/a # \"b\" \\c", name: "null"}
device: {memory: 1000001KiB, chunk: 12KiB}
server: {listen: "[::1]:0", reflection: false, drain_timeout: 1500ms}
)");
  const auto first = load_config(path, {"residency.mode=fixed"});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = load_config(write("b.yaml", print_config(*first)), {});
  ASSERT_TRUE(second.ok()) << second.status() << "\n" << print_config(*first);
  EXPECT_EQ(second->config.model.path, "/models/a # \"b\" \\c");
  ASSERT_EQ(first->provenance.size(), second->provenance.size());
  for (size_t i = 0; i < first->provenance.size(); ++i) {
    EXPECT_EQ(first->provenance[i].key, second->provenance[i].key);
    EXPECT_EQ(first->provenance[i].value, second->provenance[i].value);
  }
}

TEST_F(LoadConfig, reports_a_file_that_cannot_be_read) {
  const std::string missing = (directory_ / "none.yaml").string();
  EXPECT_EQ(load_config(missing, {}).status(),
            absl::NotFoundError(missing + ": cannot read the configuration file: No such file or "
                                          "directory; check the path and its permissions"));
  EXPECT_EQ(load_config(directory_.string(), {}).status(),
            absl::NotFoundError(directory_.string() + ": cannot read the configuration file: Is a "
                                                      "directory; check the path and its "
                                                      "permissions"));
}

TEST_F(LoadConfig, reads_a_file_of_one_mebibyte_and_not_one_byte_more) {
  std::string text = "schema_version: 1\nmodel: {path: /m}\n#";
  text.resize(size_t{1} << 20, 'x');
  EXPECT_TRUE(load_config(write("a.yaml", text), {}).ok());
  const std::string path = write("a.yaml", text + "x");
  EXPECT_EQ(load_config(path, {}).status(),
            absl::InvalidArgumentError(
                path + ":1:1: yaml: the file is larger than the limit of 1MiB; is it a "
                       "configuration?"));
}

}  // namespace
}  // namespace dhs
