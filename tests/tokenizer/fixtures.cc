#include "fixtures.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tokenizer/byte_alphabet.h"

namespace dhs::test {
namespace {

using nlohmann::json;

std::string read_file(const std::string& path) {
  std::ifstream file(std::string(DHS_SOURCE_DIR) + "/" + path, std::ios::binary);
  DHS_CHECK(file.good(), "cannot read ", path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::vector<json> read_lines(const std::string& name) {
  std::istringstream lines(read_file("tests/golden/tokenizer/" + name));
  std::vector<json> values;
  for (std::string line; std::getline(lines, line);) values.push_back(json::parse(line));
  DHS_CHECK(!values.empty(), name, " is empty");
  return values;
}

}  // namespace

std::string tokenizer_json(const std::string& name) {
  const bool is_demo = name == "demo";
  return read_file(is_demo ? "tests/models/demo/tokenizer.json"
                           : "tests/golden/tokenizer/" + name + "/tokenizer.json");
}

std::vector<std::string> golden_texts() {
  std::vector<std::string> texts;
  for (const json& line : read_lines("texts.jsonl")) texts.push_back(line);
  return texts;
}

std::vector<EncodeCase> encode_cases(const std::string& name) {
  const std::vector<std::string> texts = golden_texts();
  const std::vector<json> lines = read_lines(name + ".encode.jsonl");
  DHS_CHECK(texts.size() == lines.size(), name, " has another number of texts");
  std::vector<EncodeCase> cases;
  for (size_t i = 0; i < texts.size(); ++i) {
    const json& line = lines[i];
    if (line.is_array()) {
      cases.push_back({texts[i], line, texts[i]});
    } else {
      cases.push_back({texts[i], line["ids"], line["text"]});
    }
  }
  return cases;
}

std::vector<EncodeCase> plain_cases(const std::string& name) {
  const std::vector<std::string> texts = golden_texts();
  std::vector<EncodeCase> cases;
  for (const json& line : read_lines(name + ".plain.jsonl")) {
    cases.push_back({texts.at(line["text_idx"]), line["ids"], ""});
  }
  return cases;
}

std::vector<DecodeCase> decode_cases(const std::string& name) {
  std::vector<DecodeCase> cases;
  for (const json& line : read_lines(name + ".decode.jsonl")) {
    cases.push_back({line["ids"], line["all"], line["skip"]});
  }
  return cases;
}

std::vector<VariantCase> variant_cases() {
  std::vector<VariantCase> cases;
  for (const json& line : read_lines("variants.jsonl")) {
    cases.push_back({line["patch"].dump(), line["texts"], line["ids"], line["with_special"]});
  }
  return cases;
}

std::string with_patch(const std::string& document, const std::string& patch) {
  json result = json::parse(document);
  const json changes = json::parse(patch);
  for (const char* component :
       {"pre_tokenizer", "normalizer", "post_processor", "decoder", "added_tokens"}) {
    if (changes.contains(component)) result.erase(component);
  }
  result.merge_patch(changes);
  return result.dump();
}

std::string tiny_json() {
  json document = json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "added_tokens": [],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                      "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "vocab": {}, "merges": []}
  })");
  json& vocab = document["model"]["vocab"];
  for (int byte = 0; byte < 256; ++byte) {
    vocab[std::string(spell_byte(static_cast<unsigned char>(byte)))] = byte;
  }
  vocab["\u0120a"] = 256;
  vocab["ab"] = 257;
  vocab["abc"] = 258;
  document["model"]["merges"] = json::array({"\u0120 a", "a b", "ab c"});
  for (const auto& [content, id] : {std::pair("<s>", 259), std::pair("</s>", 260)}) {
    document["added_tokens"].push_back({{"id", id},
                                        {"content", content},
                                        {"single_word", false},
                                        {"lstrip", false},
                                        {"rstrip", false},
                                        {"normalized", false},
                                        {"special", true}});
  }
  return document.dump();
}

Tokenizer must_load(const std::string& document, const std::string& patch) {
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::from_json(with_patch(document, patch));
  DHS_CHECK(tokenizer.ok(), tokenizer.status().ToString(), " with ", patch);
  return *std::move(tokenizer);
}

}  // namespace dhs::test
