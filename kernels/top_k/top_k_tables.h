// The one step of top_k that reads every score, per instruction set. For top_k_cpu.cc and its test.
#pragma once

#include <cstdint>

#include "dhisparse/device.h"
#include "kernels/top_k/top_k.h"

namespace dhs {

struct TopKTable {
  // Appends, in ascending order, every position s < count with scores[s] >= threshold, and its
  // score; returns how many. The outputs hold count + 16 elements: a vector may be stored past the
  // last candidate.
  int64_t (*collect)(const float* scores, int64_t count, float threshold, int32_t* positions,
                     float* candidates);
};

// Precondition: cpu_supports(isa).
const TopKTable& top_k_table(CpuIsa isa);
void launch_top_k_with(const TopKTable& table, const TopKParams& params);

int64_t top_k_collect_base(const float* scores, int64_t count, float threshold, int32_t* positions,
                           float* candidates);
int64_t top_k_collect_avx2(const float* scores, int64_t count, float threshold, int32_t* positions,
                           float* candidates);
int64_t top_k_collect_avx512(const float* scores, int64_t count, float threshold,
                             int32_t* positions, float* candidates);

}  // namespace dhs
