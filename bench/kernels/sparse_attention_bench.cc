// sparse_attention at the shape of GLM-5.x: 64 heads, 512 + 64 dims, 2048 rows of a 4-layer record.
// Selections and layers take turns, so that rows come from memory as they do between two steps.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "bench/kernels/best_time.h"
#include "dhisparse/device.h"
#include "kernels/sparse_attention/sparse_attention.h"

namespace dhs {
namespace {

constexpr int64_t kNumHeads = 64;
constexpr int32_t kLatentDim = 512;
constexpr int32_t kRopeDim = 64;
constexpr int64_t kTopK = 2048;
constexpr int64_t kLayersPerRecord = 4;
constexpr int64_t kNumSlots = 32768;
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
  std::vector<std::byte> pool = std::vector<std::byte>(
      static_cast<size_t>(kNumSlots * kLayersPerRecord * (kLatentDim + kRopeDim) * 4));
  std::vector<float> q_latent = random_values(kMaxRows * kNumHeads * kLatentDim);
  std::vector<float> q_rope = random_values(kMaxRows * kNumHeads * kRopeDim);
  std::vector<float> out =
      std::vector<float>(static_cast<size_t>(kMaxRows * kNumHeads * kLatentDim));
  std::vector<int32_t> slots;  // [kNumSlots / kTopK selections, kTopK]

  Memory() : slots(kNumSlots) {
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), std::mt19937(2));
  }
};

Memory& memory() {
  static Memory memory;
  return memory;
}

void fill_rows(const RowLayout& layout, std::byte* pool) {
  const std::vector<float> latent = random_values(kLatentDim), rope = random_values(kRopeDim);
  std::vector<std::byte> row(static_cast<size_t>(layout.row_bytes()));
  encode_row(layout, latent.data(), rope.data(), row.data());
  for (int64_t i = 0; i < kNumSlots * kLayersPerRecord; ++i) {
    std::copy(row.begin(), row.end(), pool + i * layout.row_bytes());
  }
}

void report(benchmark::State& state, const BestTime& best, const RowLayout& layout) {
  const MachineLimits& limits = machine_limits();
  const bool bf16 = layout.format != RowFormat::kF32 && cpu_isa() == CpuIsa::kAvx512Bf16;
  const double selected = static_cast<double>(state.range(0) * kTopK);
  const double flops = 2.0 * selected * kNumHeads * (2 * kLatentDim + kRopeDim);
  report_roofline(state, best, selected * static_cast<double>(layout.row_bytes()), flops,
                  bf16 ? limits.bf16_flops_per_s : limits.f32_flops_per_s);
}

void bench_attention(benchmark::State& state, RowFormat format) {
  const int64_t rows = state.range(0);
  const RowLayout layout{format, kLatentDim, kRopeDim};
  Memory& m = memory();
  fill_rows(layout, m.pool.data());
  const int64_t offset = 0;
  SparseAttentionParams params;
  params.layout = layout;
  params.records = {m.pool.data(), &offset, static_cast<int32_t>(kNumSlots),
                    kLayersPerRecord * layout.row_bytes()};
  params.q_latent = view<const float>(m.q_latent.data(), rows, kNumHeads, kLatentDim);
  params.q_rope = view<const float>(m.q_rope.data(), rows, kNumHeads, kRopeDim);
  params.softmax_scale = 1.0f / 16;
  params.out = view(m.out.data(), rows, kNumHeads, kLatentDim);
  const int64_t num_turns = kNumSlots / kTopK / rows;
  int64_t turn = 0;
  BestTime best;
  for (auto _ : state) {
    params.slots =
        view<const int32_t>(m.slots.data() + turn % num_turns * rows * kTopK, rows, kTopK);
    params.row_offset = turn / num_turns % kLayersPerRecord * layout.row_bytes();
    state.SetIterationTime(best.run([&] { launch_sparse_attention(params, Stream{}); }));
    ++turn;
  }
  report(state, best, layout);
}

void batches(benchmark::internal::Benchmark* bench) {
  bench->ArgName("rows")->UseManualTime()->Unit(benchmark::kMillisecond)->Arg(1)->Arg(8);
}
BENCHMARK_CAPTURE(bench_attention, bf16, RowFormat::kBf16)->Apply(batches);
BENCHMARK_CAPTURE(bench_attention, fp8, RowFormat::kFp8)->Apply(batches);
BENCHMARK_CAPTURE(bench_attention, f32, RowFormat::kF32)->Apply(batches);

}  // namespace
}  // namespace dhs
