#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <random>

#include "tokenizer/byte_alphabet.h"

namespace dhs {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

// Byte b has id b; every merge whose result is new adds the next id.
BpeSpec make_spec(const Merges& merges) {
  BpeSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.vocab.push_back({std::string(spell_byte(static_cast<unsigned char>(byte))), byte});
  }
  for (const auto& [left, right] : merges) {
    const auto same = [&left = left, &right = right](const VocabToken& token) {
      return token.content == left + right;
    };
    if (std::none_of(spec.vocab.begin(), spec.vocab.end(), same)) {
      spec.vocab.push_back({left + right, static_cast<TokenId>(spec.vocab.size())});
    }
  }
  spec.merges = merges;
  return spec;
}

std::vector<std::string> encode(const BpeSpec& spec, std::string_view piece) {
  const auto bpe = Bpe::create(spec);
  DHS_CHECK(bpe.ok(), bpe.status().ToString());
  Bpe::Scratch scratch;
  std::vector<TokenId> tokens;
  bpe->encode(piece, scratch, tokens);
  std::vector<std::string> spelled;
  spelled.reserve(tokens.size());
  for (const TokenId token : tokens) spelled.push_back(spec.vocab[token].content);
  return spelled;
}

// The definition, word for word.
std::vector<std::string> encode_naively(const BpeSpec& spec, std::string_view piece) {
  std::vector<std::string> symbols;
  for (const char c : piece) symbols.emplace_back(1, c);
  while (true) {
    size_t best_rank = spec.merges.size();
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it =
          std::find(spec.merges.begin(), spec.merges.end(), std::pair(symbols[i], symbols[i + 1]));
      const size_t rank = it - spec.merges.begin();
      if (rank >= best_rank) continue;
      best_rank = rank;
      best_at = i;
    }
    if (best_rank == spec.merges.size()) return symbols;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + best_at + 1);
  }
}

using Strings = std::vector<std::string>;

TEST(Bpe, merges_lowest_rank_first) {
  EXPECT_EQ(encode(make_spec({{"b", "c"}, {"a", "b"}}), "abc"), (Strings{"a", "bc"}));
  EXPECT_EQ(encode(make_spec({{"a", "b"}, {"b", "c"}}), "abc"), (Strings{"ab", "c"}));
}

TEST(Bpe, merges_leftmost_first_within_a_rank) {
  EXPECT_EQ(encode(make_spec({{"a", "a"}}), "aaaaa"), (Strings{"aa", "aa", "a"}));
}

TEST(Bpe, counts_the_later_place_of_a_merge_listed_twice) {
  EXPECT_EQ(encode(make_spec({{"a", "b"}, {"b", "c"}, {"a", "b"}}), "abc"), (Strings{"a", "bc"}));
}

TEST(Bpe, equals_the_definition_for_random_merges_and_pieces_of_any_length) {
  std::mt19937 rng(1);
  for (int round = 0; round < 40; ++round) {
    Merges merges;
    Strings parts = {"a", "b", "c"};
    for (int i = 0; i < 30; ++i) {
      const std::string left = parts[rng() % parts.size()];
      const std::string right = parts[rng() % parts.size()];
      const std::pair merge(left, right);
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      merges.push_back(merge);
      parts.push_back(left + right);
    }
    std::shuffle(merges.begin(), merges.end(), rng);
    const BpeSpec spec = make_spec(merges);
    for (const size_t length : {1, 2, 5, 20, 47, 48, 49, 50, 90, 200}) {
      std::string piece;
      for (size_t i = 0; i < length; ++i) piece.push_back("abc"[rng() % 3]);
      ASSERT_EQ(encode(spec, piece), encode_naively(spec, piece)) << piece;
    }
  }
}

TEST(Bpe, takes_a_whole_piece_as_it_is_only_with_ignore_merges) {
  BpeSpec spec = make_spec({{"b", "c"}, {"a", "b"}, {"ab", "c"}});
  EXPECT_EQ(encode(spec, "abc"), (Strings{"a", "bc"}));
  spec.ignore_merges = true;
  EXPECT_EQ(encode(spec, "abc"), (Strings{"abc"}));
}

}  // namespace
}  // namespace dhs
