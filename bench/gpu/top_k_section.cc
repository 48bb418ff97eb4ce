// The exact 2048 best of many scores. Scores lie in L2 as far as they fit, as they do when the
// indexer has just written them.
#include "kernels/top_k/top_k.h"
#include "meter.h"

namespace dhs::bench {
namespace {

void bench_scores(const Bench& bench, int64_t num_rows, int64_t num_scores) {
  const int64_t k = bench.pick(2048, 16);
  const MemoryRange scores = bench.uploaded(normal_floats(num_rows * num_scores, 21));
  const MemoryRange visible = bench.uploaded(
      std::vector<int32_t>(static_cast<size_t>(num_rows), static_cast<int32_t>(num_scores)));
  const MemoryRange selection = bench.device_memory(num_rows * k * 4);
  const double us = bench.meter.median_us([&](int64_t) {
    launch_top_k({.scores = view(scores.as<const float>(), num_rows, num_scores),
                  .visible = view(visible.as<const int32_t>(), num_rows),
                  .selection = view(selection.as<int32_t>(), num_rows, k)},
                 bench.stream());
  });
  bench.report.add(
      {.section = "top_k",
       .what = std::to_string(num_rows) + " x " + std::to_string(num_scores) + " scores",
       .us = us,
       .work = {.memory_bytes = static_cast<double>(num_rows * (4 * num_scores + 4 * k))},
       .note = "scores read once"});
}

}  // namespace

void bench_top_k(const Bench& bench) {
  if (bench.is_tiny) return bench_scores(bench, 2, 300);
  for (int64_t num_rows : {1, 16, 64}) bench_scores(bench, num_rows, 100'000);
  for (int64_t num_rows : {1, 16}) bench_scores(bench, num_rows, 1'000'000);
}

}  // namespace dhs::bench
