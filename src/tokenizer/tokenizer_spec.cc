#include "tokenizer/tokenizer_spec.h"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>

#include "tokenizer/utf8.h"

namespace dhs {
namespace {

template <class... Parts>
absl::Status error_at(size_t idx, const char* key, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("added_tokens[", idx, "].", key, ": ", parts...));
}

// A token of the vocabulary keeps its id, any other gets the next one that is free: so does the
// reference, whatever the file says. A file that says otherwise means other ids elsewhere.
class TokenIds {
 public:
  explicit TokenIds(const std::vector<VocabToken>& vocab)
      : next_id_(static_cast<TokenId>(vocab.size())) {
    for (const VocabToken& token : vocab) {
      id_of_.emplace(token.content, token.id);
      content_of_.emplace(token.id, token.content);
    }
  }

  bool contains(TokenId id) const { return content_of_.contains(id); }

  absl::Status add(size_t idx, const AddedToken& token) {
    if (!added_.insert(token.content).second) {
      return error_at(idx, "content", "'", token.content, "' is listed twice");
    }
    const auto known = id_of_.find(token.content);
    if (known == id_of_.end()) {
      DHS_RETURN_IF_ERROR(add_new(idx, token));
    } else if (known->second != token.id) {
      return error_at(idx, "id", token.id, " is given to '", token.content, "', which has id ",
                      known->second, " in model.vocab");
    }
    next_id_ = std::max(next_id_, token.id + 1);
    return absl::OkStatus();
  }

 private:
  absl::Status add_new(size_t idx, const AddedToken& token) {
    const auto user = content_of_.find(token.id);
    if (user != content_of_.end()) {
      return error_at(idx, "id", token.id, " already names '", user->second, "'");
    }
    if (token.id != next_id_) {
      return error_at(idx, "id", token.id, " is not the next free id, which is ", next_id_);
    }
    content_of_.emplace(token.id, token.content);
    return absl::OkStatus();
  }

  absl::flat_hash_map<std::string, TokenId> id_of_;
  absl::flat_hash_map<TokenId, std::string> content_of_;
  absl::flat_hash_set<std::string> added_;
  TokenId next_id_;
};

// Else a match could begin inside what another one has stripped.
absl::Status check_stripping(const std::vector<AddedToken>& tokens) {
  const bool any_strips = std::any_of(tokens.begin(), tokens.end(),
                                      [](const AddedToken& token) { return token.rstrip; });
  for (size_t i = 0; any_strips && i < tokens.size(); ++i) {
    if (is_white_space(decode_utf8(tokens[i].content, 0).code_point)) {
      return error_at(i, "content", "begins with white space while another token has rstrip");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status check_tokens(const TokenizerSpec& spec) {
  TokenIds ids(spec.bpe.vocab);
  for (size_t i = 0; i < spec.added_tokens.size(); ++i) {
    DHS_RETURN_IF_ERROR(ids.add(i, spec.added_tokens[i]));
  }
  DHS_RETURN_IF_ERROR(check_stripping(spec.added_tokens));
  for (const auto* tokens : {&spec.prefix_tokens, &spec.suffix_tokens}) {
    for (const TokenId id : *tokens) {
      if (ids.contains(id)) continue;
      return absl::InvalidArgumentError(absl::StrCat("post_processor: id ", id, " names no token"));
    }
  }
  return absl::OkStatus();
}

}  // namespace dhs
