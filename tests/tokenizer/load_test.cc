#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "fixtures.h"
#include "tokenizer/tokenizer_spec.h"

namespace dhs::test {
namespace {

using testing::HasSubstr;

struct Refusal {
  const char* patch;
  const char* message;
};

void expect_refused(const std::vector<Refusal>& refusals) {
  for (const Refusal& r : refusals) {
    const auto tokenizer = Tokenizer::from_json(with_patch(tiny_json(), r.patch));
    EXPECT_TRUE(absl::IsInvalidArgument(tokenizer.status())) << tokenizer.status() << r.patch;
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(r.message)) << r.patch;
  }
}

TEST(Load, refuses_an_unsupported_model) {
  expect_refused({
      {R"({"model": {"type": "Unigram"}})", "model.type: 'Unigram' is not supported"},
      {R"({"model": {"dropout": 0.1}})", "model.dropout: must be null"},
      {R"({"model": {"unk_token": "<unk>"}})", "model.unk_token: must be null"},
      {R"({"model": {"continuing_subword_prefix": "##"}})", "model.continuing_subword_prefix"},
      {R"({"model": {"end_of_word_suffix": "</w>"}})", "model.end_of_word_suffix"},
      {R"({"model": {"byte_fallback": true}})", "model.byte_fallback: must be false"},
      {R"({"model": {"ignore_merges": 1}})", "model.ignore_merges: must be true or false"},
      {R"({"model": {"cache": 1}})", "model: unknown key 'cache'"},
      {R"({"model": 3})", "model: must be an object"},
  });
}

TEST(Load, refuses_a_broken_vocabulary) {
  expect_refused({
      {R"({"model": {"vocab": []}})", "model.vocab: must be an object"},
      {R"({"model": {"vocab": {"z": null}}})", "model.vocab: no token for byte 122"},
      {R"({"model": {"vocab": {"zz": 5}}})", "have the same id 5"},
      {R"({"model": {"vocab": {"zz": -1}}})", "model.vocab['zz']: must be an id in [0, 1048576)"},
      {R"({"model": {"vocab": {"zz": 1048576}}})", "is 1048576"},
      {R"({"model": {"vocab": {"zz": 99999999999999999999}}})", "must be an id"},
      {R"({"model": {"vocab": {"zz": 261.5}}})", "must be an id"},
      {R"({"model": {"vocab": {"zz": "7"}}})", "must be an id"},
      {R"({"model": {"merges": {}}})", "model.merges: must be an array"},
      {R"({"model": {"merges": ["ab"]}})", "model.merges[0]: 'ab' must have exactly one space"},
      {R"({"model": {"merges": ["a b c"]}})", "must have exactly one space"},
      {R"({"model": {"merges": [["a", "b"], ["a"]]}})", "model.merges[1]: must be a string or"},
      {R"({"model": {"merges": [["a", "b"], ["a", "zz"]]}})",
       "model.merges[1]: 'zz' is not in model.vocab"},
      {R"({"model": {"merges": [["b", "a"]]}})", "'ba' is not in model.vocab"},
  });
}

TEST(Load, refuses_broken_added_tokens) {
  const auto token = [](const std::string& id, const std::string& content,
                        const std::string& flags = "false") {
    return R"({"id": )" + id + R"(, "content": )" + content + R"(, "special": false,
      "normalized": false, "single_word": false, "lstrip": false, "rstrip": )" +
           flags + "}";
  };
  const auto expect = [](const std::string& tokens, const char* message) {
    expect_refused({{("{\"added_tokens\": [" + tokens + "]}").c_str(), message}});
  };
  expect(token("259", "\"\""), "added_tokens[0].content: has 0 bytes");
  expect(token("259", "\"" + std::string(257, 'x') + "\""), "has 257 bytes");
  expect(token("259", "7"), "added_tokens[0].content: must be a string");
  expect(token("null", "\"x\""), "added_tokens[0].id: must be an id");
  expect(token("260", "\"xy\""), "260 is not the next free id, which is 259");
  expect(token("97", "\"xy\""), "added_tokens[0].id: 97 already names 'a'");
  expect(token("259", "\"ab\""), "259 is given to 'ab', which has id 257");
  expect(token("259", "\"xy\"") + "," + token("260", "\"xy\""),
         "added_tokens[1].content: 'xy' is listed twice");
  expect(token("259", "\"xy\"", "1"), "added_tokens[0].rstrip: must be true or false");
  expect(token("259", "\"xy\"", "true") + "," + token("260", "\" \""),
         "added_tokens[1].content: begins with white space");
  expect("4", "added_tokens[0]: must be an object");
  expect(R"({"id": 259, "content": "xy"})", "added_tokens[0].special");
}

TEST(Load, refuses_unsupported_components) {
  expect_refused({
      {R"({"normalizer": {"type": "NFKC"}})", "normalizer.type: 'NFKC' is not supported"},
      {R"({"normalizer": {"type": "Sequence",
                          "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}})",
       "normalizer.normalizers[1].type: 'Strip'"},
      {R"({"normalizer": {"type": "NFC", "x": 1}})", "normalizer: unknown key 'x'"},
      {R"({"pre_tokenizer": null})", "pre_tokenizer: must be ByteLevel or"},
      {R"({"pre_tokenizer": {"type": "Whitespace"}})", "pre_tokenizer: must be ByteLevel or"},
      {R"({"decoder": null})", "decoder: must be ByteLevel or"},
      {R"({"decoder": {"type": "Metaspace"}})", "decoder: must be ByteLevel or"},
      {R"({"decoder": {"type": "Sequence",
                       "decoders": [{"type": "ByteLevel"}, {"type": "Strip"}]}})",
       "decoder.decoders[1].type: 'Strip'"},
      {R"({"post_processor": {"type": "BertProcessing"}})", "post_processor.type"},
      {R"({"truncation": {"max_length": 5}})", "truncation: must be null"},
      {R"({"padding": {}})", "padding: must be null"},
      {R"({"version": "2.0"})", "version: must be"},
      {R"({"extra": null, "other": 1})", "unknown key 'other'"},
  });
}

