#include "compute_capability.h"

#include <algorithm>
#include <charconv>

namespace dhs {
namespace {

bool runs_on(int capability, std::string_view architecture) {
  int compiled_for = 0;
  const char* end = architecture.data() + architecture.size();
  const auto number = std::from_chars(architecture.data(), end, compiled_for);
  if (number.ec != std::errc()) return false;
  const std::string_view suffix(number.ptr, static_cast<size_t>(end - number.ptr));
  if (suffix.starts_with('a')) return capability == compiled_for;
  const bool same_major = capability / 10 == compiled_for / 10;
  if (suffix.starts_with('f') || suffix == "-real") {
    return same_major && capability >= compiled_for;
  }
  return capability >= compiled_for;
}

}  // namespace

bool has_kernels_for(int capability, std::string_view architectures) {
  while (!architectures.empty()) {
    const size_t length = std::min(architectures.find(','), architectures.size());
    if (runs_on(capability, architectures.substr(0, length))) return true;
    architectures.remove_prefix(std::min(length + 1, architectures.size()));
  }
  return false;
}

}  // namespace dhs
