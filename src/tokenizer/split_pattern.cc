#include "tokenizer/split_pattern.h"

#include <absl/strings/ascii.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "dhisparse/base.h"

namespace dhs {
namespace {

struct Property {
  std::string_view name;    // lower case, without spaces, hyphens, underscores
  std::string_view native;  // PCRE2's
  bool is_cased = false;    // means something else where case is ignored
};

// For scripts PCRE2 would by default take the Script_Extensions, Oniguruma takes the Script.
constexpr auto kProperties = std::to_array<Property>({
    {"l", "L"},
    {"letter", "L"},
    {"lu", "Lu", true},
    {"uppercaseletter", "Lu", true},
    {"ll", "Ll", true},
    {"lowercaseletter", "Ll", true},
    {"lt", "Lt", true},
    {"titlecaseletter", "Lt", true},
    {"lm", "Lm"},
    {"modifierletter", "Lm"},
    {"lo", "Lo"},
    {"otherletter", "Lo"},
    {"m", "M"},
    {"mark", "M"},
    {"mn", "Mn"},
    {"nonspacingmark", "Mn"},
    {"mc", "Mc"},
    {"spacingmark", "Mc"},
    {"me", "Me"},
    {"enclosingmark", "Me"},
    {"n", "N"},
    {"number", "N"},
    {"nd", "Nd"},
    {"decimalnumber", "Nd"},
    {"nl", "Nl"},
    {"letternumber", "Nl"},
    {"no", "No"},
    {"othernumber", "No"},
    {"p", "P"},
    {"punctuation", "P"},
    {"pc", "Pc"},
    {"connectorpunctuation", "Pc"},
    {"pd", "Pd"},
    {"dashpunctuation", "Pd"},
    {"ps", "Ps"},
    {"openpunctuation", "Ps"},
    {"pe", "Pe"},
    {"closepunctuation", "Pe"},
    {"pi", "Pi"},
    {"initialpunctuation", "Pi"},
    {"pf", "Pf"},
    {"finalpunctuation", "Pf"},
    {"po", "Po"},
    {"otherpunctuation", "Po"},
    {"s", "S"},
    {"symbol", "S"},
    {"sm", "Sm"},
    {"mathsymbol", "Sm"},
    {"sc", "Sc"},
    {"currencysymbol", "Sc"},
    {"sk", "Sk"},
    {"modifiersymbol", "Sk"},
    {"so", "So"},
    {"othersymbol", "So"},
    {"z", "Z"},
    {"separator", "Z"},
    {"zs", "Zs"},
    {"spaceseparator", "Zs"},
    {"zl", "Zl"},
    {"lineseparator", "Zl"},
    {"zp", "Zp"},
    {"paragraphseparator", "Zp"},
    {"c", "C"},
    {"cc", "Cc"},
    {"control", "Cc"},
    {"cf", "Cf"},
    {"format", "Cf"},
    {"co", "Co"},
    {"cn", "Cn"},
    {"arabic", "sc:Arabic"},
    {"armenian", "sc:Armenian"},
    {"bengali", "sc:Bengali"},
    {"cyrillic", "sc:Cyrillic"},
    {"devanagari", "sc:Devanagari"},
    {"ethiopic", "sc:Ethiopic"},
    {"georgian", "sc:Georgian"},
    {"greek", "sc:Greek"},
    {"han", "sc:Han"},
    {"hangul", "sc:Hangul"},
    {"hebrew", "sc:Hebrew"},
    {"hiragana", "sc:Hiragana"},
    {"katakana", "sc:Katakana"},
    {"khmer", "sc:Khmer"},
    {"lao", "sc:Lao"},
    {"latin", "sc:Latin"},
    {"tamil", "sc:Tamil"},
    {"telugu", "sc:Telugu"},
    {"thai", "sc:Thai"},
});

// Two letters that Oniguruma, ignoring case, also matches against one ligature or sharp s.
constexpr std::array<std::string_view, 5> kFoldingPairs = {"ff", "fi", "fl", "ss", "st"};

const Property* find_property(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != ' ' && c != '-' && c != '_') plain.push_back(absl::ascii_tolower(c));
  }
  const auto it = std::find_if(kProperties.begin(), kProperties.end(),
                               [&](const Property& property) { return property.name == plain; });
  return it == kProperties.end() ? nullptr : &*it;
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  absl::StatusOr<std::string> translate() {
    while (at_ < in_.size()) DHS_RETURN_IF_ERROR(translate_one());
    if (ignore_case_.size() != 1) return refuse(at_, "a group is not closed");
    return out_;
  }

