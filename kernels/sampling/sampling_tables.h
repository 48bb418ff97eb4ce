// The passes over one row of logits for each instruction set, for the launcher and for tests. All
// give the same bits on every instruction set.
#pragma once

#include <cstdint>

#include "dhisparse/device.h"

namespace dhs {

struct SamplingTable {
  // Copies with NaN -> -inf, +inf -> the largest float, -0 -> 0.
  void (*load)(const float* logits, int64_t count, float* values);
  // The largest value; -inf when count is 0.
  float (*largest)(const float* values, int64_t count);
  // mass[i] = exp((values[i] - largest) / temperature); returns the sum in f64, in a fixed order.
  double (*exponentials)(const float* values, int64_t count, const float largest_and_temperature[2],
                         float* mass);
};
const SamplingTable& sampling_table(CpuIsa isa);

}  // namespace dhs
