#include <sched.h>

#include <algorithm>
#include <memory>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernel_threads.h"

namespace dhs {
namespace {

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// The process's one team, as there is one set of cores.
std::unique_ptr<KernelThreads>& team() {
  static auto instance = std::make_unique<KernelThreads>(available_cores());
  return instance;
}

}  // namespace

void set_num_kernel_threads(int threads) {
  DHS_CHECK(threads >= 0, "thread count ", threads);
  const int wanted = threads == 0 ? available_cores() : threads;
  if (team()->num_threads() != wanted) team() = std::make_unique<KernelThreads>(wanted);
}

int num_kernel_threads() { return team()->num_threads(); }

void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& body) {
  DHS_CHECK(grain > 0, "grain ", grain);
  team()->run(ceil_div(count, grain),
              [&](int64_t piece) { body(piece * grain, std::min(count, (piece + 1) * grain)); });
}

}  // namespace dhs
