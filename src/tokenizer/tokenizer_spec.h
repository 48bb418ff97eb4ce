// What a tokenizer.json says, as plain data: checked, in our words, free of JSON.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dhisparse/base.h"

namespace dhs {

// Limits on a file. They keep a crafted file from taking unreasonable memory or time.
inline constexpr size_t kMaxTokenizerFileBytes = size_t{64} << 20;
inline constexpr TokenId kMaxVocabSize = 1 << 20;
inline constexpr size_t kMaxAddedTokenBytes = 256;
inline constexpr size_t kMaxPreTokenizerSteps = 16;
inline constexpr size_t kMaxPatternBytes = 16384;

struct VocabToken {
  std::string content;  // in the byte-level alphabet, or plain for an added token
  TokenId id = 0;
};

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;   // look for it in the normalized text instead of the text as given
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // swallow white space to its left
  bool rstrip = false;       // swallow white space to its right
};

struct BpeSpec {
  std::vector<VocabToken> vocab;
  // By falling priority; the spellings of the left and the right part.
  std::vector<std::pair<std::string, std::string>> merges;
  bool ignore_merges = false;  // a piece that is a token as a whole is not merged up
};

enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  enum class Kind { kRegex, kLiteral };
  Kind kind = Kind::kRegex;
  std::string pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;    // what matched counts as not matched and the reverse
  std::string json_path;  // for messages
};

// The steps before it, then the byte-level one, which is always the last.
struct PreTokenizerSpec {
  std::vector<SplitStep> steps;
  bool add_prefix_space = false;
  bool split_words = false;  // GPT-2's word pattern
};

struct TokenizerSpec {
  BpeSpec bpe;
  std::vector<AddedToken> added_tokens;
  bool normalize_nfc = false;
  PreTokenizerSpec pre_tokenizer;
  std::vector<TokenId> prefix_tokens;  // added around the text on request
  std::vector<TokenId> suffix_tokens;
};

// What the form of the file does not guarantee: ids and contents are unique, ids are those a reader
// of the file gives out on its own, ids around the text exist. INVALID_ARGUMENT names the path.
absl::Status check_tokens(const TokenizerSpec& spec);

// INVALID_ARGUMENT names the path of what is wrong or unsupported. `config_json` may be empty.
// The result still has to pass check_tokens.
absl::StatusOr<TokenizerSpec> parse_tokenizer_json(std::string_view tokenizer_json,
                                                   std::string_view config_json);

}  // namespace dhs
