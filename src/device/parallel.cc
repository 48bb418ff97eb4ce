#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>

#include "dhisparse/base.h"
#include "dhisparse/device.h"

namespace dhs {
namespace {

// Set once by the CPU device before any kernel runs.
std::atomic<int> num_threads{0};

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

void set_num_kernel_threads(int threads) {
  DHS_CHECK(threads >= 0, "thread count ", threads);
  num_threads = threads == 0 ? available_cores() : threads;
  omp_set_num_threads(num_threads);  // oneDNN follows the calling thread's setting
}

int num_kernel_threads() {
  const int threads = num_threads;
  return threads == 0 ? available_cores() : threads;
}

void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& body) {
  DHS_CHECK(grain > 0, "grain ", grain);
  const int64_t num_pieces = ceil_div(count, grain);
  auto run_piece = [&](int64_t piece) {
    body(piece * grain, std::min(count, (piece + 1) * grain));
  };
#ifndef DHS_SERIAL_KERNELS
  const int threads = static_cast<int>(std::min<int64_t>(num_kernel_threads(), num_pieces));
  if (threads > 1 && !omp_in_parallel()) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t piece = 0; piece < num_pieces; ++piece) run_piece(piece);
    return;
  }
#endif
  for (int64_t piece = 0; piece < num_pieces; ++piece) run_piece(piece);
}

}  // namespace dhs
