#include "src/config/key_types.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

#include "src/config/quantity.h"
#include "src/config/source_text.h"
#include "src/config/suggest.h"

namespace dhs {
namespace {

constexpr size_t kMaxTextBytes = 4096;  // PATH_MAX

template <class... Parts>
absl::Status wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// What YAML 1.1 readers take for something else than text.
bool is_yaml_word(const std::string& text) {
  for (const char* word : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (absl::EqualsIgnoreCase(text, word)) return true;
  }
  return false;
}

bool is_host(std::string_view host) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  constexpr std::string_view kNameMarks = "0123456789.-_";
  if (host.starts_with('[')) {
    const bool closed = host.size() > 2 && host.ends_with(']');
    return closed &&
           host.substr(1, host.size() - 2).find_first_not_of("0123456789abcdefABCDEF:.") ==
               std::string_view::npos;
  }
  return !host.empty() && std::all_of(host.begin(), host.end(), [&](char c) {
    return kLetters.find(c) != std::string_view::npos ||
           kNameMarks.find(c) != std::string_view::npos;
  });
}

}  // namespace

std::string accepts_integer(Range range) {
  return absl::StrCat("a whole number from ", range.min, " to ", range.max);
}

std::string accepts_size(SizeRange range) {
  return absl::StrCat("a size from ", format_bytes(range.min), " to ", format_bytes(range.max),
                      range.step > 1 ? ", a multiple of " : "",
                      range.step > 1 ? format_bytes(range.step) : "");
}

std::string accepts_number(NumberRange range) {
  return absl::StrCat("a number from ", print_number(range.min), " to ", print_number(range.max));
}

std::string accepts_duration(absl::Duration min) {
  return absl::StrCat("a duration from ", format_duration(min), " to inf");
}

std::string accepts_one_of(const std::vector<std::string>& names) {
  return absl::StrCat("one of ", absl::StrJoin(names, ", "));
}

absl::StatusOr<int64_t> parse_integer(const KeyInput& input, Range range) {
  const std::string remedy = absl::StrCat("; write ", accepts_integer(range));
  if (input.quoted) return wrong(quote(input.text), " is quoted text", remedy, " without quotes");
  std::string_view digits = input.text;
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  // A leading zero means octal to some YAML readers.
  if (!is_digits(digits) || (digits.size() > 1 && digits[0] == '0')) {
    return wrong(quote(input.text), " is not a whole number", remedy);
  }
  int64_t value = 0;
  const char* end = input.text.data() + input.text.size();
  const bool fits = std::from_chars(input.text.data(), end, value).ec == std::errc();
  if (fits ? value < range.min : negative) {
    return wrong(printable(input.text), " is below the minimum of ", range.min, remedy);
  }
  if (!fits || value > range.max) {
    return wrong(printable(input.text), " is above the maximum of ", range.max, remedy);
  }
  return value;
}

absl::StatusOr<int64_t> parse_size(const KeyInput& input, SizeRange range) {
  DHS_ASSIGN_OR_RETURN(const int64_t bytes, parse_bytes(input.text));
  const std::string remedy = absl::StrCat("; write ", accepts_size(range));
  if (bytes < range.min) {
    return wrong(printable(input.text), " is below the minimum of ", format_bytes(range.min),
                 remedy);
  }
  if (bytes > range.max) {
    return wrong(printable(input.text), " is above the maximum of ", format_bytes(range.max),
                 remedy);
  }
  if (bytes % range.step != 0) {
    return wrong(printable(input.text), " (", bytes, " bytes) is not a multiple of ",
                 format_bytes(range.step), "; write for example ",
                 format_bytes(std::min(round_up(bytes, range.step), range.max)));
  }
  return bytes;
}

absl::StatusOr<double> parse_number(const KeyInput& input, NumberRange range) {
  const std::string remedy = absl::StrCat("; write ", accepts_number(range));
  if (input.quoted) return wrong(quote(input.text), " is quoted text", remedy, " without quotes");
  double value = 0;
  const char* end = input.text.data() + input.text.size();
  const auto [rest, error] = std::from_chars(input.text.data(), end, value);
  if (error != std::errc() || rest != end || !std::isfinite(value)) {
    return wrong(quote(input.text), " is not a number", remedy);
  }
  if (value < range.min) {
    return wrong(printable(input.text), " is below the minimum of ", print_number(range.min),
                 remedy);
  }
  if (value > range.max) {
    return wrong(printable(input.text), " is above the maximum of ", print_number(range.max),
                 remedy);
  }
  return value;
}

