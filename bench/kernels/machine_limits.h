// machine_limits: what this machine can do, measured in the process that quotes it.
//
// A kernel's time says nothing alone; its share of a limit does. The limits are measured with all
// kernel threads (num_kernel_threads()), once per process, on buffers far larger than any cache,
// best of many short passes: noise only ever makes a limit look worse. The first call takes about a
// second and touches 512 MiB; later calls return the same numbers.
#pragma once

#include <benchmark/benchmark.h>

namespace dhs {

struct MachineLimits {
  double read_bytes_per_s = 0;  // streaming loads from memory
  double copy_bytes_per_s = 0;  // memcpy; bytes copied, not bytes read plus bytes written
  double f32_flops_per_s = 0;   // fused multiply-add, 2 FLOPs per lane
  double bf16_flops_per_s = 0;  // bf16 dot products; 0 where the CPU has none
};
const MachineLimits& machine_limits();

enum class LimitKind { kRead, kCopy, kF32, kBf16 };

// Adds to the row of a benchmark: GB_s or GFLOP_s (what was achieved), limit (same unit) and pct.
// `work_per_iteration` is in bytes for kRead and kCopy, in FLOPs for the others. Where the limit is
// unknown (0), limit and pct are left out.
void report_against_limit(benchmark::State& state, LimitKind kind, double work_per_iteration);

}  // namespace dhs
