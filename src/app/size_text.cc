#include "app/size_text.h"

#include <absl/strings/str_format.h>

#include <string_view>

#include "dhisparse/base.h"

namespace dhs {

std::string size_text(int64_t num_bytes) {
  if (num_bytes < 1024) return absl::StrFormat("%d B", num_bytes);
  double value = static_cast<double>(num_bytes);
  std::string_view unit;
  for (std::string_view next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024.0) break;
    value /= 1024.0;
    unit = next;
  }
  return absl::StrFormat("%.1f %s", value, to_absl(unit));
}

std::string percent_text(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  return absl::StrFormat("%.2f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace dhs
