// Two ranks over the CUDA backend under emulation, a GPU each: the tokens of one rank on the CPU.
#include <gtest/gtest.h>

#include <string>

#include "engine_client.h"
#include "rank_parts.h"
#include "simt/emu/runtime.h"

namespace dhs {
namespace {

EngineConfig config_of(int num_ranks, ParallelMode mode) {
  EngineConfig config = demo_config();
  config.kv.row_format = RowFormat::kF32;
  config.kv.index_format = RowFormat::kF32;
  config.model.path = std::string(DHS_SOURCE_DIR) + "/tests/golden/model/glm_share";
  config.model.max_context = 256;
  config.device.backend = num_ranks == 1 ? BackendKind::kCpu : BackendKind::kCuda;
  config.device.memory_bytes = 768 << 10;
  config.device.chunk_bytes = 32 << 10;
  config.device.scratch_bytes = 4 << 20;
  config.host.pool_bytes = 2 << 20;
  config.parallel = {.num_ranks = num_ranks, .mode = mode};
  config.scheduler.max_batched_tokens = 64;
  config.scheduler.max_running = 4;
  return config;
}

// Contexts of up to one and a half times the top-k of 64.
std::vector<GenerateRequest> requests() {
  std::vector<GenerateRequest> all;
  for (int64_t length : {90, 20, 33}) {
    GenerateRequest request;
    for (TokenId token : some_prompt(static_cast<uint32_t>(70 + length), length)) {
      request.prompt.push_back(static_cast<TokenId>(token % 256));
    }
    request.sampling.max_tokens = 4;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = 0;
    all.push_back(std::move(request));
  }
  return all;
}

std::vector<std::vector<TokenId>> tokens_of(Engine& engine) {
  std::vector<std::vector<TokenId>> tokens;
  for (const auto& outputs : generate_all(engine, requests())) {
    auto& of_request = tokens.emplace_back();
    for (const TokenOutput& output : outputs) of_request.push_back(output.token);
  }
  return tokens;
}

class CudaRanks : public testing::TestWithParam<ParallelMode> {};

TEST_P(CudaRanks, draw_the_tokens_that_one_rank_draws_on_the_cpu) {
  auto alone = start_engine(config_of(1, ParallelMode::kTensor));
  ASSERT_TRUE(alone.ok()) << alone.status();
  const auto expected = tokens_of(**alone);
  ASSERT_EQ(expected.size(), 3u);
  simt::options().device_count = 2;
  const auto ranks = start_ranks(config_of(2, GetParam()));
  EXPECT_EQ(tokens_of(*ranks), expected);
  EXPECT_NE(ranks->state().device.find("cuda (GPU 0"), std::string::npos) << ranks->state().device;
}

INSTANTIATE_TEST_SUITE_P(Modes, CudaRanks,
                         testing::Values(ParallelMode::kTensor, ParallelMode::kData),
                         [](const auto& info) {
                           return info.param == ParallelMode::kTensor ? "tensor" : "data";
                         });

// What start_engine says where a rank has no GPU.
TEST(CudaRanksOfFour, need_a_gpu_each) {
  simt::options().device_count = 2;
  const auto engine = start_engine(config_of(4, ParallelMode::kTensor));
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(engine.status().message().find("parallel.ranks is 4, rank 2: "), std::string::npos)
      << engine.status();
}

}  // namespace
}  // namespace dhs
