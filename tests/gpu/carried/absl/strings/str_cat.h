// absl::StrCat for machines without absl.
#pragma once

#include <sstream>
#include <string>

#include "absl/status/status.h"

namespace absl {

template <class... Parts>
std::string StrCat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
void StrAppend(std::string* to, const Parts&... parts) {
  *to += StrCat(parts...);
}

}  // namespace absl
