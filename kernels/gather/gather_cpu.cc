#include <algorithm>

#include "dhisparse/device.h"
#include "kernels/gather/gather.h"

namespace dhs {
namespace {

constexpr int64_t kCacheLineBytes = 64;
constexpr int64_t kBytesPerPiece = 64 << 10;  // a piece must outweigh waking a thread (~5 us)
constexpr int64_t kBytesAhead = 8 << 10;      // more than a memory latency's worth of copying
constexpr int64_t kMinOrdersAhead = 2;
constexpr int64_t kMaxOrdersAhead = 8;

// Missed records are scattered, so each starts with a stall that the hardware prefetcher cannot
// hide.
void prefetch_record(const std::byte* record, int64_t bytes) {
  for (int64_t b = 0; b < bytes; b += kCacheLineBytes) __builtin_prefetch(record + b, 0, 0);
}

}  // namespace

void launch_gather(const GatherParams& params, Stream) {
  const int64_t record_bytes = params.host.record_bytes;
  if (record_bytes == 0) return;
  const int64_t grain = std::max<int64_t>(1, kBytesPerPiece / record_bytes);
  const int64_t ahead = std::clamp(kBytesAhead / record_bytes, kMinOrdersAhead, kMaxOrdersAhead);
  parallel_for(*params.num_orders, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin - ahead; i < end; ++i) {
      if (i + ahead < end) {
        prefetch_record(params.host.at(params.orders(i + ahead).host_row), record_bytes);
      }
      if (i < begin) continue;
      const FetchOrder& order = params.orders(i);
      std::memcpy(params.slots.at(order.slot), params.host.at(order.host_row),
                  static_cast<size_t>(record_bytes));
    }
  });
}

}  // namespace dhs
