// The same 16 prompts under every residency mode and arena size: what runs at once, how fast, how
// much comes from the host, and whether a single token differs.
//
//   residency_table MODEL_DIR [MAX_TOKENS]
#include <cstdio>
#include <cstdlib>

#include "workload.h"

namespace dhs::bench {
namespace {

constexpr int kNumRequests = 16;
constexpr int64_t kShortestPrompt = 4096;
constexpr int64_t kLongestPrompt = 7936;

// Bytes of rows (bf16) and index keys of one token of the demo model: 8 layers, 4 index groups.
constexpr int64_t kBytesPerToken = 8 * (128 + 32) * 2 + 4 * 64 * 2;

std::vector<GenerateRequest> make_requests(const std::string& model_dir, int32_t max_tokens) {
  const std::vector<TokenId> text = held_out_tokens(model_dir);
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < kNumRequests; ++i) {
    GenerateRequest request;
    const int64_t length =
        kShortestPrompt + (kLongestPrompt - kShortestPrompt) * i / (kNumRequests - 1);
    request.prompt = window(text, i * std::ssize(text) / kNumRequests, length);
    request.sampling.temperature = 0;
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

EngineConfig make_config(const std::string& model_dir, ResidencyMode mode, int64_t memory_bytes) {
  EngineConfig config;
  config.model.path = model_dir;
  config.device.chunk_bytes = int64_t{256} << 10;
  config.device.memory_bytes = round_up(memory_bytes, config.device.chunk_bytes);
  config.host.pool_bytes = int64_t{400} << 20;
  config.residency.mode = mode;
  config.residency.fixed_rows_per_request = 512;
  config.scheduler.max_running = kNumRequests;
  config.scheduler.max_batched_tokens = 512;
  return config;
}

bool same_bits(const WorkloadResult& a, const WorkloadResult& b) {
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    if (a.outputs[i].size() != b.outputs[i].size()) return false;
    for (size_t j = 0; j < a.outputs[i].size(); ++j) {
      if (a.outputs[i][j].token != b.outputs[i][j].token ||
          a.outputs[i][j].logprob != b.outputs[i][j].logprob) {
        return false;
      }
    }
  }
  return true;
}

int run(const std::string& model_dir, int32_t max_tokens) {
  const std::vector<GenerateRequest> requests = make_requests(model_dir, max_tokens);
  int64_t full_bytes = 0;
  for (const GenerateRequest& request : requests) {
    full_bytes += (std::ssize(request.prompt) + max_tokens) * kBytesPerToken;
  }
  std::printf("%d prompts of %ld to %ld tokens, %d tokens each; full KV %.0f MiB\n\n", kNumRequests,
              kShortestPrompt, kLongestPrompt, max_tokens, full_bytes / 1048576.0);
  std::printf(
      "| mode | arena | running (peak) | output tokens/s | TPOT ms | host-fetch %% | "
      "tokens equal |\n|---|---|---|---|---|---|---|\n");
  std::optional<WorkloadResult> reference;
  bool all_equal = true;
  for (const auto& [name, mode] :
       {std::pair{"resident", ResidencyMode::kResident}, std::pair{"fixed", ResidencyMode::kFixed},
        std::pair{"adaptive", ResidencyMode::kAdaptive}}) {
    for (int percent : {100, 50, 25, 12}) {
      // 4 % above the sum: chunks are whole, and every group rounds up.
      const int64_t memory = full_bytes * percent / 100 * 104 / 100;
      const WorkloadResult result = run_workload(make_config(model_dir, mode, memory), requests);
      if (!reference.has_value()) reference = result;
      const bool equal = same_bits(*reference, result);
      all_equal = all_equal && equal;
      std::printf("| %s | %d %% | %ld | %.0f | %.1f | %.1f | %s |\n", name, percent,
                  result.state.peak_running_requests,
                  static_cast<double>(result.num_output_tokens()) / result.wall_s,
                  1e3 * result.median_time_per_output_token_s(),
                  100 * result.state.host_fetch_fraction(), equal ? "yes" : "NO");
      std::fflush(stdout);
    }
  }
  return all_equal ? 0 : 1;
}

}  // namespace
}  // namespace dhs::bench

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: residency_table MODEL_DIR [MAX_TOKENS]\n");
    return 2;
  }
  dhs::set_log_level(dhs::LogLevel::kWarning);
  return dhs::bench::run(argv[1], argc == 3 ? std::atoi(argv[2]) : 128);
}
