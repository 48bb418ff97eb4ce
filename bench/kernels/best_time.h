// Times every iteration of a benchmark and reports the best one against a limit of the machine. The
// limits are the best of many passes, so only the best iteration compares with them on a machine
// that does other work too; the mean stays in the time column. For benchmarks with UseManualTime().
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "bench/kernels/machine_limits.h"

namespace dhs {

class BestTime {
 public:
  // Runs and times one iteration; returns its seconds.
  template <class Body>
  double run(const Body& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    benchmark::ClobberMemory();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    seconds_ = std::min(seconds_, elapsed.count());
    return elapsed.count();
  }
  double seconds() const { return seconds_; }

 private:
  double seconds_ = std::numeric_limits<double>::infinity();
};

// GB_s or GFLOP_s, limit and pct for `work` per iteration; `limit` in the same unit per second.
inline void report_best(benchmark::State& state, const BestTime& best, double work, bool is_bytes,
                        double limit) {
  const double rate = work / best.seconds();
  state.counters[is_bytes ? "GB_s" : "GFLOP_s"] = rate * 1e-9;
  if (limit <= 0) return;
  state.counters["limit"] = limit * 1e-9;
  state.counters["pct"] = 100 * rate / limit;
}

// Against the roofline: whichever of memory and arithmetic takes longer at its peak.
inline void report_roofline(benchmark::State& state, const BestTime& best, double bytes,
                            double flops, double peak_flops_per_s) {
  const double read = machine_limits().read_bytes_per_s;
  const bool is_memory_bound = peak_flops_per_s > 0 && bytes / read > flops / peak_flops_per_s;
  report_best(state, best, is_memory_bound ? bytes : flops, is_memory_bound,
              is_memory_bound ? read : peak_flops_per_s);
}

}  // namespace dhs
