#include "scheduler/shares.h"

#include <algorithm>
#include <numeric>

#include "dhisparse/base.h"

namespace dhs {

std::vector<int64_t> share_out(int64_t budget, std::span<const int64_t> wanted) {
  std::vector<size_t> smallest_first(wanted.size());
  std::iota(smallest_first.begin(), smallest_first.end(), size_t{0});
  std::stable_sort(smallest_first.begin(), smallest_first.end(),
                   [&](size_t a, size_t b) { return wanted[a] < wanted[b]; });
  std::vector<int64_t> shares(wanted.size());
  auto num_left = static_cast<int64_t>(wanted.size());
  for (size_t i : smallest_first) {
    shares[i] = std::min(wanted[i], ceil_div(budget, num_left));
    budget -= shares[i];
    --num_left;
  }
  return shares;
}

}  // namespace dhs
