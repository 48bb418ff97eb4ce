// From the regex dialect of tokenizer.json (Oniguruma, Ruby syntax) to PCRE2's.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

namespace dhs {

// The PCRE2 pattern (for UTF and UCP mode) that matches exactly what `pattern` matches in
// Oniguruma. Only what means the same in both, or can be rewritten, is accepted:
//   literals, . | * + ? *? *+ {n} {n,} {n,m}, groups ( (?: (?> (?= (?! (?<= (?<! (?i: (?-i:, (?i)
//   at the very start, classes without nesting or &&, \s \S \d \D \n \r \t \f \A \z, \uHHHH,
//   \x{H..}, \p{general category} and \p{script} of the common scripts, escaped punctuation.
// INVALID_ARGUMENT names the construct and its byte offset for all the rest: \w \b \h ^ $ and other
// things that exist in both dialects with different meanings.
absl::StatusOr<std::string> translate_split_pattern(std::string_view pattern);

}  // namespace dhs
