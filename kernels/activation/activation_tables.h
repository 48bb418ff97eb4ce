// The row function of each instruction set, for the launcher and for tests.
#pragma once

#include <cstdint>

#include "dhisparse/device.h"

namespace dhs {

// out[i] = silu(gate[i]) * up[i] for i < width; out may be gate.
using SwigluRow = void (*)(const float* gate, const float* up, int64_t width, float* out);
SwigluRow swiglu_row(CpuIsa isa);

}  // namespace dhs
