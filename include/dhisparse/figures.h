// figures: what the engine's requests and steps took, as distributions since start. Plain data.
// Durations in seconds; the edges suit contexts whose prompts take minutes.
#pragma once

#include <array>
#include <cstdint>

#include "dhisparse/histogram.h"
#include "dhisparse/request.h"

namespace dhs {

inline constexpr int kNumFinishReasons = 5;  // of FinishReason

struct RequestFigures {
  // From a request's arrival to its first token; to its first step and to its end, both counted at
  // its end.
  Histogram first_token{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,   2.5,
                        5,     10,   20,    40,   80,  160,  320, 600, 1200};
  Histogram queue{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,   2.5,
                  5,     10,   20,    40,   80,  160,  320, 600, 1200};
  Histogram whole{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 600, 1200, 3600};
  // Of every token after the first, since the one before; tokens that come together share it.
  Histogram inter_token{0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075,
                        0.1,   0.15,  0.2,  0.3,   0.4,  0.5,   0.75, 1,    2.5,  10};
  // Of every request with two tokens at least: (last - first token) / (tokens - 1).
  Histogram per_output_token{0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075,
                             0.1,   0.15,  0.2,  0.3,   0.4,  0.5,   0.75, 1,    2.5,  10};
  Histogram prompt_tokens{1,     16,    64,    256,    1024,   2048,   4096,   8192,
                          16384, 32768, 65536, 131072, 262144, 524288, 1048576};
  Histogram output_tokens{1,   2,    4,    8,    16,   32,    64,    128,   256,
                          512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
  std::array<int64_t, kNumFinishReasons> finished{};  // requests, by FinishReason
};

struct StepFigures {
  Histogram seconds{0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075,
                    0.1,   0.15,  0.2,  0.3,   0.4,  0.5,   0.75, 1,    2.5,  10};
  Histogram tokens{1,   2,   4,    8,    16,   32,   64,    128,
                   256, 512, 1024, 2048, 4096, 8192, 16384, 65536};  // query rows
};

}  // namespace dhs
