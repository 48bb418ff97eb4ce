#include "server/output_assembler.h"

#include <utility>

namespace dhs {

OutputDelta OutputAssembler::push(const std::vector<TokenOutput>& tokens) {
  OutputDelta delta;
  for (const TokenOutput& token : tokens) {
    if (match_) break;
    ++num_tokens_;
    held_.push_back({token, num_bytes_});
    push_text(detokenizer_.push(token.token), delta);
  }
  release_tokens(delta, !may_stop_);
  return delta;
}

OutputDelta OutputAssembler::finish() {
  OutputDelta delta;
  if (match_) return delta;
  push_text(detokenizer_.finish(), delta);
  if (!match_) delta.text += matcher_.flush();
  release_tokens(delta, !match_);
  return delta;
}

void OutputAssembler::push_text(const std::string& text, OutputDelta& delta) {
  num_bytes_ += static_cast<int64_t>(text.size());
  StopMatcher::Output output = matcher_.push(text);
  num_given_ += static_cast<int64_t>(output.text.size());
  delta.text += output.text;
  match_ = output.match;
}

void OutputAssembler::release_tokens(OutputDelta& delta, bool all) {
  while (!held_.empty() && (all || held_.front().begin_byte < num_given_)) {
    delta.tokens.push_back(std::move(held_.front().output));
    held_.pop_front();
  }
  if (match_) held_.clear();
}

}  // namespace dhs
