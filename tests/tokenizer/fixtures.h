// Golden files of tests/golden/tokenizer (generate.py there says what each holds), and a tiny
// tokenizer.json to break on purpose.
#pragma once

#include <string>
#include <vector>

#include "dhisparse/tokenizer.h"

namespace dhs::test {

struct EncodeCase {
  std::string text;
  std::vector<TokenId> tokens;
  std::string decoded;
};
struct DecodeCase {
  std::vector<TokenId> tokens;
  std::string all;
  std::string without_special;
};
struct VariantCase {
  std::string patch;
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> tokens;
  std::vector<TokenId> with_special;  // of the second text
};

// `name`: demo, mixed_case or staged.
std::string tokenizer_json(const std::string& name);
std::vector<std::string> golden_texts();
std::vector<EncodeCase> encode_cases(const std::string& name);
std::vector<EncodeCase> plain_cases(const std::string& name);  // without `decoded`
std::vector<DecodeCase> decode_cases(const std::string& name);
std::vector<VariantCase> variant_cases();

// A JSON merge patch, except that pre_tokenizer and its like are replaced as a whole.
std::string with_patch(const std::string& document, const std::string& patch);

// Byte b has id b; then " a" = 256, "ab" = 257, "abc" = 258; <s> = 259 and </s> = 260 are special.
// No normalizer; GPT-2's word pattern.
std::string tiny_json();

// tiny_json or another document with a patch, which must load.
Tokenizer must_load(const std::string& document, const std::string& patch = "{}");

}  // namespace dhs::test
