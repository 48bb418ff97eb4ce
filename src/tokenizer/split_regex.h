// A compiled split pattern: PCRE2 with JIT, with bounds on the work of one search.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "dhisparse/base.h"

namespace dhs {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

// Working memory of searches; one per thread, for any number of patterns.
class RegexScratch {
 public:
  RegexScratch();

 private:
  friend class SplitRegex;
  struct State;
  struct StateDeleter {
    void operator()(State* state) const;
  };
  std::unique_ptr<State, StateDeleter> state_;
};

// Immutable; any thread may search with its own scratch.
class SplitRegex {
 public:
  // A pattern of tokenizer.json. INVALID_ARGUMENT: see translate_split_pattern, or not a regex.
  static absl::StatusOr<SplitRegex> compile(std::string_view pattern);

  // A pattern of ours, in PCRE2's own dialect.
  static SplitRegex compile_native(std::string_view pattern);

  // The first match that begins at or after `from`; it may be empty. `text` is valid UTF-8, `from`
  // is at the border of a character. INVALID_ARGUMENT: the search needs more work or memory than
  // its bounds; never for the usual patterns.
  absl::StatusOr<std::optional<ByteRange>> find(std::string_view text, size_t from,
                                                RegexScratch& scratch) const;

 private:
  struct Code;
  struct CodeDeleter {
    void operator()(Code* code) const;
  };
  static absl::StatusOr<SplitRegex> compile_checked(std::string_view native);

  std::unique_ptr<Code, CodeDeleter> code_;
};

}  // namespace dhs
