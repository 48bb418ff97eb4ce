#include "machine.h"

namespace dhs::bench {

std::optional<Limits> limits_of(const std::string& gpu_name) {
  struct Known {
    const char* part_of_name;
    Limits limits;
  };
  static constexpr Known kKnown[] = {
      {"H200", {.memory_gbs = 4800, .link_gbs = 53, .bf16_tflops = 990, .fp8_tflops = 1980}},
      {"H100", {.memory_gbs = 3350, .link_gbs = 53, .bf16_tflops = 990, .fp8_tflops = 1980}},
      {"B200", {.memory_gbs = 8000, .link_gbs = 53, .bf16_tflops = 2250, .fp8_tflops = 4500}},
      {"A100", {.memory_gbs = 2039, .link_gbs = 25, .bf16_tflops = 312, .fp8_tflops = 312}},
  };
  for (const Known& known : kKnown) {
    if (gpu_name.find(known.part_of_name) != std::string::npos) return known.limits;
  }
  return std::nullopt;
}

}  // namespace dhs::bench
