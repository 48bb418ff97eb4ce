// histogram: how many observations fell into each of a fixed set of buckets. Plain data: who
// observes guards it, who reports takes a copy. Observing allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

namespace dhs {

struct Histogram {
  static constexpr size_t kMaxEdges = 24;

  Histogram() = default;
  // Upper edges of the buckets, inclusive, rising; one more bucket takes what lies above them.
  Histogram(std::initializer_list<double> upper_edges);

  // `times` observations of the same value.
  void observe(double value, int64_t times = 1);

  int64_t count() const;
  // What the share `q` of all observations does not exceed, as if they were spread evenly in each
  // bucket; the last edge for what is above it. nullopt without observations.
  std::optional<double> quantile(double q) const;

  size_t num_edges = 0;
  std::array<double, kMaxEdges> edges{};
  std::array<int64_t, kMaxEdges + 1> counts{};  // by bucket, not cumulative; num_edges + 1 of them
  double sum = 0;
};

}  // namespace dhs
