// Turns the tokens of one request into what a client may see: text in whole characters, cut at a
// stop string, and the tokens that belong to that text.
//
// Rule of the cut: a token is part of the output if and only if its text begins before the cut
// (proto/dhisparse/v1/generation.proto, Chunk). A token whose text is still held back is held back
// with it, so nothing given out is ever taken back.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "dhisparse/engine.h"
#include "dhisparse/tokenizer.h"

namespace dhs {

struct OutputDelta {
  std::string text;
  std::vector<TokenOutput> tokens;

  bool empty() const { return text.empty() && tokens.empty(); }
};

// One thread at a time.
class OutputAssembler {
 public:
  // `may_stop`: the matcher has stop strings; without any, no token is ever held back.
  OutputAssembler(StreamingDetokenizer detokenizer, StopMatcher matcher, bool may_stop)
      : detokenizer_(std::move(detokenizer)), matcher_(std::move(matcher)), may_stop_(may_stop) {}

  // What can be given out now. After a match everything is dropped.
  OutputDelta push(const std::vector<TokenOutput>& tokens);

  // The end of the sequence, for whatever reason: what was held back. Call it once.
  OutputDelta finish();

  const std::optional<StopMatch>& match() const { return match_; }
  // Tokens it was given so far, but none behind the one that completed a stop string.
  int64_t num_tokens() const { return num_tokens_; }

 private:
  struct HeldToken {
    TokenOutput output;
    int64_t begin_byte;  // of its text; inside a character: where that character begins
  };

  void push_text(const std::string& text, OutputDelta& delta);
  void release_tokens(OutputDelta& delta, bool all);

  StreamingDetokenizer detokenizer_;
  StopMatcher matcher_;
  const bool may_stop_;
  std::optional<StopMatch> match_;
  std::deque<HeldToken> held_;
  int64_t num_tokens_ = 0;
  int64_t num_bytes_ = 0;  // of text that the detokenizer gave out
  int64_t num_given_ = 0;  // of text that the matcher let pass
};

}  // namespace dhs
