// What a step takes, learned from the steps that were: t = decode + prompt_tokens * per_token.
//
// Both terms are moving averages, so they follow load, context length and machine. Steps without
// prompt tokens teach the first, the others the second.
#pragma once

#include <absl/time/time.h>

#include <cstdint>

namespace dhs {

class StepCost {
 public:
  // A step of this many decoding rows and prompt tokens took `elapsed`.
  void observe(int64_t num_decodes, int64_t prompt_tokens, absl::Duration elapsed);

  // The most prompt tokens with which a step of decodes is expected to end within `target`; at
  // least kFewest, so that prompts always go on, and at most `limit`.
  int64_t max_prompt_tokens(absl::Duration target, int64_t limit) const;

  static constexpr int64_t kFewest = 4;

 private:
  double decode_s_ = 0;
  double per_token_s_ = 0;
};

}  // namespace dhs
