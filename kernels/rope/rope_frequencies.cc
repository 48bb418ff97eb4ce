#include <algorithm>
#include <cmath>
#include <numbers>

#include "dhisparse/base.h"
#include "kernels/rope/rope.h"

namespace dhs {
namespace {

// The (fractional) pair that turns `rotations` times over the original context.
double pair_of_rotations(double rotations, int rope_dim, double theta, const YarnParams& yarn) {
  const double wavelength = yarn.original_max_position / rotations;
  return rope_dim * std::log(wavelength / (2 * std::numbers::pi)) / (2 * std::log(theta));
}

}  // namespace

std::vector<double> rope_frequencies(int rope_dim, double theta, const YarnParams* yarn) {
  DHS_CHECK(rope_dim >= 0 && rope_dim % 2 == 0, "rope_dim ", rope_dim);
  std::vector<double> frequencies(static_cast<size_t>(rope_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rope_dim);
  }
  if (yarn == nullptr) return frequencies;
  const double low =
      std::max(0.0, std::floor(pair_of_rotations(yarn->beta_fast, rope_dim, theta, *yarn)));
  const double high = std::min(
      rope_dim - 1.0, std::ceil(pair_of_rotations(yarn->beta_slow, rope_dim, theta, *yarn)));
  const double span = std::max(high - low, 0.001);  // a ramp of no width is a step
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / span, 0.0, 1.0);
    frequencies[i] = frequencies[i] * (1 - ramp) + frequencies[i] / yarn->factor * ramp;
  }
  return frequencies;
}

}  // namespace dhs
