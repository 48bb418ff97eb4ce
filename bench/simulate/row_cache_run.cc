#include "row_cache_run.h"

#include "dhisparse/base.h"

namespace dhs::bench {
namespace {

int64_t run_step(test::SimulatedRowCache& cache, const LoadStep& rows, int32_t top_k) {
  std::vector<int64_t> written;
  std::vector<int32_t> requests;
  std::vector<std::vector<int32_t>> selections;
  for (const QueryRow& row : rows) {
    written.push_back(cache.host_row(row.request, row.position));
    requests.push_back(row.request);
    selections.push_back(row.positions);
    selections.back().resize(top_k, -1);
  }
  cache.claim(written);
  return rows.empty() ? 0 : cache.resolve(requests, selections);
}

}  // namespace

int64_t row_cache_misses(const Load& load, int group, int64_t num_slots, Window window) {
  test::SimulatedRowCache cache({.num_requests = load.num_requests,
                                 .rows_each = load.rows_each,
                                 .num_slots = static_cast<int32_t>(num_slots)});
  int64_t total = 0;
  for (int64_t step = 0; step < window.last; ++step) {
    const int64_t missed = run_step(cache, load.groups[group][step], load.top_k);
    total += step >= window.first ? missed : 0;
  }
  const char* fault = cache.check();
  DHS_CHECK(fault == nullptr, fault);
  return total;
}

}  // namespace dhs::bench
