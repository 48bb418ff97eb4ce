// Time of one decode step of one request at rising context: with a top-k selection it must stay
// nearly flat, since only the index scan grows.
//
//   decode_step MODEL_DIR
#include <algorithm>
#include <cstdio>

#include "workload.h"

namespace dhs::bench {
namespace {

constexpr int32_t kSteps = 160;

double step_ms(const std::string& model_dir, const std::vector<TokenId>& text, int64_t context) {
  EngineConfig config;
  config.model.path = model_dir;
  config.device.memory_bytes = int64_t{64} << 20;
  config.host.pool_bytes = int64_t{64} << 20;
  GenerateRequest request;
  request.prompt = window(text, 0, context - kSteps / 2);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = kSteps;
  request.sampling.ignore_eos = true;
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    const WorkloadResult result = run_workload(config, {request});
    times.push_back(1e3 * result.median_time_per_output_token_s());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void run(const std::string& model_dir) {
  const std::vector<TokenId> text = held_out_tokens(model_dir);
  std::printf("| context | decode step ms | ratio to 512 |\n|---|---|---|\n");
  const double base = step_ms(model_dir, text, 512);
  for (int64_t context : {512, 1024, 2048, 4096, 8064}) {
    const double ms = context == 512 ? base : step_ms(model_dir, text, context);
    std::printf("| %ld | %.2f | %.2f |\n", context, ms, ms / base);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace dhs::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: decode_step MODEL_DIR\n");
    return 2;
  }
  dhs::set_log_level(dhs::LogLevel::kWarning);
  dhs::bench::run(argv[1]);
  return 0;
}
