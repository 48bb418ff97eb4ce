#include "trace/cache_policies.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <set>

#include "dhisparse/base.h"
#include "dhisparse/counter_random.h"
#include "trace/recency_stack.h"

namespace dhs::trace {
namespace {

int64_t num_rows_of(std::span<const Pass> passes) {
  int32_t largest = -1;
  for (const Pass& pass : passes) {
    for (int32_t row : pass.rows) largest = std::max(largest, row);
  }
  return largest + 1;
}

bool is_written(const Pass& pass, int64_t i) {
  return i >= std::ssize(pass.rows) - pass.num_written;
}

// Which rows are cached and which the running pass needs; what both replacements below share.
struct Residency {
  explicit Residency(int64_t num_rows) : is_cached(num_rows), needed_by(num_rows, -1) {}

  // The rows that have to come in; those that missed are counted.
  std::vector<int32_t> begin_pass(const Pass& pass, int64_t number, int64_t* num_missed) {
    std::vector<int32_t> incoming;
    for (int64_t i = 0; i < std::ssize(pass.rows); ++i) {
      const int32_t row = pass.rows[i];
      needed_by[row] = number;
      if (is_cached[row]) continue;
      incoming.push_back(row);
      *num_missed += is_written(pass, i) ? 0 : 1;
    }
    return incoming;
  }

  std::vector<bool> is_cached;
  std::vector<int64_t> needed_by;  // pass
};

// The first row of the queue that pass `number` does not need. Rows passed over keep their place:
// they wait in `passed`.
void evict_first(std::deque<int32_t>& queue, std::vector<int32_t>& passed, Residency& residency,
                 int64_t number) {
  while (true) {
    DHS_CHECK(!queue.empty(), "a pass needs more rows than the cache holds");
    const int32_t row = queue.front();
    queue.pop_front();
    if (residency.needed_by[row] != number) {
      residency.is_cached[row] = false;
      return;
    }
    passed.push_back(row);
  }
}

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The pass that uses it next, for every row of every pass.
std::vector<std::vector<int64_t>> next_uses(std::span<const Pass> passes) {
  std::vector<int64_t> next(num_rows_of(passes), kNever);
  std::vector<std::vector<int64_t>> uses(passes.size());
  for (int64_t number = std::ssize(passes) - 1; number >= 0; --number) {
    for (int32_t row : passes[number].rows) {
      uses[number].push_back(next[row]);
      next[row] = number;
    }
  }
  return uses;
}

}  // namespace

std::vector<std::vector<int64_t>> lru_misses(std::span<const Pass> passes,
                                             std::span<const int64_t> capacities) {
  std::vector<std::vector<int64_t>> missed(capacities.size(),
                                           std::vector<int64_t>(passes.size(), 0));
  RecencyStack stack;
  for (size_t number = 0; number < passes.size(); ++number) {
    const Pass& pass = passes[number];
    for (int64_t i = 0; i < std::ssize(pass.rows) - pass.num_written; ++i) {
      const int64_t depth = stack.depth_of(pass.rows[i]).value_or(kNever);
      for (size_t c = 0; c < capacities.size(); ++c) missed[c][number] += depth >= capacities[c];
    }
    for (int32_t row : pass.rows) stack.touch(row);
  }
  return missed;
}

std::vector<int64_t> fifo_misses(std::span<const Pass> passes, int64_t capacity) {
  Residency residency(num_rows_of(passes));
  std::deque<int32_t> queue;
  std::vector<int32_t> passed;
  std::vector<int64_t> missed(passes.size(), 0);
  for (int64_t number = 0; number < std::ssize(passes); ++number) {
    const auto incoming = residency.begin_pass(passes[number], number, &missed[number]);
    passed.clear();
    const int64_t num_after = std::ssize(queue) + std::ssize(incoming);
    for (int64_t i = capacity; i < num_after; ++i) evict_first(queue, passed, residency, number);
    queue.insert(queue.begin(), passed.begin(), passed.end());
    for (int32_t row : incoming) {
      queue.push_back(row);
      residency.is_cached[row] = true;
    }
  }
  return missed;
}

std::vector<int64_t> random_misses(std::span<const Pass> passes, int64_t capacity, uint64_t seed) {
  Residency residency(num_rows_of(passes));
  std::vector<int32_t> cached;
  std::vector<int64_t> missed(passes.size(), 0);
  uint64_t num_drawn = 0;
  for (int64_t number = 0; number < std::ssize(passes); ++number) {
    for (int32_t row : residency.begin_pass(passes[number], number, &missed[number])) {
      residency.is_cached[row] = true;
      if (std::ssize(cached) < capacity) {
        cached.push_back(row);
        continue;
      }
      int64_t victim = random_below(seed, num_drawn++, capacity);
      while (residency.needed_by[cached[victim]] == number) {
        victim = random_below(seed, num_drawn++, capacity);
      }
      residency.is_cached[cached[victim]] = false;
      cached[victim] = row;
    }
  }
  return missed;
}

std::vector<int64_t> belady_misses(std::span<const Pass> passes, int64_t capacity) {
  const std::vector<std::vector<int64_t>> uses = next_uses(passes);
  std::vector<int64_t> next_use(num_rows_of(passes), 0);  // of a cached row
  std::vector<bool> is_cached(next_use.size());
  std::set<std::pair<int64_t, int32_t>> by_next_use;
  std::vector<int64_t> missed(passes.size(), 0);
  for (size_t number = 0; number < passes.size(); ++number) {
    const Pass& pass = passes[number];
    for (int64_t i = 0; i < std::ssize(pass.rows); ++i) {
      const int32_t row = pass.rows[i];
      if (is_cached[row]) {
        by_next_use.erase({next_use[row], row});
      } else if (!is_written(pass, i)) {
        ++missed[number];
      }
    }
    // What is left in the set this pass does not need.
    while (std::ssize(by_next_use) + std::ssize(pass.rows) > capacity) {
      DHS_CHECK(!by_next_use.empty(), "a pass needs more rows than the cache holds");
      const auto farthest = std::prev(by_next_use.end());
      is_cached[farthest->second] = false;
      by_next_use.erase(farthest);
    }
    for (size_t i = 0; i < pass.rows.size(); ++i) {
      const int32_t row = pass.rows[i];
      is_cached[row] = true;
      next_use[row] = uses[number][i];
      by_next_use.insert({next_use[row], row});
    }
  }
  return missed;
}

}  // namespace dhs::trace
