#include <cmath>

#include "kernels/rope/rope.h"

namespace dhs {

void rope_ref(const RopeParams& params) {
  const bool is_interleaved = params.pairing == RopePairing::kInterleaved;
  for (int64_t token = 0; token < params.x.sizes[0]; ++token) {
    if (params.positions(token) < 0) continue;
    for (int64_t head = 0; head < params.x.sizes[1]; ++head) {
      for (int64_t i = 0; i < params.rope_dim / 2; ++i) {
        const double angle = params.positions(token) * params.inverse_frequency[i];
        float& first = params.x(token, head, is_interleaved ? 2 * i : i);
        float& second = params.x(token, head, is_interleaved ? 2 * i + 1 : i + params.rope_dim / 2);
        const double a = first, b = second;
        first = static_cast<float>((a * std::cos(angle) - b * std::sin(angle)) * params.magnitude);
        second = static_cast<float>((a * std::sin(angle) + b * std::cos(angle)) * params.magnitude);
      }
    }
  }
}

}  // namespace dhs
