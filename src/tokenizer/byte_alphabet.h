// The byte-level alphabet: 256 printable characters, one per byte, in which tokenizer.json spells
// tokens. Printable Latin-1 bytes stand for themselves; the other 68, in order, are U+0100 onwards
// (so a space is U+0120).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dhs {

// The spelling of one byte.
std::string_view spell_byte(unsigned char byte);

std::string spell_bytes(std::string_view bytes);

// The bytes that valid UTF-8 `spelling` stands for; nullopt if a character is not of the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

}  // namespace dhs
