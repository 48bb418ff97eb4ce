// sampling: rows of a 151,936-token vocabulary against the read bandwidth (one read of the logits).
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "bench/kernels/machine_limits.h"
#include "kernels/sampling/sampling.h"

namespace dhs {
namespace {

constexpr int64_t kVocab = 151936;

void bench_sampling(benchmark::State& state, const RowSampling& settings) {
  const int64_t num_rows = state.range(0);
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0.0f, 2.5f);
  std::vector<float> logits(static_cast<size_t>(num_rows * kVocab));
  for (float& logit : logits) logit = normal(generator);
  std::vector<RowSampling> rows(static_cast<size_t>(num_rows), settings);
  std::vector<int32_t> tokens(rows.size()), top_tokens(rows.size() * 5);
  std::vector<float> logprobs(rows.size()), top_logprobs(rows.size() * 5);
  for (auto _ : state) {
    for (RowSampling& row : rows) ++row.position;
    launch_sampling({.logits = view<const float>(logits.data(), num_rows, kVocab),
                     .rows = view<const RowSampling>(rows.data(), num_rows),
                     .tokens = view(tokens.data(), num_rows),
                     .logprobs = view(logprobs.data(), num_rows),
                     .top_tokens = view(top_tokens.data(), num_rows, 5),
                     .top_logprobs = view(top_logprobs.data(), num_rows, 5)},
                    Stream{});
    benchmark::ClobberMemory();
  }
  report_against_limit(state, LimitKind::kRead, 4.0 * static_cast<double>(num_rows * kVocab));
}

void rows(benchmark::internal::Benchmark* bench) {
  bench->ArgName("rows")->Arg(1)->Arg(16)->UseRealTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(bench_sampling, greedy, RowSampling{})->Apply(rows);
BENCHMARK_CAPTURE(bench_sampling, plain, RowSampling{.temperature = 1})->Apply(rows);
BENCHMARK_CAPTURE(
    bench_sampling, filtered,
    RowSampling{.temperature = 0.7f, .top_p = 0.9f, .min_p = 0.01f, .top_k = 50, .num_logprobs = 5})
    ->Apply(rows);

}  // namespace
}  // namespace dhs
