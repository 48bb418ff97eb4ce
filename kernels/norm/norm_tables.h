// The row functions of each instruction set, for the launchers and for tests.
#pragma once

#include <cstdint>

#include "dhisparse/device.h"

namespace dhs {

struct NormTable {
  // One row of `width` columns; out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t width, float* out);
  // weight_and_bias: two pointers, each to [width].
  void (*layer_norm)(const float* x, const float* const weight_and_bias[2], float eps,
                     int64_t width, float* out);
};
const NormTable& norm_table(CpuIsa isa);

}  // namespace dhs
