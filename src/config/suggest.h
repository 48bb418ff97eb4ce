// How a message shows what was written, and what was probably meant.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dhs {

// `text` on one line: control characters and bytes outside UTF-8 escaped, the end of a long text
// replaced by "...".
std::string printable(std::string_view text);

// printable() in single quotes.
std::string quote(std::string_view text);

// The candidate closest to `word`: the smallest edit distance (swapped neighbours count once), at
// most a third of the word. A candidate that is `word` plus or minus whole leading or trailing
// _parts comes first ("max_message_bytes" -> "max_message"). Nothing when none is close.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace dhs
