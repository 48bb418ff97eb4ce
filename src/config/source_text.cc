#include "src/config/source_text.h"

#include <absl/strings/str_format.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <system_error>

#include "dhisparse/base.h"

namespace dhs {
namespace {

absl::Status unreadable(const std::string& path, int error) {
  return absl::NotFoundError(absl::StrCat(
      path, ": cannot read the configuration file: ", std::generic_category().message(error),
      "; check the path and its permissions"));
}

struct Utf8Class {
  size_t bytes;        // of the whole character
  uint32_t lead_bits;  // payload of the lead byte
  uint32_t minimum;    // smaller code points are overlong
};

std::optional<Utf8Class> classify(unsigned char lead) {
  if (lead < 0x80) return Utf8Class{1, lead, 0};
  if (lead >= 0xC0 && lead < 0xE0) return Utf8Class{2, lead & 0x1Fu, 0x80};
  if (lead >= 0xE0 && lead < 0xF0) return Utf8Class{3, lead & 0x0Fu, 0x800};
  if (lead >= 0xF0 && lead < 0xF8) return Utf8Class{4, lead & 0x07u, 0x10000};
  return std::nullopt;
}

// Bytes of the valid character at the start of `text`; 0 when there is none.
size_t utf8_length(std::string_view text) {
  const std::optional<Utf8Class> shape = classify(static_cast<unsigned char>(text[0]));
  if (!shape || shape->bytes > text.size()) return 0;
  uint32_t code = shape->lead_bits;
  for (size_t i = 1; i < shape->bytes; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c & 0xC0) != 0x80) return 0;
    code = code << 6 | (c & 0x3Fu);
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < shape->minimum || surrogate || code > 0x10FFFF ? 0 : shape->bytes;
}

// Looks at one line without its end.
void check_line(std::string_view line, int number, TextCheck& check) {
  const auto report = [&](size_t offset, std::string message) {
    check.problems.push_back({{number, static_cast<int>(offset) + 1}, std::move(message)});
  };
  for (size_t i = 0; i < line.size();) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c == '\t') {
      report(i, "a tab is not accepted; use spaces");
      // After the indentation a tab only separates; inside it, it hides the structure.
      if (line.find_first_not_of(" \t") > i) check.readable = false;
      return;
    }
    const size_t length = utf8_length(line.substr(i));
    if (c >= 0x20 && c != 0x7F && length > 0) {
      i += length;
      continue;
    }
    const char* what = length > 0 ? "is a control character" : "is not UTF-8";
    report(i, absl::StrFormat("byte 0x%02x %s; save the file as plain UTF-8 text", c, what));
    check.readable = false;
    return;
  }
}

}  // namespace

absl::StatusOr<std::string> read_source(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                       &std::fclose);
  if (file == nullptr) return unreadable(path, errno);
  std::string text(kMaxConfigFileBytes + 1, '\0');
  errno = 0;
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return unreadable(path, errno);
  if (text.size() > kMaxConfigFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ":1:1: yaml: the file is larger than the limit of 1MiB; is it a configuration?"));
  }
  return text;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

TextCheck check_text(std::string_view text) {
  TextCheck check;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    check_line(line, number, check);
  }
  return check;
}

}  // namespace dhs
