// Missed records from pinned host memory to their slots, beside one plain copy of as many bytes.
#include <algorithm>
#include <random>

#include "kernels/gather/gather.h"
#include "meter.h"

namespace dhs::bench {
namespace {

constexpr int64_t kNumTurns = 16;  // tables of orders that calls take turns with

// `num_turns` tables of `count` orders: random records into slots 0, 1, 2, ...
std::vector<FetchOrder> random_orders(int64_t num_turns, int64_t count, int64_t num_host_rows) {
  std::mt19937_64 generator(7);
  std::uniform_int_distribution<int64_t> host_row(0, num_host_rows - 1);
  std::vector<FetchOrder> orders(static_cast<size_t>(num_turns * count));
  for (int64_t i = 0; i < std::ssize(orders); ++i) {
    orders[i] = {host_row(generator), static_cast<int32_t>(i % count)};
  }
  return orders;
}

struct Arenas {
  MemoryRange host;
  MemoryRange device;
};

void bench_orders(const Bench& bench, const Arenas& arenas, int64_t record_bytes, int64_t count) {
  constexpr int32_t kBlockTokens = 64;
  const int64_t block_bytes = kBlockTokens * record_bytes;
  const int64_t num_host_rows = arenas.host.bytes() / block_bytes * kBlockTokens;
  const MemoryRange orders = bench.uploaded(random_orders(kNumTurns, count, num_host_rows));
  const MemoryRange chunk_offset = bench.uploaded(std::vector<int64_t>{0});
  const MemoryRange num_orders = bench.uploaded(std::vector{static_cast<int32_t>(count)});
  const double us = bench.meter.median_us([&](int64_t turn) {
    launch_gather({.host = {arenas.host.data(), block_bytes, 0, record_bytes, kBlockTokens},
                   .slots = {arenas.device.data(), chunk_offset.as<const int64_t>(),
                             static_cast<int32_t>(count), record_bytes},
                   .orders = view(orders.as<const FetchOrder>() + turn % kNumTurns * count, count),
                   .num_orders = num_orders.as<const int32_t>()},
                  bench.stream());
  });
  const int64_t bytes = count * record_bytes;
  const int64_t num_places = std::max<int64_t>(1, arenas.host.bytes() / bytes);
  const double copy_us = bench.meter.median_us([&](int64_t turn) {
    bench.device.copy(arenas.device.data(), arenas.host.data() + turn % num_places * bytes, bytes,
                      bench.stream());
  });
  char note[96];
  std::snprintf(note, sizeof(note), "%.2f of a plain copy (%.1f us, %.1f GB/s)", copy_us / us,
                copy_us, static_cast<double>(bytes) / copy_us * 1e-3);
  bench.report.add(
      {.section = "gather",
       .what = std::to_string(count) + " records of " + std::to_string(record_bytes) + " B",
       .us = us,
       .work = {.link_bytes = static_cast<double>(bytes)},
       .note = note});
}

}  // namespace

void bench_gather(const Bench& bench) {
  const int64_t most_orders = bench.pick(16384, 8);
  constexpr int64_t kMostBytes = 4608;
  const Arenas arenas{bench.host_memory(bench.pick(int64_t{1} << 30, int64_t{1} << 20)),
                      bench.device_memory(most_orders * kMostBytes)};
  for (int64_t record_bytes : {656, 1152, 2624, 4608}) {
    for (int64_t count : {1, 8, 64, 2048, 16384}) {
      if (count > most_orders || (count == 8 && !bench.is_tiny)) continue;
      bench_orders(bench, arenas, record_bytes, count);
    }
  }
}

}  // namespace dhs::bench
