// What exact LRU caches of every size would have missed, and how to size caches by it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trace/cache_policies.h"

namespace dhs::bench {

struct Window {  // of steps
  int64_t first = 0;
  int64_t last = 0;
};

// One cache's passes within a window, those before it as a warm-up. Sizes are counted in granules
// of so many rows.
class LruCurve {
 public:
  LruCurve(std::span<const trace::Pass> passes, Window window, int64_t granule);

  int64_t missed(int64_t num_granules) const;
  // Misses that each granule from `first` on saves, on the least convex curve through `first`: they
  // do not rise. None behind the end.
  std::vector<double> gains(int64_t first) const;

 private:
  void count(std::optional<int64_t> depth);

  const int64_t granule_;
  int64_t num_new_ = 0;        // rows that no size would have held
  std::vector<int64_t> hits_;  // by granule of depth
};

// Granules of every cache: `least` for each, what is left to whoever saves most with it. All of
// num_granules, which are at least `least` for each.
std::vector<int64_t> water_filled(std::span<const LruCurve> curves, int64_t least,
                                  int64_t num_granules);

}  // namespace dhs::bench
