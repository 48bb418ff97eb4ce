// Whether draws have the distribution that they should.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

namespace dhs {

// Pearson's statistic of `counts` against `expected` probabilities; adds up to one degree of
// freedom less than the number of tokens.
inline double chi_square_of(const std::map<int32_t, int>& counts,
                            const std::vector<double>& expected, int num_draws) {
  double sum = 0;
  for (size_t token = 0; token < expected.size(); ++token) {
    const auto found = counts.find(static_cast<int32_t>(token));
    const double seen = found == counts.end() ? 0 : found->second;
    if (expected[token] == 0) {
      EXPECT_EQ(seen, 0) << "token " << token << " is impossible";
      continue;
    }
    sum += std::pow(seen - expected[token] * num_draws, 2) / (expected[token] * num_draws);
  }
  return sum;
}

// The probability that a chi-square variable of so many degrees of freedom is at least `statistic`:
// the series of the lower incomplete gamma function.
inline double chi_square_p_value(double statistic, int degrees) {
  const double a = degrees / 2.0, x = statistic / 2.0;
  if (x > 600 + 2 * a) return 0;
  double term = 1 / a, sum = term;
  for (int n = 1; n < 10000 && term > 1e-16 * sum; ++n) sum += term *= x / (a + n);
  const double p = 1 - std::exp(a * std::log(x + 1e-300) - x - std::lgamma(a) + std::log(sum));
  return p > 0 ? p : 0;
}

// How likely draws with the `expected` probabilities are to be at least as far off as `counts`.
// Tokens that are expected fewer than 5 times count as one; impossible ones must not be drawn.
inline double p_value_of(const std::map<int32_t, int>& counts, const std::vector<double>& expected,
                         int num_draws) {
  std::map<int32_t, int> seen;
  std::vector<double> cells = {0};
  for (size_t token = 0; token < expected.size(); ++token) {
    const auto found = counts.find(static_cast<int32_t>(token));
    const int count = found == counts.end() ? 0 : found->second;
    if (expected[token] == 0 && count > 0) return 0;
    const bool is_rare = expected[token] * num_draws < 5;
    if (!is_rare) cells.push_back(0);
    const size_t cell = is_rare ? 0 : cells.size() - 1;
    cells[cell] += expected[token];
    seen[static_cast<int32_t>(cell)] += count;
  }
  int degrees = -1;
  for (double cell : cells) degrees += cell > 0 ? 1 : 0;
  return degrees < 1 ? 1 : chi_square_p_value(chi_square_of(seen, cells, num_draws), degrees);
}

}  // namespace dhs
