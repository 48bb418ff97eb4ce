#include <algorithm>

#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
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
void prefetch_bytes(const std::byte* source, int64_t bytes) {
  for (int64_t b = 0; b < bytes; b += kCacheLineBytes) __builtin_prefetch(source + b, 0, 0);
}

// Copies `bytes` from source(i) to target(i) for every i < num_orders.
template <class Source, class Target>
void copy_ranges(int64_t num_orders, int64_t bytes, Source source, Target target) {
  if (bytes <= 0) return;
  const int64_t grain = std::max<int64_t>(1, kBytesPerPiece / bytes);
  const int64_t ahead = std::clamp(kBytesAhead / bytes, kMinOrdersAhead, kMaxOrdersAhead);
  parallel_for(num_orders, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin - ahead; i < end; ++i) {
      if (i + ahead < end) prefetch_bytes(source(i + ahead), bytes);
      if (i < begin) continue;
      std::memcpy(target(i), source(i), static_cast<size_t>(bytes));
    }
  });
}

void launch_gather_cpu(const GatherParams& params) {
  copy_ranges(
      *params.num_orders, params.host.record_bytes - params.first_byte,
      [&](int64_t i) { return params.host.at(params.orders(i).host_row) + params.first_byte; },
      [&](int64_t i) { return params.slots.at(params.orders(i).slot) + params.first_byte; });
}

void launch_move_records_cpu(const MoveRecordsParams& params) {
  copy_ranges(
      *params.num_orders, params.slots.item_bytes,
      [&](int64_t i) { return params.slots.at(params.orders(i).from_slot); },
      [&](int64_t i) { return params.slots.at(params.orders(i).to_slot); });
}

}  // namespace

DHS_LAUNCHER(launch_gather, GatherParams)
DHS_LAUNCHER(launch_move_records, MoveRecordsParams)

}  // namespace dhs
