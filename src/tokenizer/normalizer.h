// Unicode normalization form C.
#pragma once

#include <string>
#include <string_view>

namespace dhs {

// Valid UTF-8 in, its NFC out. O(n log n) for any text, also for long runs of combining marks.
std::string normalize_nfc(std::string_view text);

// True only if `text` is in NFC for the simple reason that all of it is below U+0300.
bool is_plainly_nfc(std::string_view text);

}  // namespace dhs
