// One index group's steps through the real passes of its row cache.
#pragma once

#include "load.h"
#include "lru_curve.h"
#include "trace/simulated_row_cache.h"

namespace dhs::bench {

// Misses within the window, the steps before it as a warm-up.
int64_t row_cache_misses(const Load& load, int group, int64_t num_slots, Window window);

}  // namespace dhs::bench