// `steps` stand before the ByteLevel step.
std::string pre_tokenizer_patch(const std::string& steps) {
  return R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [)" + steps +
         R"(, {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}]}})";
}

TEST(Load, refuses_an_unsupported_split) {
  const auto expect = [](const std::string& steps, const char* message) {
    expect_refused({{pre_tokenizer_patch(steps).c_str(), message}});
  };
  const auto split = [](const std::string& pattern, const std::string& behavior = "Isolated") {
    return R"({"type": "Split", "pattern": )" + pattern + R"(, "behavior": ")" + behavior +
           R"(", "invert": false})";
  };
  expect(R"({"type": "Punctuation"})", "pre_tokenizer.pretokenizers[0].type: 'Punctuation'");
  expect(R"({"type": "ByteLevel"})", "pretokenizers[0]: ByteLevel must be the last");
  expect(split(R"("x")"), "pretokenizers[0].pattern: must be an object");
  expect(split(R"({"Regex": "a", "String": "a"})"), "must have either Regex or String");
  expect(split(R"({"String": ""})"), "pattern.String: has 0 bytes");
  expect(split(R"({"Regex": "(a"})"), "pretokenizers[0].pattern.Regex: regex, byte 2");
  expect(split(R"({"Regex": "\\w+"})"), "pattern.Regex: regex, byte 0: this escape");
  expect(split(R"({"String": "a"})", "Merged"), "behavior: 'Merged' is not supported");
  expect(R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated"})", ".invert");
  expect(R"({"type": "Digits", "individual_digits": 1})", ".individual_digits");
  std::string many = R"({"type": "Digits", "individual_digits": true})";
  for (int i = 0; i < 4; ++i) many += "," + many;
  expect(many, "more than 16 components");
}

TEST(Load, refuses_a_broken_template) {
  const auto expect = [](const std::string& single, const char* message) {
    expect_refused({{(R"({"post_processor": {"type": "TemplateProcessing", "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [300], "tokens": ["<s>"]}},
        "single": )" + single +
                      "}}")
                         .c_str(),
                     message}});
  };
  const std::string text = R"({"Sequence": {"id": "A", "type_id": 0}})";
  expect("[]", "post_processor.single: has Sequence A 0 times");
  expect("[" + text + "," + text + "]", "has Sequence A 2 times");
  expect(R"([{"Sequence": {"id": "B"}}])", "single[0]: must be Sequence A");
  expect(R"([{"SpecialToken": {"id": "<x>"}}, )" + text + "]", "'<x>' is not in special_tokens");
  expect(R"([{"SpecialToken": {"id": "<s>"}}, )" + text + "]", "id 300 names no token");
  expect(R"([{"SpecialToken": 5}, )" + text + "]", "must be a string");
}

