// Selections to slots, in the steady state of caches that hold twice the selection.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "kernels/resolve/resolve.h"
#include "meter.h"

namespace dhs::bench {
namespace {

constexpr int32_t kBlockTokens = 64;

// Selections that move on by `advance` rows per step over a ring of positions so long that a row
// has left the cache when it comes round again: each step misses that many rows.
struct Walk {
  int64_t num_sequences = 0;
  int64_t top_k = 0;
  int64_t advance = 0;  // rows per step
  int64_t num_steps() const {
    return advance == 0 ? 1 : std::max<int64_t>(8, 4 * top_k / advance + 1);
  }
  int64_t context() const { return advance == 0 ? top_k : num_steps() * advance; }
  int64_t num_blocks() const { return (context() + kBlockTokens - 1) / kBlockTokens; }
};

// [num_steps, num_sequences, top_k], ascending.
std::vector<int32_t> selections(const Walk& walk) {
  std::vector<int32_t> all;
  for (int64_t step = 0; step < walk.num_steps(); ++step) {
    std::vector<int32_t> one;
    for (int64_t i = 0; i < walk.top_k; ++i) {
      one.push_back(static_cast<int32_t>((step * walk.advance + i) % walk.context()));
    }
    std::sort(one.begin(), one.end());
    for (int64_t s = 0; s < walk.num_sequences; ++s) all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

// A row cache in device memory, all its slots live and free.
class RowCache {
 public:
  RowCache(const Bench& bench, int64_t num_host_rows, int64_t num_slots)
      : slot_of_(bench.device_memory(num_host_rows * 4)),
        owner_of_(bench.device_memory(num_slots * 8)),
        last_used_(bench.device_memory(num_slots * 4)),
        free_ring_(bench.device_memory(num_slots * 4)),
        head_(bench.device_memory(sizeof(RowCacheHead))) {
    state = {.slot_of = view(slot_of_.as<int32_t>(), num_host_rows),
             .owner_of = view(owner_of_.as<int64_t>(), num_slots),
             .last_used = view(last_used_.as<uint32_t>(), num_slots),
             .free_ring = view(free_ring_.as<int32_t>(), num_slots),
             .head = head_.as<RowCacheHead>(),
             .slots_per_segment = static_cast<int32_t>(num_slots)};
    launch_reset_row_cache({state}, bench.stream());
    launch_add_segment({state}, bench.stream());
  }
  RowCacheState state;

 private:
  MemoryRange slot_of_, owner_of_, last_used_, free_ring_, head_;
};

struct Outputs {
  Outputs(const Bench& bench, int64_t most_rows)
      : slots(bench.device_memory(most_rows * 4)),
        miss_of(bench.device_memory(most_rows * 4)),
        misses(bench.device_memory(most_rows * static_cast<int64_t>(sizeof(FetchOrder)))),
        num_misses(bench.device_memory(4)),
        counters(bench.device_memory(sizeof(ResolveCounters))) {}
  MemoryRange slots, miss_of, misses, num_misses, counters;
};

void bench_walk(const Bench& bench, const Walk& walk) {
  const int64_t n = walk.num_sequences;
  const int64_t selected = n * walk.top_k;
  const RowCache cache(bench, n * walk.num_blocks() * kBlockTokens, 2 * selected);
  const Outputs out(bench, selected);
  const MemoryRange selection = bench.uploaded(selections(walk));
  const MemoryRange sequences = bench.uploaded(rising(n));
  const MemoryRange blocks = bench.uploaded(rising(n * walk.num_blocks()));
  int64_t step = 0;  // calls go on where the one before stopped
  const double us = bench.meter.median_us([&](int64_t) {
    const int64_t offset = step++ % walk.num_steps() * selected;
    launch_resolve({.cache = cache.state,
                    .selection = view(selection.as<const int32_t>() + offset, n, walk.top_k),
                    .sequence_of_row = view(sequences.as<const int32_t>(), n),
                    .block_table = view(blocks.as<const int32_t>(), n, walk.num_blocks()),
                    .block_tokens = kBlockTokens,
                    .slots = view(out.slots.as<int32_t>(), n, walk.top_k),
                    .miss_of = view(out.miss_of.as<int32_t>(), n, walk.top_k),
                    .misses = view(out.misses.as<FetchOrder>(), selected),
                    .num_misses = out.num_misses.as<int32_t>(),
                    .counters = out.counters.as<ResolveCounters>()},
                   bench.stream());
  });
  const auto counters = bench.downloaded(out.counters.as<const ResolveCounters>(), 1).front();
  // The first pass of all found an empty cache: it is no part of the steady state.
  const double wanted = static_cast<double>(counters.hit + counters.missed - selected);
  char note[64];
  std::snprintf(
      note, sizeof(note), "%.1f %% hit, %lld missed per call",
      wanted > 0 ? 100.0 * static_cast<double>(counters.hit) / wanted : 0.0,
      static_cast<long long>((counters.missed - selected) / std::max<int64_t>(1, step - 1)));
  bench.report.add({.section = "resolve",
                    .what = std::to_string(n) + " query rows x " + std::to_string(walk.top_k),
                    .us = us,
                    .work = {.memory_bytes = static_cast<double>(selected) * 20},
                    .note = note});
}

}  // namespace

void bench_resolve(const Bench& bench) {
  const int64_t top_k = bench.pick(2048, 16);
  for (int64_t num_sequences : {1, 16, 64}) {
    if (bench.is_tiny && num_sequences > 1) continue;
    for (int64_t missed_percent : {0, 13, 50}) {
      bench_walk(bench, {num_sequences, top_k, top_k * missed_percent / 100});
    }
  }
}

}  // namespace dhs::bench
