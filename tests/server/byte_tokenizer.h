// A tokenizer whose token i is the byte i, for i < 256, and whose token 256 is the special
// "<|end|>": tests can write tokens as text, whatever way characters are cut.
#pragma once

#include "dhisparse/tokenizer.h"

namespace dhs {

inline std::string utf8_of(int code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

// Byte-level BPE files spell bytes that do not print as characters from U+0100 on.
inline std::string byte_level_vocabulary() {
  std::string json;
  int next_substitute = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string spelling = utf8_of(prints ? byte : next_substitute++);
    if (spelling == "\"" || spelling == "\\") spelling = "\\" + spelling;
    absl::StrAppend(&json, byte == 0 ? "" : ",", "\"", spelling, "\":", byte);
  }
  return json;
}

inline Tokenizer byte_tokenizer() {
  const std::string json = absl::StrCat(
      R"({"version":"1.0","added_tokens":[{"id":256,"content":"<|end|>","single_word":false,)",
      R"("lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":null,)",
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)",
      R"("use_regex":false},"post_processor":null,"decoder":{"type":"ByteLevel",)",
      R"("add_prefix_space":true,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE",)",
      R"("dropout":null,"unk_token":null,"continuing_subword_prefix":null,)",
      R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,)",
      R"("ignore_merges":false,"vocab":{)", byte_level_vocabulary(), R"(},"merges":[]}})");
  auto tokenizer = Tokenizer::from_json(json);
  DHS_CHECK(tokenizer.ok(), tokenizer.status().ToString());
  return *std::move(tokenizer);
}

}  // namespace dhs
