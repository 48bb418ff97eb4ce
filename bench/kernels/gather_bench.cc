// gather: the limit is a plain copy of the same scattered records on the same threads, one memcpy
// each, measured beside it; both take turns over orders whose records do not fit into any cache.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "bench/kernels/best_time.h"
#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/gather/gather.h"

namespace dhs {
namespace {

constexpr int64_t kArenaBytes = int64_t{256} << 20;
constexpr int64_t kPoolBytes = int64_t{64} << 20;
constexpr int64_t kOrdersPerLaunch = 2048;

// Touched once: a first touch costs more than a benchmark.
struct Memory {
  std::vector<std::byte> arena = std::vector<std::byte>(static_cast<size_t>(kArenaBytes));
  std::vector<std::byte> pool = std::vector<std::byte>(static_cast<size_t>(kPoolBytes));
};

Memory& memory() {
  static Memory memory;
  return memory;
}

// Every host row once, to slots in random order that repeat when they run out.
std::vector<FetchOrder> make_orders(int64_t num_rows, int64_t num_slots) {
  std::vector<FetchOrder> orders(static_cast<size_t>(num_rows));
  std::vector<int32_t> slots(static_cast<size_t>(num_slots));
  std::iota(slots.begin(), slots.end(), 0);
  std::mt19937 random(3);
  std::shuffle(slots.begin(), slots.end(), random);
  for (int64_t i = 0; i < num_rows; ++i) {
    orders[static_cast<size_t>(i)] = {i, slots[static_cast<size_t>(i % num_slots)]};
  }
  std::shuffle(orders.begin(), orders.end(), random);
  return orders;
}

void plain_copy(const GatherParams& params) {
  parallel_for(*params.num_orders, kOrdersPerLaunch / 32, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const FetchOrder& order = params.orders(i);
      std::memcpy(params.slots.at(order.slot), params.host.at(order.host_row),
                  static_cast<size_t>(params.host.record_bytes));
    }
  });
}

void bench_gather(benchmark::State& state) {
  const int64_t record_bytes = state.range(0);
  Memory& m = memory();
  GatherParams params;
  params.host = {m.arena.data(), kHostBlockTokens * record_bytes, 0, record_bytes,
                 kHostBlockTokens};
  const int64_t num_rows = kArenaBytes / params.host.block_bytes * kHostBlockTokens /
                           kOrdersPerLaunch * kOrdersPerLaunch;
  const std::vector<FetchOrder> orders = make_orders(num_rows, kPoolBytes / record_bytes);
  const int64_t offset = 0;
  params.slots = {m.pool.data(), &offset, static_cast<int32_t>(kPoolBytes / record_bytes),
                  record_bytes};
  const auto count = static_cast<int32_t>(kOrdersPerLaunch);
  params.num_orders = &count;

  BestTime plain, gather;
  int64_t turn = 0;
  const auto next = [&] {
    const int64_t first = turn++ % (num_rows / kOrdersPerLaunch) * kOrdersPerLaunch;
    params.orders = view<const FetchOrder>(orders.data() + first, kOrdersPerLaunch);
  };
  for (auto _ : state) {
    next();
    plain.run([&] { plain_copy(params); });
    next();
    state.SetIterationTime(gather.run([&] { launch_gather(params, Stream{}); }));
  }
  const auto bytes = static_cast<double>(kOrdersPerLaunch * record_bytes);
  report_best(state, gather, bytes, true, bytes / plain.seconds());
}
BENCHMARK(bench_gather)
    ->ArgName("record_bytes")
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Arg(656)
    ->Arg(1152)
    ->Arg(2624)
    ->Arg(4608);

}  // namespace
}  // namespace dhs
