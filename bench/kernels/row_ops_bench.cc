// norm, activation, rope, moe_router: small per-row work between the matrix products. Shares of the
// read bandwidth say how far a launch is from being free; inputs of a few rows stay in the caches.
#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "bench/kernels/machine_limits.h"
#include "kernels/activation/activation.h"
#include "kernels/moe_router/moe_router.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"

namespace dhs {
namespace {

std::vector<float> wave(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97) * 0.05f - 2.0f;
  return values;
}

void bench_rms_norm(benchmark::State& state) {
  const int64_t num_rows = state.range(0), width = state.range(1);
  const auto x = wave(num_rows * width), weight = wave(width);
  std::vector<float> out(x.size());
  for (auto _ : state) {
    launch_rms_norm({.x = view(x.data(), num_rows, width),
                     .weight = weight.data(),
                     .eps = 1e-6f,
                     .out = view(out.data(), num_rows, width)},
                    Stream{});
    benchmark::ClobberMemory();
  }
  report_against_limit(state, LimitKind::kRead, 8.0 * static_cast<double>(num_rows * width));
}
BENCHMARK(bench_rms_norm)
    ->ArgNames({"rows", "width"})
    ->UseRealTime()
    ->Args({1, 1024})
    ->Args({64, 7168});

void bench_swiglu(benchmark::State& state) {
  const int64_t num_rows = state.range(0), width = state.range(1);
  const auto gate_up = wave(num_rows * 2 * width);
  std::vector<float> out(static_cast<size_t>(num_rows * width));
  for (auto _ : state) {
    launch_swiglu({view(gate_up.data(), num_rows, 2 * width), view(out.data(), num_rows, width)},
                  Stream{});
    benchmark::ClobberMemory();
  }
  report_against_limit(state, LimitKind::kRead, 12.0 * static_cast<double>(num_rows * width));
}
BENCHMARK(bench_swiglu)
    ->ArgNames({"rows", "width"})
    ->UseRealTime()
    ->Args({1, 512})
    ->Args({64, 2048});

void bench_rope(benchmark::State& state) {
  const int64_t num_tokens = state.range(0), num_heads = state.range(1);
  auto x = wave(num_tokens * num_heads * 192);
  std::vector<int32_t> positions(static_cast<size_t>(num_tokens));
  std::iota(positions.begin(), positions.end(), 100000);
  const auto frequencies = rope_frequencies(64, 8e6, nullptr);
  for (auto _ : state) {
    launch_rope({.x = view(x.data(), num_tokens, num_heads, 192),
                 .positions = view<const int32_t>(positions.data(), num_tokens),
                 .inverse_frequency = frequencies.data(),
                 .rope_dim = 64},
                Stream{});
    benchmark::ClobberMemory();
  }
  report_against_limit(state, LimitKind::kRead,
                       8.0 * 64 * static_cast<double>(num_tokens * num_heads));
}
BENCHMARK(bench_rope)->ArgNames({"tokens", "heads"})->UseRealTime()->Args({1, 8})->Args({64, 64});

void bench_moe_router(benchmark::State& state) {
  const int64_t num_tokens = state.range(0);
  const auto logits = wave(num_tokens * 256), bias = wave(256);
  std::vector<int32_t> experts(static_cast<size_t>(num_tokens * 8));
  std::vector<float> weights(experts.size());
  for (auto _ : state) {
    launch_moe_router({.logits = view(logits.data(), num_tokens, 256),
                       .correction_bias = bias.data(),
                       .num_groups = 8,
                       .top_groups = 4,
                       .experts = view(experts.data(), num_tokens, 8),
                       .weights = view(weights.data(), num_tokens, 8)},
                      Stream{});
    benchmark::ClobberMemory();
  }
  report_against_limit(state, LimitKind::kRead, 4.0 * 256 * static_cast<double>(num_tokens));
}
BENCHMARK(bench_moe_router)->ArgName("tokens")->UseRealTime()->Arg(1)->Arg(64);

}  // namespace
}  // namespace dhs
