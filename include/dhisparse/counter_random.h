// Random numbers as a pure function of a key and a counter: the same bits on every machine, in any
// order. The mixing function is SplitMix64's finaliser (Steele, Lea, Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014).
#pragma once

#include <cstdint>

namespace dhs::trace {

constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15;

constexpr uint64_t mixed_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A key made of two: streams with different keys have nothing in common.
constexpr uint64_t derived_key(uint64_t key, uint64_t number) {
  return mixed_bits(mixed_bits(key + kGoldenGamma) ^ (number + kGoldenGamma));
}

constexpr uint64_t random_bits(uint64_t key, uint64_t counter) {
  return mixed_bits(key + (counter + 1) * kGoldenGamma);
}

// Uniform in [0, 1), a multiple of 2^-53.
constexpr double random_unit(uint64_t key, uint64_t counter) {
  return static_cast<double>(random_bits(key, counter) >> 11) * 0x1p-53;
}

// Uniform in [0, limit) up to a bias of limit * 2^-53. Needs limit > 0.
constexpr int64_t random_below(uint64_t key, uint64_t counter, int64_t limit) {
  return static_cast<int64_t>(random_unit(key, counter) * static_cast<double>(limit));
}

}  // namespace dhs::trace
