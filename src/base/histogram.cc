#include "dhisparse/histogram.h"

#include <algorithm>

#include "dhisparse/base.h"

namespace dhs {

Histogram::Histogram(std::initializer_list<double> upper_edges) : num_edges(upper_edges.size()) {
  DHS_CHECK(num_edges <= kMaxEdges && std::is_sorted(upper_edges.begin(), upper_edges.end()),
            num_edges, " edges");
  std::copy(upper_edges.begin(), upper_edges.end(), edges.begin());
}

void Histogram::observe(double value, int64_t times) {
  const auto end = edges.begin() + num_edges;
  counts[std::lower_bound(edges.begin(), end, value) - edges.begin()] += times;
  sum += value * static_cast<double>(times);
}

int64_t Histogram::count() const {
  int64_t total = 0;
  for (size_t i = 0; i <= num_edges; ++i) total += counts[i];
  return total;
}

std::optional<double> Histogram::quantile(double q) const {
  const int64_t total = count();
  if (total == 0 || num_edges == 0) return std::nullopt;
  const double wanted = q * static_cast<double>(total);
  double below = 0;
  for (size_t i = 0; i < num_edges; ++i) {
    const auto here = static_cast<double>(counts[i]);
    if (here > 0 && below + here >= wanted) {
      const double lower = i == 0 ? 0 : edges[i - 1];
      return lower + (edges[i] - lower) * std::max(0.0, wanted - below) / here;
    }
    below += here;
  }
  return edges[num_edges - 1];
}

}  // namespace dhs
