// index_score at the shape of GLM-5.x: 32 heads of 128 dims. Limit: the lower of the peak rate of
// the instructions used and of what the memory can feed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "bench/kernels/best_time.h"
#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/index_score/index_score.h"

namespace dhs {
namespace {

constexpr int64_t kNumHeads = 32;
constexpr int32_t kIndexDim = 128;
constexpr int64_t kMaxKeys = int64_t{100} << 10;
constexpr int64_t kMaxRows = 8;

std::vector<float> random_values(int64_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

// Memory for the largest case, touched once: a first touch costs more than a benchmark.
struct Memory {
  std::vector<std::byte> pool;
  std::vector<float> q = random_values(kMaxRows * kNumHeads * kIndexDim);
  std::vector<float> weights = random_values(kMaxRows * kNumHeads);
  std::vector<float> scores = std::vector<float>(static_cast<size_t>(kMaxRows * kMaxKeys));

  std::byte* keys(const IndexKeyLayout& layout, int64_t num_pages) {
    pool.resize(std::max(pool.size(), static_cast<size_t>(num_pages * layout.page_bytes())));
    std::vector<std::byte> page(static_cast<size_t>(layout.page_bytes()));
    const std::vector<float> key = random_values(kIndexDim);
    for (int k = 0; k < layout.block_tokens; ++k) {
      encode_index_key(layout, key.data(), k, page.data());
    }
    for (int64_t p = 0; p < num_pages; ++p) {
      std::copy(page.begin(), page.end(), pool.begin() + p * layout.page_bytes());
    }
    return pool.data();
  }
};

Memory& memory() {
  static Memory memory;
  return memory;
}

void report(benchmark::State& state, const BestTime& best, const IndexKeyLayout& layout) {
  const MachineLimits& limits = machine_limits();
  const int64_t rows = state.range(0), sequences = state.range(1), num_keys = state.range(2);
  const bool bf16 = layout.format != RowFormat::kF32 && cpu_isa() == CpuIsa::kAvx512Bf16;
  const double flops = 2.0 * static_cast<double>(rows * num_keys * kNumHeads) * kIndexDim;
  const double bytes = static_cast<double>(sequences * num_keys * layout.page_bytes()) / 64;
  report_roofline(state, best, bytes, flops,
                  bf16 ? limits.bf16_flops_per_s : limits.f32_flops_per_s);
}

// Arguments: query rows, sequences they belong to, visible keys of each.
void bench_index_score(benchmark::State& state, RowFormat format) {
  const int64_t rows = state.range(0), sequences = state.range(1), num_keys = state.range(2);
  const IndexKeyLayout layout{format, kIndexDim, kHostBlockTokens};
  const int64_t num_blocks = ceil_div(num_keys, kHostBlockTokens);
  std::vector<int32_t> table(static_cast<size_t>(sequences * num_blocks));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(2));
  std::vector<int32_t> sequence_of_row, visible;
  for (int64_t t = 0; t < rows; ++t) {
    sequence_of_row.push_back(static_cast<int32_t>(t * sequences / rows));
    visible.push_back(static_cast<int32_t>(num_keys));
  }
  const int64_t offset = 0;
  Memory& m = memory();
  IndexScoreParams params;
  params.layout = layout;
  params.pages = {m.keys(layout, sequences * num_blocks), &offset,
                  static_cast<int32_t>(table.size()), layout.page_bytes()};
  params.item_table = view<const int32_t>(table.data(), sequences, num_blocks);
  params.q = view<const float>(m.q.data(), rows, kNumHeads, kIndexDim);
  params.head_weights = view<const float>(m.weights.data(), rows, kNumHeads);
  params.sequence_of_row = view<const int32_t>(sequence_of_row.data(), rows);
  params.visible = view<const int32_t>(visible.data(), rows);
  params.scores = view(m.scores.data(), rows, num_keys);
  BestTime best;
  for (auto _ : state) {
    state.SetIterationTime(best.run([&] { launch_index_score(params, Stream{}); }));
  }
  report(state, best, layout);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "seqs", "keys"})->UseManualTime()->Unit(benchmark::kMillisecond);
  bench->Args({1, 1, 32 << 10})->Args({1, 1, kMaxKeys});
  bench->Args({8, 1, 32 << 10})->Args({8, 8, 32 << 10})->Args({8, 8, kMaxKeys});
}
BENCHMARK_CAPTURE(bench_index_score, bf16, RowFormat::kBf16)->Apply(shapes);
BENCHMARK_CAPTURE(bench_index_score, fp8, RowFormat::kFp8)->Apply(shapes);
BENCHMARK_CAPTURE(bench_index_score, f32, RowFormat::kF32)
    ->ArgNames({"rows", "seqs", "keys"})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Args({1, 1, 32 << 10});

}  // namespace
}  // namespace dhs
