#include <cmath>

#include "kernels/activation/activation.h"

namespace dhs {

void swiglu_ref(const SwigluParams& params) {
  const int64_t width = params.out.sizes[1];
  for (int64_t row = 0; row < params.out.sizes[0]; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      const double gate = params.gate_up(row, i);
      const double up = params.gate_up(row, width + i);
      params.out(row, i) = static_cast<float>(gate / (1 + std::exp(-gate)) * up);
    }
  }
}

}  // namespace dhs
