// One number per decision, so that a seed replays a schedule.
#pragma once

#include <cstdint>

namespace simt {

class Random {
 public:
  explicit Random(uint64_t seed = 0, unsigned stream = 0)
      : enabled_(seed != 0), state_(seed * 0x9E3779B97F4A7C15u + stream + 1) {}

  // Seed 0 always says 0.
  unsigned below(unsigned bound) {
    if (!enabled_) return 0;
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return unsigned(state_ >> 33) % bound;
  }

 private:
  bool enabled_;
  uint64_t state_;
};

}  // namespace simt
