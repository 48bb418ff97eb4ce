// philox: the counter-based generator Philox4x32-10 (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011). A pure function of counter and key; constexpr, so device code calls
// it too.
#pragma once

#include <cstdint>

namespace dhs {

struct PhiloxBlock {
  uint32_t word[4];
};

constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, uint32_t key_low, uint32_t key_high) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter.word[0];
    const uint64_t product1 = kMultiplier1 * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key_low,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key_high,
                static_cast<uint32_t>(product0)}};
    key_low += kWeyl0;
    key_high += kWeyl1;
  }
  return counter;
}

// uniform() of sampling.h, for device code as well.
constexpr double philox_uniform(uint64_t seed, uint32_t sequence_idx, uint32_t position) {
  const PhiloxBlock block =
      philox4x32_10({{position, sequence_idx, 0, 0}}, static_cast<uint32_t>(seed),
                    static_cast<uint32_t>(seed >> 32));
  return block.word[0] * 0x1p-32;
}

}  // namespace dhs
