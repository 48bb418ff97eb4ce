// What the GPU can do at best: what every measured rate is put beside.
#pragma once

#include <optional>
#include <string>

namespace dhs::bench {

// Vendors' figures, dense arithmetic.
struct Limits {
  double memory_gbs = 0;  // device memory
  double link_gbs = 0;    // full 128-byte lines from pinned host memory
  double bf16_tflops = 0;
  double fp8_tflops = 0;
};

// Of the GPU with this name; nullopt when it is not in the table: then no percentages are printed.
std::optional<Limits> limits_of(const std::string& gpu_name);

}  // namespace dhs::bench
