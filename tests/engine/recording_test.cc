// residency.trace: what decoding rows select ends up in a file, and outputs stay as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "dhisparse/trace_file.h"
#include "engine_client.h"

namespace dhs {
namespace {

constexpr int32_t kTopK = 256;  // of the demo model
constexpr int32_t kNumGroups = 4;

class Recording : public testing::Test {
 protected:
  ~Recording() override { std::filesystem::remove(path_); }

  static GenerateRequest request_of(uint32_t seed, int64_t prompt_tokens, int32_t max_tokens) {
    GenerateRequest request;
    request.prompt = some_prompt(seed, prompt_tokens);
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = true;
    request.sampling.temperature = 0;
    request.sampling.seed = seed;
    return request;
  }

  std::vector<std::string> run(const EngineConfig& config,
                               const std::vector<GenerateRequest>& requests) {
    auto engine = start_engine(config);
    EXPECT_TRUE(engine.ok()) << engine.status();
    std::vector<std::string> prints;
    for (const auto& tokens : generate_all(**engine, requests)) {
      prints.push_back(fingerprint(tokens));
    }
    return prints;
  }

  const std::string path_ =
      testing::TempDir() + "recording_" + std::to_string(::getpid()) + ".trace";
};

TEST_F(Recording, holds_every_decoding_rows_selections_and_changes_no_bit) {
  const std::vector<GenerateRequest> requests = {request_of(1, 300, 9), request_of(2, 40, 20)};
  const std::vector<std::string> plain = run(demo_config(), requests);
  EngineConfig config = demo_config();
  config.residency.trace = path_;
  EXPECT_EQ(run(config, requests), plain);

  auto reader = TraceReader::open(path_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->shape().num_groups, kNumGroups);
  EXPECT_EQ(reader->shape().top_k, kTopK);
  std::map<Position, int> num_of_query;
  TracedSelection selection;
  while (true) {
    const auto has_next = reader->next(selection);
    ASSERT_TRUE(has_next.ok()) << has_next.status();
    if (!*has_next) break;
    EXPECT_EQ(std::ssize(selection.positions), std::min(kTopK, selection.query + 1));
    ++num_of_query[selection.query];
  }
  // The first token comes with the prompt; the last one is never computed on.
  std::map<Position, int> expected;
  for (Position query = 300; query < 308; ++query) expected[query] = kNumGroups;
  for (Position query = 40; query < 59; ++query) expected[query] = kNumGroups;
  EXPECT_EQ(num_of_query, expected);
}

TEST_F(Recording, ends_at_its_limit_and_serving_goes_on) {
  EngineConfig config = demo_config();
  config.residency.trace = path_;
  config.residency.trace_limit_bytes = 64 << 10;
  const std::vector<GenerateRequest> requests = {request_of(1, 600, 120)};
  EXPECT_EQ(run(config, requests), run(demo_config(), requests));
  const auto bytes = std::filesystem::file_size(path_);
  EXPECT_GE(bytes, 64u << 10);
  EXPECT_LE(bytes, 80u << 10);
}

TEST_F(Recording, a_file_that_cannot_be_created_is_an_error_at_start) {
  EngineConfig config = demo_config();
  config.residency.trace = "/nowhere/at/all.trace";
  const auto engine = start_engine(config);
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(engine.status().message()),
              testing::HasSubstr("residency.trace: cannot create trace file /nowhere"));
}

}  // namespace
}  // namespace dhs
