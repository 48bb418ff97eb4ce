// What memory holds before anything is written to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace simt {

// A NaN in every float format, whatever part of it is read, and a large positive integer: no -1,
// which often means "none", and no index that exists.
inline constexpr uint16_t kGarbage = 0x7fff;
inline constexpr uint32_t kGarbageWord = 0x7fff7fff;

inline void fill_with_garbage(void* data, size_t bytes) {
  auto* to = static_cast<std::byte*>(data);
  const size_t whole = bytes / sizeof kGarbage * sizeof kGarbage;
  for (size_t i = 0; i < whole; i += sizeof kGarbage) {
    std::memcpy(to + i, &kGarbage, sizeof kGarbage);
  }
  if (whole < bytes) to[whole] = std::byte{0xff};
}

}  // namespace simt
