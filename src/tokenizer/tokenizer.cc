#include "dhisparse/tokenizer.h"

#include <absl/container/flat_hash_map.h>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/tokenizer_spec.h"
#include "tokenizer/utf8.h"

namespace dhs {
namespace {

// Merged pieces remembered within one encode(): words repeat.
constexpr size_t kMaxCachedPieces = 32768;
constexpr size_t kMaxCachedPieceBytes = 32;

// The bytes of all tokens in one string; token t is [begin[t], begin[t + 1]).
struct TokenBytes {
  std::string bytes;
  std::vector<uint32_t> begin;
};

// What decoding makes of a token: the bytes its spelling stands for, or, if it is not spelled in
// the byte-level alphabet, the spelling itself.
std::string decoded_bytes(std::string_view content) {
  return bytes_of_spelling(content).value_or(std::string(content));
}

// A "normalized" token is looked for, and decoded, in its normalized form.
std::string searched_content(const AddedToken& token, const TokenizerSpec& spec) {
  const bool changes = token.normalized && spec.normalize_nfc;
  return changes ? normalize_nfc(token.content) : token.content;
}

TokenBytes make_token_bytes(const TokenizerSpec& spec, TokenId vocab_size) {
  std::vector<std::string> decoded(vocab_size);
  for (const VocabToken& token : spec.bpe.vocab) decoded[token.id] = decoded_bytes(token.content);
  for (const AddedToken& token : spec.added_tokens) {
    decoded[token.id] = decoded_bytes(searched_content(token, spec));
  }
  TokenBytes result;
  result.begin.push_back(0);
  for (const std::string& token : decoded) {
    result.bytes += token;
    result.begin.push_back(static_cast<uint32_t>(result.bytes.size()));
  }
  return result;
}

std::vector<AddedToken> select_added(const TokenizerSpec& spec, bool normalized) {
  std::vector<AddedToken> selected;
  // Special ones first: they win where two have the same normalized content.
  for (const bool special : {true, false}) {
    for (AddedToken token : spec.added_tokens) {
      if (token.normalized != normalized || token.special != special) continue;
      token.content = searched_content(token, spec);
      selected.push_back(std::move(token));
    }
  }
  return selected;
}

// Merges the pieces of one encode() into its output.
class MergeSink : public PieceSink {
 public:
  MergeSink(const Bpe& bpe, std::vector<TokenId>& tokens) : bpe_(bpe), tokens_(tokens) {}

  absl::Status on_piece(std::string_view piece) override {
    if (piece.size() > Tokenizer::kMaxPieceBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the text has ", piece.size(), " bytes without a place to split; the limit is ",
          Tokenizer::kMaxPieceBytes, "; break up its longest run of similar characters"));
    }
    if (piece.size() > kMaxCachedPieceBytes) {
      bpe_.encode(piece, scratch_, tokens_);
      return absl::OkStatus();
    }
    if (const auto it = merged_before_.find(to_absl(piece)); it != merged_before_.end()) {
      append_again(it->second);
      return absl::OkStatus();
    }
    const size_t begin = tokens_.size();
    bpe_.encode(piece, scratch_, tokens_);
    if (merged_before_.size() < kMaxCachedPieces) {
      merged_before_.emplace(piece, OutputRange{begin, tokens_.size()});
    }
    return absl::OkStatus();
  }

 private:
  struct OutputRange {
    size_t begin;
    size_t end;
  };

  void append_again(const OutputRange& range) {
    for (size_t i = range.begin; i < range.end; ++i) tokens_.push_back(TokenId{tokens_[i]});
  }

  const Bpe& bpe_;
  std::vector<TokenId>& tokens_;
  Bpe::Scratch scratch_;
  absl::flat_hash_map<std::string, OutputRange> merged_before_;
};

}  // namespace

struct Tokenizer::Impl {
  static absl::StatusOr<std::unique_ptr<const Impl>> create(const TokenizerSpec& spec);

  // One encode(): what is found in the text as given, then in the normalized text between, then
  // pieces of what is still left.
  absl::Status encode_text(std::string_view text, bool parse_special,
                           std::vector<TokenId>& tokens) const;
  absl::Status encode_between(std::string_view text, bool parse_special, RegexScratch& scratch,
                              MergeSink& sink, std::vector<TokenId>& tokens) const;

  Bpe bpe;
  AddedTokenFinder raw_added;
  AddedTokenFinder normalized_added;
  bool normalize_nfc;
  PreTokenizer pre_tokenizer;
  TokenBytes token_bytes;
  std::vector<bool> special;
  absl::flat_hash_map<std::string, TokenId> added_ids;
  std::vector<TokenId> prefix_tokens;
  std::vector<TokenId> suffix_tokens;
};

