// Fetches the next page of keys while this one is scored: pages are scattered, and the hardware's
// prefetchers stop at the end of each. In an unnamed namespace, as in kernels/kv_row/vector_f32.h.
#pragma once

#include "kernels/index_score/index_score_tables.h"

namespace dhs {
namespace {

// The stored keys [first, first + count) of the next page.
inline void prefetch_next_keys(const IndexKeys& page, int64_t first, int64_t count) {
  constexpr int64_t kCacheLineBytes = 64;
  if (page.next_page == nullptr) return;
  const std::byte* end = page.next_page + (first + count) * page.key_bytes;
  for (const std::byte* line = page.next_page + first * page.key_bytes; line < end;
       line += kCacheLineBytes) {
    __builtin_prefetch(line, 0, 2);
  }
}

}  // namespace
}  // namespace dhs