TEST(Load, refuses_a_bos_token_that_does_not_exist) {
  const auto tokenizer =
      Tokenizer::from_json(tiny_json(), R"({"add_bos_token": true, "bos_token": "<none>"})");
  EXPECT_TRUE(absl::IsInvalidArgument(tokenizer.status()));
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("bos_token ('<none>')"));
}

TEST(Load, refuses_what_is_not_json) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[1,2"), std::string("\"\xFF\""),
        std::string(1'000'000, '['), std::string("{\"a\":") + std::string(100'000, '{')}) {
    const auto tokenizer = Tokenizer::from_json(text);
    EXPECT_TRUE(absl::IsInvalidArgument(tokenizer.status())) << tokenizer.status();
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("tokenizer.json: not JSON"));
  }
  for (const char* text : {"[]", "3", "null", "\"x\""}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Tokenizer::from_json(text).status())) << text;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Tokenizer::from_json(tiny_json(), "{").status()));
}

TEST(Load, refuses_deep_sequences) {
  std::string nested = R"({"type": "NFC"})";
  for (int i = 0; i < 50; ++i) nested = R"({"type": "Sequence", "normalizers": [)" + nested + "]}";
  expect_refused({{("{\"normalizer\": " + nested + "}").c_str(), "nested more than 8 deep"}});
}

TEST(Load, survives_any_single_change_of_a_file) {
  const std::string document = tokenizer_json("mixed_case");
  std::mt19937 rng(9);
  size_t num_loaded = 0;
  for (int round = 0; round < 400; ++round) {
    std::string broken = document;
    // Most of the file is vocabulary; the last bytes hold fewer of its kinds than the first ones.
    const size_t at = rng() % (round % 2 == 0 ? 5000 : broken.size());
    if (round % 3 == 0) {
      broken.erase(at, 1 + rng() % 30);
    } else {
      broken[at] = "{}[]\",:0aZ\xFF"[rng() % 11];
    }
    const auto tokenizer = Tokenizer::from_json(broken);
    if (!tokenizer.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(tokenizer.status())) << tokenizer.status();
      continue;
    }
    ++num_loaded;
    EXPECT_TRUE(tokenizer->encode("some text <|user|> \u4F60").ok());
  }
  EXPECT_GT(num_loaded, 0u) << "no change left the file valid: nothing was encoded";
}

TEST(Load, accepts_older_spellings_of_the_same_thing) {
  must_load(tiny_json(), R"({"model": {"type": null, "merges": ["#version: 0.2", "a b"]}})");
  must_load(tiny_json(), R"({"model": {"byte_fallback": null, "end_of_word_suffix": ""}})");
  // Bytes that UTF-8 never has need no token.
  must_load(tiny_json(), R"({"model": {"vocab": {"\u00FF": null, "\u00C0": null, "zz": 255,
                                                 "zzz": 192}}})");
}

TEST(Load, reads_a_directory) {
  const auto tokenizer = Tokenizer::load(std::string(DHS_SOURCE_DIR) + "/tests/models/demo");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->vocab_size(), 4096);
  const absl::Status missing =
      Tokenizer::load(std::string(DHS_SOURCE_DIR) + "/tests/no_such_model").status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr("tokenizer.json"));
}

TEST(Load, refuses_a_file_over_the_limit) {
  const auto dir = std::filesystem::path(testing::TempDir()) / "oversized_tokenizer";
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "tokenizer.json").put('{');
  std::filesystem::resize_file(dir / "tokenizer.json", kMaxTokenizerFileBytes + 1);
  const absl::Status status = Tokenizer::load(dir).status();
  std::filesystem::remove_all(dir);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the limit is 67108864"));
}

}  // namespace
}  // namespace dhs::test
