// top_k: 2048 of n scores, against the bandwidth of one pass over the scores. Scores that were just
// written lie in the last-level cache, so their share of the memory's limit may exceed 100.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "bench/kernels/best_time.h"
#include "dhisparse/device.h"
#include "kernels/top_k/top_k.h"

namespace dhs {
namespace {

constexpr int64_t kTopK = 2048;
constexpr int64_t kMaxScores = int64_t{8} << 20;

const std::vector<float>& scores() {
  static const std::vector<float> values = [] {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> made(static_cast<size_t>(kMaxScores));
    for (float& value : made) value = normal(random);
    return made;
  }();
  return values;
}

void bench_top_k(benchmark::State& state) {
  const int64_t rows = state.range(0), width = state.range(1);
  const std::vector<int32_t> visible(static_cast<size_t>(rows), static_cast<int32_t>(width));
  std::vector<int32_t> selection(static_cast<size_t>(rows * kTopK));
  const TopKParams params{view<const float>(scores().data(), rows, width),
                          view<const int32_t>(visible.data(), rows),
                          view(selection.data(), rows, kTopK)};
  BestTime best;
  for (auto _ : state) {
    state.SetIterationTime(best.run([&] { launch_top_k(params, Stream{}); }));
  }
  report_best(state, best, static_cast<double>(rows * width) * sizeof(float), true,
              machine_limits().read_bytes_per_s);
}
BENCHMARK(bench_top_k)
    ->ArgNames({"rows", "scores"})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Args({1, 8 << 10})
    ->Args({1, 32 << 10})
    ->Args({1, 100 << 10})
    ->Args({8, 100 << 10})
    ->Args({8, 1 << 20});

}  // namespace
}  // namespace dhs
