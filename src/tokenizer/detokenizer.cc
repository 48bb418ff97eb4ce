#include "dhisparse/tokenizer.h"
#include "tokenizer/utf8.h"

namespace dhs {

std::string StreamingDetokenizer::push(TokenId token) {
  return push(std::span<const TokenId>(&token, 1));
}

std::string StreamingDetokenizer::push(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (skip_special_tokens_ && tokenizer_->is_special(token)) continue;
    pending_ += tokenizer_->token_bytes(token);
  }
  std::string text;
  const size_t consumed = append_lossy_utf8(pending_, /*is_last=*/false, text);
  pending_.erase(0, consumed);
  return text;
}

std::string StreamingDetokenizer::finish() {
  std::string text;
  append_lossy_utf8(pending_, /*is_last=*/true, text);
  pending_.clear();
  return text;
}

}  // namespace dhs