absl::StatusOr<absl::Duration> parse_duration_from(const KeyInput& input, absl::Duration min) {
  DHS_ASSIGN_OR_RETURN(const absl::Duration duration, parse_duration(input.text));
  if (duration >= min) return duration;
  return wrong(printable(input.text), " is below the minimum of ", format_duration(min), "; write ",
               accepts_duration(min));
}

absl::StatusOr<bool> parse_bool(const KeyInput& input) {
  if (!input.quoted && input.text == "true") return true;
  if (!input.quoted && input.text == "false") return false;
  return wrong(quote(input.text), input.quoted ? " is quoted text" : " is not a boolean",
               "; write true or false", input.quoted ? " without quotes" : "");
}

absl::StatusOr<size_t> parse_one_of(const KeyInput& input, const std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), input.text);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  const std::optional<std::string> meant = nearest(input.text, names);
  return wrong(quote(input.text), " is not ", accepts_one_of(names),
               meant ? absl::StrCat("; did you mean '", *meant, "'?") : "; write one of them");
}

absl::StatusOr<std::string> parse_text(const KeyInput& input) {
  if (input.text.size() > kMaxTextBytes) {
    return wrong("the text has ", input.text.size(), " bytes, the limit is ", kMaxTextBytes,
                 "; shorten it");
  }
  for (const char c : input.text) {
    if ((c >= 0 && c < 0x20) || c == 0x7F) {
      return wrong(quote(input.text), " has a control character; remove it");
    }
  }
  // The YAML library turns some escapes ("\\_") into bytes that are not UTF-8.
  if (!is_utf8(input.text)) {
    return wrong(quote(input.text), " is not UTF-8; write the characters themselves, no escapes");
  }
  return std::string(input.text);
}

absl::StatusOr<std::string> parse_directory(const KeyInput& input) {
  DHS_ASSIGN_OR_RETURN(const std::string text, parse_text(input));
  if (text.empty()) return wrong("the path is empty; write the directory of the model");
  // An absolute `text` replaces the base.
  const auto path = (std::filesystem::path(input.directory) / text).lexically_normal();
  // Without the trailing slash, so that the last component is the directory's name.
  return (path.has_filename() ? path : path.parent_path()).string();
}

absl::StatusOr<std::string> parse_host_port(const KeyInput& input) {
  constexpr int kMaxPort = 65535;
  const auto malformed = [&input](std::string_view reason) {
    return wrong(quote(input.text), " is not host:port: ", to_absl(reason),
                 "; write an address such as 127.0.0.1:50051, or [::1]:50051 for IPv6");
  };
  const size_t colon = input.text.rfind(':');
  if (colon == std::string_view::npos) return malformed("there is no ':'");
  const std::string_view port = input.text.substr(colon + 1);
  if (!is_host(input.text.substr(0, colon))) return malformed("the host is not a name or address");
  int number = 0;
  if (!is_digits(port) || port.size() > 5) return malformed("the port is not from 0 to 65535");
  std::from_chars(port.data(), port.data() + port.size(), number);
  if (number > kMaxPort) return malformed("the port is not from 0 to 65535");
  return std::string(input.text);
}

absl::StatusOr<std::string> parse_host_port_or_off(const KeyInput& input) {
  if (input.text == "off") return std::string(input.text);
  return parse_host_port(input);
}

std::string print_size(int64_t bytes) { return format_bytes(bytes); }

// The shortest text that reads back as the same number.
std::string print_number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

std::string print_duration(absl::Duration duration) { return format_duration(duration); }

std::string print_text(const std::string& text) {
  constexpr std::string_view kPlainSymbols = "/._-:";
  const bool plain = std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           kPlainSymbols.find(c) != std::string_view::npos;
  });
  const bool starts_as_word =
      !text.empty() && (absl::ascii_isalnum(static_cast<unsigned char>(text[0])) || text[0] == '/');
  if (plain && starts_as_word && text.back() != ':' && !is_yaml_word(text)) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace dhs
