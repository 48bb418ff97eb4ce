// What the policy fixes in numbers, for every version of the passes.
#pragma once

#include <cstdint>

#include "kernels/resolve/resolve.h"

namespace dhs::row_cache {

// The pass with this tick ends with ticks from zero: a stamp may lie two ticks ahead.
inline constexpr uint32_t kLastTick = UINT32_MAX - 2;
// How far ahead of its own tick a protected claim stamps: past the next pass's tick, so out of its
// reach, yet not taken for a row that pass has stamped already.
inline constexpr uint32_t kProtectedAhead = 2;

// How far apart the candidates of one class lie; also the number of classes.
constexpr int32_t victim_stride(int32_t num_live) {
  const int32_t stride = num_live / kNumCandidates;
  return stride > 1 ? stride : 1;
}

// How many of `num_victims` victims class `j` gives, if it can. Needs j < num_victims.
constexpr int32_t victims_of_class(int32_t num_victims, int32_t j, int32_t stride) {
  return (num_victims - j - 1) / stride + 1;
}

// The ring's entry for evicted row `number`, of rows up to, not including, `last` that one pass
// evicts; kAbsent where there is no ring or a later row of the pass has the entry.
constexpr int64_t ring_entry(int64_t ring_size, int64_t number, int64_t last) {
  return number < last - ring_size ? kAbsent : number & (ring_size - 1);
}

}  // namespace dhs::row_cache
