// tokenizer: text <-> token ids for byte-level BPE models, streaming detokenization, stop strings.
//
// A tokenizer is described by the `tokenizer.json` of a Hugging Face model directory. Whatever such
// a file can ask for is either done exactly or refused when it is loaded, with the JSON path of
// what is not supported; nothing is ignored that would change a token. What is left are the ages of
// the Unicode tables: split patterns see the character properties of Unicode 14 (PCRE2 10.42; the
// reference has 16), so letters and digits assigned later are "other" characters here; NFC is that
// of Unicode 15 (the reference has 9), so combining marks assigned later are put in order here.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dhisparse/base.h"

namespace dhs {

struct EncodeOptions {
  // Put the model's own prefix and suffix tokens (bos, [gMASK]<sop>, ...) around the text, as the
  // file's post processor says. Off: a rendered chat template already contains them.
  bool add_special_tokens = false;
  // Find special tokens that are spelled out in the text. Off: their spelling is ordinary text, so
  // a user cannot forge a role marker. Added tokens that are not "special" are found either way.
  bool parse_special = true;
  // Longer text is INVALID_ARGUMENT. Working memory is at most about 16 bytes per byte of text
  // (mostly the tokens themselves), time is O(n log n) for any text.
  size_t max_text_bytes = size_t{32} << 20;
};

// Immutable after loading: any number of threads may call any method.
class Tokenizer {
 public:
  // No word (piece between two splits) may be longer; it bounds the memory of one merge run.
  static constexpr size_t kMaxPieceBytes = size_t{1} << 20;

  // Reads `dir`/tokenizer.json and, if there is one, `dir`/tokenizer_config.json, of which only
  // add_bos_token, add_eos_token, bos_token and eos_token matter.
  // NOT_FOUND: no such file. INVALID_ARGUMENT: malformed, too large, or something unsupported.
  static absl::StatusOr<Tokenizer> load(const std::filesystem::path& dir);

  // The same from memory; an empty `tokenizer_config_json` means there is no such file.
  static absl::StatusOr<Tokenizer> from_json(std::string_view tokenizer_json,
                                             std::string_view tokenizer_config_json = {});

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // INVALID_ARGUMENT: text too long, not UTF-8 (the message has the byte offset), or one piece
  // longer than kMaxPieceBytes.
  absl::StatusOr<std::vector<TokenId>> encode(std::string_view text,
                                              const EncodeOptions& options = {}) const;

  // The bytes of all tokens joined, then made valid UTF-8: each maximal invalid part becomes one
  // U+FFFD. Ids that name no token (a model's padding rows can be sampled) contribute nothing.
  std::string decode(std::span<const TokenId> tokens, bool skip_special_tokens = true) const;

  // Raw bytes of one token, possibly part of a character; empty for an id that names no token.
  // The view lives as long as the tokenizer.
  std::string_view token_bytes(TokenId token) const;

  // Largest id + 1. A model's logits may have more rows than this (padding).
  int32_t vocab_size() const;

  // True for added tokens flagged special; false for every other value, valid id or not.
  bool is_special(TokenId token) const;

  // `content` is spelled as in tokenizer.json: "<|user|>", and "\u0120the" for the token " the".
  std::optional<TokenId> token_to_id(std::string_view content) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Turns a stream of tokens into a stream of text. Bytes are held back (at most three) until they
// are a whole character or can no longer become one; the outputs, joined, are exactly
// Tokenizer::decode of all tokens, however the tokens are cut into calls. O(bytes of the token).
//
// It starts empty: when a prompt ends inside a character, the prompt's bytes are not repeated, and
// continuation bytes generated after it become U+FFFD, as decode() of the generated tokens alone
// would give. One thread at a time. The tokenizer must outlive it.
class StreamingDetokenizer {
 public:
  explicit StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

  // Text that has become final with this token; always whole characters, often empty.
  std::string push(TokenId token);
  std::string push(std::span<const TokenId> tokens);

  // The end of the sequence, for whatever reason it ended: an incomplete character is given out as
  // U+FFFD. The detokenizer is empty afterwards and may be used for another sequence.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;
};

struct StopOptions {
  bool include_stop_in_output = false;
  // A request beyond these is INVALID_ARGUMENT.
  size_t max_num_stops = 16;
  size_t max_stop_bytes = 256;
};

// Where a stop string was found, in bytes from the first byte ever pushed: tokens at or after
// `end_byte` (or `begin_byte`, when the stop is not part of the output) are to be dropped.
struct StopMatch {
  size_t stop_idx = 0;  // into the list given to create()
  int64_t begin_byte = 0;
  int64_t end_byte = 0;
};

// Looks for stop strings in streamed text. Held back is only the longest suffix that is a proper
// prefix of a stop string, so a match never has to take back what was given out. The result does
// not depend on how the text is cut into calls: the match whose end comes first wins, and of
// several that end at the same byte the longest. Linear in the text, whatever the stop strings.
// One thread at a time.
class StopMatcher {
 public:
  // INVALID_ARGUMENT: too many, an empty, too long or non-UTF-8 stop string. No stop strings at all
  // is fine: all text passes through.
  static absl::StatusOr<StopMatcher> create(std::span<const std::string> stops,
                                            const StopOptions& options = {});

  StopMatcher(StopMatcher&&) noexcept;
  StopMatcher& operator=(StopMatcher&&) noexcept;
  ~StopMatcher();

  struct Output {
    std::string text;                // final: may be sent
    std::optional<StopMatch> match;  // set by the call that completes a match
  };

  // `text` is whole characters (what a StreamingDetokenizer gives). After a match every further
  // push is dropped.
  Output push(std::string_view text);

  // The end of the sequence without a match: gives out what was held back. Call it once.
  std::string flush();

  bool stopped() const { return stopped_; }

 private:
  struct Automaton;
  StopMatcher(std::unique_ptr<const Automaton> automaton, bool include_stop_in_output);

  std::unique_ptr<const Automaton> automaton_;
  bool include_stop_in_output_;
  bool stopped_ = false;
  int32_t state_ = 0;
  int64_t num_bytes_ = 0;  // pushed so far
  std::string held_;       // the last held_.size() bytes pushed
};

}  // namespace dhs