 private:
  absl::Status refuse(size_t at, std::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat("regex, byte ", at, ": ", to_absl(why), "; no supported split pattern"));
  }

  bool looking_at(std::string_view s) const { return in_.substr(at_).starts_with(s); }

  void copy(size_t num_bytes) {
    out_ += in_.substr(at_, num_bytes);
    at_ += num_bytes;
  }

  absl::Status translate_one() {
    const char c = in_[at_];
    if (c != '\\' && is_ascii(c) && !absl::ascii_isalpha(c)) last_letter_ = '\0';
    switch (c) {
      case '\\':
        last_letter_ = '\0';
        return translate_escape(/*in_class=*/false);
      case '[':
        return translate_class();
      case '(':
        return open_group();
      case ')':
        return close_group();
      case '{':
        return translate_repeat();
      case '^':
      case '$':
        return refuse(at_, "a line anchor (use \\A or \\z)");
      default:
        return translate_literal();
    }
  }

  absl::Status translate_literal() {
    const char c = in_[at_];
    if (ignore_case_.back()) {
      if (!is_ascii(c)) return refuse(at_, "a non-ASCII literal where case is ignored");
      const char letter = absl::ascii_tolower(c);
      const std::array<char, 2> pair = {last_letter_, letter};
      const std::string_view both(pair.data(), pair.size());
      if (std::find(kFoldingPairs.begin(), kFoldingPairs.end(), both) != kFoldingPairs.end()) {
        return refuse(at_, "letters that have a ligature, where case is ignored");
      }
      last_letter_ = absl::ascii_isalpha(c) ? letter : '\0';
    }
    copy(1);
    return absl::OkStatus();
  }

  absl::Status open_group() {
    if (looking_at("(*")) return refuse(at_, "a verb");
    if (!looking_at("(?")) {
      ignore_case_.push_back(ignore_case_.back());
      copy(1);
      return absl::OkStatus();
    }
    if (at_ == 0 && looking_at("(?i)")) {
      ignore_case_.back() = true;
      copy(4);
      return absl::OkStatus();
    }
    for (const std::string_view open : {"(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!"}) {
      if (!looking_at(open)) continue;
      ignore_case_.push_back(ignore_case_.back());
      copy(open.size());
      return absl::OkStatus();
    }
    const bool ignore = looking_at("(?i:");
    if (!ignore && !looking_at("(?-i:")) return refuse(at_, "this kind of (?...) group");
    ignore_case_.push_back(ignore);
    copy(ignore ? 4 : 5);
    return absl::OkStatus();
  }

  absl::Status close_group() {
    if (ignore_case_.size() == 1) return refuse(at_, "an unmatched )");
    ignore_case_.pop_back();
    copy(1);
    return absl::OkStatus();
  }

  // {n}, {n,}, {n,m}. A ? after {n}, or a + after any, differs between the dialects.
  absl::Status translate_repeat() {
    size_t end = at_ + 1;
    const auto skip_digits = [&] {
      const size_t begin = end;
      while (end < in_.size() && absl::ascii_isdigit(in_[end])) ++end;
      return end > begin;
    };
    if (!skip_digits()) return refuse(at_, "a { that is no repeat count (escape it)");
    const bool is_range = end < in_.size() && in_[end] == ',';
    if (is_range) {
      ++end;
      skip_digits();
    }
    if (end >= in_.size() || in_[end] != '}') return refuse(at_, "an unfinished repeat count");
    ++end;
    if (in_.substr(end, 1) == "+" || (in_.substr(end, 1) == "?" && !is_range)) {
      return refuse(end, "? or + after a repeat count");
    }
    copy(end - at_);
    return absl::OkStatus();
  }

  absl::Status translate_class() {
    const size_t begin = at_;
    last_letter_ = '\0';
    copy(looking_at("[^") ? 2 : 1);
    if (looking_at("]")) return refuse(at_, "a class that begins with ]");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '[') return refuse(at_, "a nested class");
      if (looking_at("&&")) return refuse(at_, "an intersection of classes");
      if (in_[at_] == '\\') {
        DHS_RETURN_IF_ERROR(translate_escape(/*in_class=*/true));
        continue;
      }
      if (ignore_case_.back() && !is_ascii(in_[at_])) {
        return refuse(at_, "a non-ASCII literal where case is ignored");
      }
      copy(1);
    }
    if (at_ == in_.size()) return refuse(begin, "an unfinished class");
    copy(1);
    return absl::OkStatus();
  }

  absl::Status translate_escape(bool in_class) {
    const size_t begin = at_;
    if (at_ + 1 == in_.size()) return refuse(begin, "a \\ at the end");
    const char c = in_[at_ + 1];
    const auto replace = [&](std::string_view native) {
      out_ += native;
      at_ += 2;
      return absl::OkStatus();
    };
    // PCRE2's own \s has U+180E, which is no white space since Unicode 6.3.
    if (c == 's') return replace("\\p{White_Space}");
    if (c == 'S') return replace("\\P{White_Space}");
    if (c == 'd') return replace("\\p{Nd}");
    if (c == 'D') return replace("\\P{Nd}");
    if (c == 'p' || c == 'P') return translate_property();
    if (c == 'u' || c == 'x') return translate_code_point();
    const bool same = std::string_view("nrtf").find(c) != std::string_view::npos ||
                      (!in_class && (c == 'A' || c == 'z')) || absl::ascii_ispunct(c);
    if (!same) return refuse(begin, "this escape");
    copy(2);
    return absl::OkStatus();
  }

  absl::Status translate_property() {
    const size_t begin = at_;
    const size_t end = in_.find('}', at_);
    if (end == std::string_view::npos || in_.substr(at_ + 2, 1) != "{") {
      return refuse(begin, "a property without {...}");
    }
    bool negated = in_[at_ + 1] == 'P';
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const Property* property = find_property(name);
    if (property == nullptr) return refuse(begin, "this character property");
    if (property->is_cased && ignore_case_.back()) {
      return refuse(begin, "a property of case where case is ignored");
    }
    out_ += negated ? "\\P{" : "\\p{";
    out_ += property->native;
    out_ += '}';
    at_ = end + 1;
    return absl::OkStatus();
  }

  // \uHHHH or \x{H...}. A plain \xHH is one byte of UTF-8 in Oniguruma.
  absl::Status translate_code_point() {
    const size_t begin = at_;
    std::string_view digits;
    if (in_[at_ + 1] == 'u') {
      digits = in_.substr(at_ + 2, 4);
      at_ += 6;
    } else {
      const size_t end = in_.find('}', at_);
      if (end == std::string_view::npos || in_.substr(at_ + 2, 1) != "{") {
        return refuse(begin, "\\x without {...}");
      }
      digits = in_.substr(at_ + 3, end - at_ - 3);
      at_ = end + 1;
    }
    const bool is_hex = std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit);
    if (!is_hex || digits.empty() || at_ > in_.size()) return refuse(begin, "this code point");
    if (ignore_case_.back()) return refuse(begin, "a code point where case is ignored");
    out_ += absl::StrCat("\\x{", to_absl(digits), "}");
    return absl::OkStatus();
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  std::vector<bool> ignore_case_ = {false};  // of the open groups, outermost first
  char last_letter_ = '\0';                  // lower case; '\0' if no letter came directly before
};

}  // namespace

absl::StatusOr<std::string> translate_split_pattern(std::string_view pattern) {
  return Translator(pattern).translate();
}

}  // namespace dhs
