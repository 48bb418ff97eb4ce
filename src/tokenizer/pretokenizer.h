// Cuts text into pieces; merging happens inside a piece only.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/split_regex.h"
#include "tokenizer/tokenizer_spec.h"

namespace dhs {

class PieceSink {
 public:
  virtual ~PieceSink() = default;
  // `piece` is not empty and valid during the call only. An error ends the split.
  virtual absl::Status on_piece(std::string_view piece) = 0;
};

// Immutable. Pieces go to the sink one by one, from left to right, so no list of them is held.
class PreTokenizer {
 public:
  // INVALID_ARGUMENT: a pattern that is not supported.
  static absl::StatusOr<PreTokenizer> create(const PreTokenizerSpec& spec);

  // `text` is valid UTF-8.
  absl::Status split(std::string_view text, RegexScratch& scratch, PieceSink& sink) const;

 private:
  class Walk;
  class StepSplit;
  struct Step {
    std::optional<SplitRegex> regex;  // absent: `literal` is searched for
    std::string literal;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
  };

  std::vector<Step> steps_;
  // From this step on pieces start with a space (they are given one if they do not).
  std::optional<size_t> prefix_space_step_;
};

}  // namespace dhs