absl::StatusOr<std::unique_ptr<const Tokenizer::Impl>> Tokenizer::Impl::create(
    const TokenizerSpec& spec) {
  DHS_ASSIGN_OR_RETURN(Bpe bpe, Bpe::create(spec.bpe));
  DHS_RETURN_IF_ERROR(check_tokens(spec));
  TokenId vocab_size = 0;
  for (const VocabToken& token : spec.bpe.vocab) vocab_size = std::max(vocab_size, token.id + 1);
  for (const AddedToken& token : spec.added_tokens) {
    vocab_size = std::max(vocab_size, token.id + 1);
  }
  DHS_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::create(spec.pre_tokenizer));
  auto impl = std::make_unique<Impl>(Impl{
      .bpe = std::move(bpe),
      .raw_added = AddedTokenFinder(select_added(spec, /*normalized=*/false)),
      .normalized_added = AddedTokenFinder(select_added(spec, /*normalized=*/true)),
      .normalize_nfc = spec.normalize_nfc,
      .pre_tokenizer = std::move(pre_tokenizer),
      .token_bytes = make_token_bytes(spec, vocab_size),
      .special = std::vector<bool>(vocab_size, false),
      .added_ids = {},
      .prefix_tokens = spec.prefix_tokens,
      .suffix_tokens = spec.suffix_tokens,
  });
  for (const AddedToken& token : spec.added_tokens) {
    impl->added_ids.emplace(token.content, token.id);
    if (token.special) impl->special[token.id] = true;
  }
  return impl;
}

absl::Status Tokenizer::Impl::encode_text(std::string_view text, bool parse_special,
                                          std::vector<TokenId>& tokens) const {
  RegexScratch scratch;
  MergeSink sink(bpe, tokens);
  AddedTokenFinder::Scan scan(raw_added, text, parse_special);
  while (const auto segment = scan.next(scratch)) {
    if (segment->token) {
      tokens.push_back(*segment->token);
      continue;
    }
    DHS_RETURN_IF_ERROR(encode_between(segment->text, parse_special, scratch, sink, tokens));
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Impl::encode_between(std::string_view text, bool parse_special,
                                             RegexScratch& scratch, MergeSink& sink,
                                             std::vector<TokenId>& tokens) const {
  std::string normalized;
  if (normalize_nfc && !is_plainly_nfc(text)) {
    normalized = dhs::normalize_nfc(text);
    text = normalized;
  }
  AddedTokenFinder::Scan scan(normalized_added, text, parse_special);
  while (const auto segment = scan.next(scratch)) {
    if (segment->token) {
      tokens.push_back(*segment->token);
      continue;
    }
    DHS_RETURN_IF_ERROR(pre_tokenizer.split(segment->text, scratch, sink));
  }
  return absl::OkStatus();
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

absl::StatusOr<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json,
                                               std::string_view tokenizer_config_json) {
  DHS_ASSIGN_OR_RETURN(const TokenizerSpec spec,
                       parse_tokenizer_json(tokenizer_json, tokenizer_config_json));
  absl::StatusOr<std::unique_ptr<const Impl>> impl = Impl::create(spec);
  if (!impl.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", impl.status().message()));
  }
  return Tokenizer(*std::move(impl));
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (text.size() > options.max_text_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("text of ", text.size(), " bytes; the limit is ",
                                                   options.max_text_bytes,
                                                   "; send less, or token ids"));
  }
  if (const auto invalid = find_invalid_utf8(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("text is not UTF-8 at byte ", *invalid, "; send UTF-8, or token ids"));
  }
  std::vector<TokenId> tokens;
  if (options.add_special_tokens) tokens = impl_->prefix_tokens;
  DHS_RETURN_IF_ERROR(impl_->encode_text(text, options.parse_special, tokens));
  if (options.add_special_tokens) {
    tokens.insert(tokens.end(), impl_->suffix_tokens.begin(), impl_->suffix_tokens.end());
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool skip_special_tokens) const {
  std::string bytes;
  for (const TokenId token : tokens) {
    if (!skip_special_tokens || !is_special(token)) bytes += token_bytes(token);
  }
  std::string text;
  append_lossy_utf8(bytes, /*is_last=*/true, text);
  return text;
}

std::string_view Tokenizer::token_bytes(TokenId token) const {
  if (token < 0 || token >= vocab_size()) return {};
  const TokenBytes& all = impl_->token_bytes;
  const uint32_t begin = all.begin[token];
  return std::string_view(all.bytes).substr(begin, all.begin[token + 1] - begin);
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->special.size()); }

bool Tokenizer::is_special(TokenId token) const {
  return token >= 0 && token < vocab_size() && impl_->special[token];
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view content) const {
  const auto it = impl_->added_ids.find(to_absl(content));
  if (it != impl_->added_ids.end()) return it->second;
  return impl_->bpe.token_to_id(content);
}

}  // namespace dhs
