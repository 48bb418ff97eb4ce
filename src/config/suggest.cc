#include "src/config/suggest.h"

#include <absl/strings/escaping.h>

#include <algorithm>
#include <vector>

#include "dhisparse/base.h"
#include "src/config/source_text.h"

namespace dhs {
namespace {

constexpr size_t kMaxShownBytes = 80;
constexpr size_t kMaxWordBytes = 64;  // longer than any key: not a typing error

bool is_utf8_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Levenshtein plus transposition of neighbours (optimal string alignment), three rolling rows.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, substitution});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) current[j] = std::min(current[j], before[j - 2] + 1);
    }
    before.swap(previous);
    previous.swap(current);
  }
  return previous[b.size()];
}

bool adds_parts(std::string_view longer, std::string_view shorter) {
  if (shorter.empty() || longer.size() <= shorter.size()) return false;
  if (longer.starts_with(shorter) && longer[shorter.size()] == '_') return true;
  return longer.ends_with(shorter) && longer[longer.size() - shorter.size() - 1] == '_';
}

}  // namespace

std::string printable(std::string_view text) {
  const bool cut = text.size() > kMaxShownBytes;
  if (cut) {
    size_t end = kMaxShownBytes;
    while (end > 0 && is_utf8_continuation(text[end])) --end;
    text = text.substr(0, end);
  }
  const bool utf8 = is_utf8(text);
  std::string shown;
  for (const char c : text) {
    const bool control = (c >= 0 && c < 0x20) || c == 0x7F || (c < 0 && !utf8);
    // Only these: quotes, backslashes and UTF-8 are shown as the user wrote them.
    shown += control ? absl::CHexEscape(absl::string_view(&c, 1)) : std::string(1, c);
  }
  return cut ? shown + "..." : shown;
}

std::string quote(std::string_view text) { return absl::StrCat("'", printable(text), "'"); }

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > kMaxWordBytes) return std::nullopt;
  for (const std::string& candidate : candidates) {
    if (adds_parts(word, candidate) || adds_parts(candidate, word)) return candidate;
  }
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace dhs
