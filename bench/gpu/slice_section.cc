// Step times of a slice in every residency mode. Not in them: embedding, logits and draws, and what
// ranks exchange.
#include <algorithm>
#include <cstdio>

#include "slice.h"

namespace dhs::bench {
namespace {

struct Mode {
  const char* name;
  ResidencyConfig residency;
  double rows_in_pool;
};

// Share of the latest step's selection that the one before had selected too.
double overlap(const std::vector<int32_t>& before, const std::vector<int32_t>& after,
               int64_t top_k) {
  int64_t common = 0;
  for (size_t first = 0; first < after.size(); first += top_k) {
    for (int64_t i = 0; i < top_k; ++i) {
      const auto begin = before.begin() + static_cast<int64_t>(first);
      common += std::binary_search(begin, begin + top_k, after[first + i]) ? 1 : 0;
    }
  }
  return static_cast<double>(common) / static_cast<double>(after.size());
}

Work work_of(const SliceModel& model, const Slice& slice, const SliceShape& shape, double fetched) {
  const auto batch = static_cast<double>(shape.batch);
  const double keys = batch * static_cast<double>(shape.context);
  const double selected = batch * model.config.index_top_k;
  const double key_bytes = static_cast<double>(slice.index_key().key_bytes()) + 4 + 4;
  return {.memory_bytes = model.weight_bytes(shape.batch) + keys * key_bytes +
                          selected * static_cast<double>(slice.record_bytes()),
          .link_bytes = fetched * static_cast<double>(slice.record_bytes())};
}

void bench_steps(const Bench& bench, const SliceModel& model, const SliceContents& contents,
                 const SliceShape& shape, const char* mode) {
  Slice slice(bench, model, contents, shape);
  // Until the caches hold what steps select, and not what the context ended with.
  const int64_t warm_up = bench.pick(24, 3);
  for (int64_t i = 0; i < warm_up; ++i) slice.step();
  const std::vector<int32_t> before = slice.selection();
  slice.step();
  const double common = overlap(before, slice.selection(), model.config.index_top_k);

  const ResolveCounters start = slice.counters().resolve;
  int64_t num_steps = 0;
  const double us = bench.meter.median_us([&](int64_t) {
    slice.step();
    ++num_steps;
  });
  const ResolveCounters end = slice.counters().resolve;
  const double missed = static_cast<double>(end.missed - start.missed);
  const double fetched = missed / static_cast<double>(num_steps);
  char note[160];
  std::snprintf(
      note, sizeof(note), "%.1f %% fetched from host, overlap %.0f %%, %s, %s, pool %.1f GB",
      100 * missed / std::max<double>(1, static_cast<double>(end.selected - start.selected)),
      100 * common, slice.is_fused() ? "fused" : "gather",
      slice.is_captured() ? "graph" : "launches", static_cast<double>(slice.pool_bytes()) * 1e-9);
  bench.report.add({.section = "slice",
                    .what = "4 layers, batch " + std::to_string(shape.batch) + ", " +
                            std::to_string(shape.context) + " tokens, " + mode,
                    .us = us,
                    .work = work_of(model, slice, shape, fetched),
                    .note = note});
}

}  // namespace

void bench_slice(const Bench& bench) {
  const int64_t fixed_rows = bench.pick(4096, 48);
  const Mode modes[] = {
      {"resident", {.mode = ResidencyMode::kResident}, 1.0},
      {"fixed", {.mode = ResidencyMode::kFixed, .fixed_rows_per_request = fixed_rows}, 0.25},
      {"adaptive", {.mode = ResidencyMode::kAdaptive}, 0.25}};
  const SliceShape largest{.batch = bench.pick(64, 2),
                           .context = bench.pick(100'000, 200),
                           .max_steps = bench.pick(96, 8)};
  const SliceModel model = make_slice_model(bench);
  const SliceContents contents(bench, model.config, largest);
  for (int64_t batch : {1, 2, 4, 16, 64}) {
    if (batch > largest.batch || (batch == 2 && !bench.is_tiny)) continue;
    for (const Mode& mode : modes) {
      SliceShape shape = largest;
      shape.batch = batch;
      shape.residency = mode.residency;
      shape.rows_in_pool = mode.rows_in_pool;
      bench_steps(bench, model, contents, shape, mode.name);
    }
  }
}

}  // namespace dhs::bench
