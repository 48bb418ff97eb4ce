// One resolve pass after another, for a count of the instructions that each takes:
//   resolve_cost SLOTS TOP_K MISSES PASSES
// The row cache is full. Every pass hits TOP_K - MISSES rows spread over the whole cache and misses
// MISSES rows that it has never seen. bench/kernels/resolve_cost.sh runs it under callgrind.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/row_cache_arrays.h"

namespace dhs {
namespace {

struct Options {
  int32_t num_slots = 0;
  int32_t top_k = 0;
  int32_t num_misses = 0;
  int32_t num_passes = 0;
};

class FullRowCache {
 public:
  explicit FullRowCache(const Options& options)
      : options_(options),
        num_host_rows_(round_up(
            int64_t{options.num_slots} + int64_t{options.num_misses} * (options.num_passes + 1),
            kHostBlockTokens)),
        rows_({.num_host_rows = num_host_rows_,
               .num_slots = options.num_slots,
               .slots_per_segment = options.num_slots}),
        block_table_(num_host_rows_ / kHostBlockTokens),
        slots_(options.top_k),
        misses_(options.top_k) {
    for (size_t i = 0; i < block_table_.size(); ++i) block_table_[i] = static_cast<int32_t>(i);
    launch_reset_row_cache({state()}, {});
    launch_add_segment({state()}, {});
    std::vector<int64_t> rows;
    for (int32_t row = 0; row < options.num_slots; ++row) rows.push_back(row);
    ResolveCounters counters;
    launch_claim({.cache = state(),
                  .host_rows = view<const int64_t>(rows.data(), rows.size()),
                  .counters = &counters},
                 {});
  }

  RowCacheState state() { return rows_.state(); }

  // Resident rows a stride apart, then rows that come after all that were named so far.
  std::vector<int32_t> selection(int pass) const {
    std::vector<int32_t> rows;
    const int32_t num_hits = options_.top_k - options_.num_misses;
    const int64_t stride = options_.num_slots / num_hits;
    for (int64_t i = 0; i < num_hits; ++i) {
      const auto slot = (i * stride + pass) % options_.num_slots;
      rows.push_back(static_cast<int32_t>(rows_.owner_of[slot]));
    }
    for (int32_t i = 0; i < options_.num_misses; ++i) {
      rows.push_back(options_.num_slots + pass * options_.num_misses + i);
    }
    return rows;
  }

  ResolveCounters resolve(const std::vector<int32_t>& rows) {
    ResolveCounters counters;
    int32_t num_misses = 0;
    const int32_t sequence = 0;
    ResolveParams params;
    params.cache = state();
    params.selection = view<const int32_t>(rows.data(), 1, rows.size());
    params.sequence_of_row = view(&sequence, 1);
    params.block_table = view<const int32_t>(block_table_.data(), 1, block_table_.size());
    params.block_tokens = kHostBlockTokens;
    params.slots = view(slots_.data(), 1, slots_.size());
    params.misses = view(misses_.data(), misses_.size());
    params.num_misses = &num_misses;
    params.counters = &counters;
    launch_resolve(params, {});
    return counters;
  }

 private:
  const Options options_;
  const int64_t num_host_rows_;
  RowCacheArrays rows_;
  std::vector<int32_t> block_table_;
  std::vector<int32_t> slots_;
  std::vector<FetchOrder> misses_;
};

bool parse(int argc, char** argv, Options& options) {
  int32_t* fields[] = {&options.num_slots, &options.top_k, &options.num_misses,
                       &options.num_passes};
  if (argc != 5) return false;
  for (int i = 0; i < 4; ++i) {
    const char* end = argv[i + 1] + std::strlen(argv[i + 1]);
    const auto [rest, error] = std::from_chars(argv[i + 1], end, *fields[i]);
    if (error != std::errc() || rest != end || *fields[i] < 0) return false;
  }
  return options.num_misses < options.top_k && options.top_k <= options.num_slots;
}

}  // namespace
}  // namespace dhs

int main(int argc, char** argv) {
  dhs::Options options;
  if (!dhs::parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: resolve_cost SLOTS TOP_K MISSES PASSES, MISSES < TOP_K <= SLOTS\n");
    return 2;
  }
  dhs::FullRowCache cache(options);
  for (int pass = 0; pass < options.num_passes; ++pass) {
    const dhs::ResolveCounters counters = cache.resolve(cache.selection(pass));
    DHS_CHECK(counters.missed == options.num_misses, "pass ", pass, " missed ", counters.missed);
  }
  return 0;
}
