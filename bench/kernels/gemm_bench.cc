// gemm: one row against the read bandwidth, many rows against the dot-product peak. Small shapes
// stay in the caches, so their share of the memory limit may exceed 100.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <map>
#include <tuple>
#include <vector>

#include "bench/kernels/machine_limits.h"
#include "dhisparse/device.h"
#include "kernels/gemm/gemm.h"

namespace dhs {
namespace {

// Packed once per shape: touching memory the first time is what would be measured otherwise.
const PackedMatrix& matrix_of(GemmPrecision precision, int64_t n, int64_t k) {
  static std::map<std::tuple<GemmPrecision, int64_t, int64_t>, PackedMatrixPtr> matrices;
  PackedMatrixPtr& matrix = matrices[{precision, n, k}];
  if (matrix == nullptr) {
    std::vector<float> w(static_cast<size_t>(n * k));
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 251) * 0.01f - 1.0f;
    matrix = pack_matrix(precision, view<const float>(w.data(), n, k), Stream{});
  }
  return *matrix;
}

void bench_gemm(benchmark::State& state, GemmPrecision precision) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const PackedMatrix& matrix = matrix_of(precision, n, k);
  const std::vector<float> a(static_cast<size_t>(m * k), 0.5f);
  std::vector<float> out(static_cast<size_t>(m * n));
  for (auto _ : state) {
    launch_gemm({&matrix, view(a.data(), m, k), view(out.data(), m, n)}, Stream{});
    benchmark::ClobberMemory();
  }
  const double flops = 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
  const bool is_bf16 = precision == GemmPrecision::kBf16;
  const MachineLimits& limits = machine_limits();
  const double peak = is_bf16 ? limits.bf16_flops_per_s : limits.f32_flops_per_s;
  const double bytes = static_cast<double>(packed_matrix_bytes(matrix));
  const bool is_memory_bound = bytes / limits.read_bytes_per_s > flops / peak;
  if (is_memory_bound) {
    report_against_limit(state, LimitKind::kRead, bytes);
  } else {
    report_against_limit(state, is_bf16 ? LimitKind::kBf16 : LimitKind::kF32, flops);
  }
}

void bench_bf16(benchmark::State& state) { bench_gemm(state, GemmPrecision::kBf16); }
void bench_f32(benchmark::State& state) { bench_gemm(state, GemmPrecision::kF32); }

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k"})->UseRealTime();
  for (int64_t m : {1, 4, 16, 64}) {
    for (auto [n, k] :
         {std::pair<int64_t, int64_t>{64, 64}, {512, 128}, {256, 1024}, {2048, 2048}}) {
      bench->Args({m, n, k});
    }
  }
}

BENCHMARK(bench_bf16)->Apply(shapes);
BENCHMARK(bench_bf16)->Apply([](benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (int64_t m : {1, 8, 64, 256}) bench->Args({m, 8192, 16384});
});
BENCHMARK(bench_f32)->Apply(shapes);

void bench_head_gemm(benchmark::State& state) {
  const int64_t m = state.range(0), num_heads = state.range(1);
  const int64_t n = state.range(2), k = state.range(3);
  const std::vector<float> w(static_cast<size_t>(n * k), 0.25f);
  const PackedMatrixPtr weights =
      make_packed_matrix({GemmPrecision::kBf16, num_heads, n, k}, Stream{});
  for (int64_t head = 0; head < num_heads; ++head) {
    if (!pack_into(*weights, head, view(w.data(), n, k), Stream{})) std::abort();
  }
  const std::vector<float> a(static_cast<size_t>(m * num_heads * k), 0.5f);
  std::vector<float> out(static_cast<size_t>(m * num_heads * n));
  for (auto _ : state) {
    launch_head_gemm(
        {weights.get(), 0, view(a.data(), m, num_heads, k), view(out.data(), m, num_heads, n)},
        Stream{});
    benchmark::ClobberMemory();
  }
  report_against_limit(state, LimitKind::kRead, static_cast<double>(packed_matrix_bytes(*weights)));
}
BENCHMARK(bench_head_gemm)
    ->ArgNames({"m", "heads", "n", "k"})
    ->UseRealTime()
    ->Args({1, 8, 64, 32})
    ->Args({1, 64, 512, 192})
    ->Args({8, 64, 512, 192});

}  // namespace
}  // namespace dhs
