// How copies of many records are spread over a GPU. Pure, so that it is tested without one.
#pragma once

#include <cstdint>
#include <numeric>

namespace dhs {

inline constexpr int64_t kCopyLineBytes = 128;   // what one request over PCIe carries
inline constexpr int64_t kCopyVectorBytes = 16;  // what one thread loads at once
inline constexpr int kCopyThreads = 128;
// Lines that one warp requests before it stores the first: 8 vectors per thread, 4 KB per warp.
inline constexpr int kCopyLinesPerWarp = 32;
inline constexpr int64_t kCopyBlocksPerSm = 2;

struct CopyDesc {
  int64_t max_num_orders = 0;
  int64_t bytes = 0;           // copied of every record, a multiple of 16
  int64_t max_line_phase = 0;  // see below
  int64_t num_sms = 0;
};

struct CopyConfig {
  int64_t lines_per_order = 0;  // that a source can touch at most
  int64_t num_blocks = 0;       // 0: nothing to copy
};

// The largest offset within its line at which a source can start, when all of them start at `first`
// plus multiples of `stride_a` and `stride_b`. All three are multiples of 16.
constexpr int64_t max_line_phase(int64_t first, int64_t stride_a, int64_t stride_b) {
  const int64_t step = std::gcd(kCopyLineBytes, std::gcd(stride_a, stride_b));
  return kCopyLineBytes - step + first % step;
}

// One warp per kCopyLinesPerWarp lines, as far as the device's share of blocks goes; beyond that
// warps take turns. Few orders are spread over many blocks: one block alone cannot keep enough
// requests in flight for the link (45 GB/s times 1 us is 45 KB, a block has 16 KB).
constexpr CopyConfig pick_copy_config(const CopyDesc& desc) {
  if (desc.max_num_orders <= 0 || desc.bytes <= 0) return {};
  const int64_t lines_per_order =
      (desc.max_line_phase + desc.bytes + kCopyLineBytes - 1) / kCopyLineBytes;
  constexpr int64_t kLinesPerBlock = kCopyLinesPerWarp * (kCopyThreads / 32);
  const int64_t wanted =
      (desc.max_num_orders * lines_per_order + kLinesPerBlock - 1) / kLinesPerBlock;
  const int64_t limit = desc.num_sms > 0 ? desc.num_sms * kCopyBlocksPerSm : kCopyBlocksPerSm;
  return {lines_per_order, wanted < limit ? wanted : limit};
}

}  // namespace dhs
