#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cuda/dispatch.h"
#include "kernels/kv_row/scratch.h"
#include "kernels/top_k/top_k_tables.h"

namespace dhs {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int kVectorSlack = 16;  // what TopKTable::collect may write past its last candidate
constexpr int64_t kScoresPerPiece = 16384;  // a piece must outweigh waking a thread (~5 us)
constexpr int64_t kSampleLine = 16;
constexpr int64_t kSampleSize = 4096;

// An unsigned integer whose order is the order of the contract: -0 == +0, NaN == -infinity.
uint32_t order_key(float score) {
  if (std::isnan(score)) score = kLowest;
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 + 0 is +0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

float score_of_key(uint32_t key) {
  return std::bit_cast<float>((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

struct Rank {
  uint32_t key = 0;      // the k-th largest key
  int64_t num_ties = 0;  // how many keys equal to it are among the k largest
};

struct Range {
  uint32_t low = 0, high = 0;
};

Range range_of(const uint32_t* keys, int64_t count) {
  Range range{keys[0], keys[0]};
  for (int64_t i = 1; i < count; ++i) {
    range.low = std::min(range.low, keys[i]);
    range.high = std::max(range.high, keys[i]);
  }
  return range;
}

// Radix select on the distance from the smallest key, so that the first digit already tells keys of
// similar magnitude apart; the keys of the digit that holds the k-th go into `work` [count] and are
// all that the next round looks at. Precondition: 1 <= k <= count.
Rank find_kth_largest(const uint32_t* keys, int64_t count, int64_t k, uint32_t* work) {
  constexpr int kDigitBits = 11;
  Range range = range_of(keys, count);
  Rank rank{range.low, k};
  while (range.low < range.high) {
    const int shift =
        std::max(0, static_cast<int>(std::bit_width(range.high - range.low)) - kDigitBits);
    uint32_t histogram[1 << kDigitBits] = {};
    for (int64_t i = 0; i < count; ++i) ++histogram[(keys[i] - range.low) >> shift];
    uint32_t digit = (range.high - range.low) >> shift;
    for (; histogram[digit] < rank.num_ties; --digit) rank.num_ties -= histogram[digit];
    if (shift == 0) {
      rank.key = range.low + digit;
      return rank;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t key = keys[i];
      work[kept] = key;
      kept += (key - range.low) >> shift == digit ? 1 : 0;
    }
    keys = work;
    count = kept;
    range = range_of(keys, count);
    rank.key = range.low;
  }
  return rank;
}

struct Candidates {
  const int32_t* positions = nullptr;  // ascending; null: 0, 1, 2, ...
  const uint32_t* keys = nullptr;
  int64_t count = 0;
};

// Working memory of one thread. Separate buffers, since growing one loses its content.
struct TopKScratch {
  Scratch positions, candidates, keys, sample, work;
};

// A score that about k + 4 sigma scores reach, guessed from evenly spaced cache lines: a wrong
// guess costs time, never the result. kLowest when reading everything is as good.
float guess_threshold(const float* scores, int64_t count, int64_t k, TopKScratch& scratch) {
  const int64_t num_lines = kSampleSize / kSampleLine;
  const int64_t stride = count / num_lines;
  if (stride < 2 * kSampleLine) return kLowest;
  const double expected = static_cast<double>(k) * kSampleSize / static_cast<double>(count);
  const auto wanted = static_cast<int64_t>(expected + 4.0 * std::sqrt(expected) + 8.0);
  if (wanted > kSampleSize / 2) return kLowest;
  uint32_t* sample = scratch.sample.get<uint32_t>(kSampleSize);
  for (int64_t line = 0; line < num_lines; ++line) {
    for (int64_t i = 0; i < kSampleLine; ++i) {
      sample[line * kSampleLine + i] = order_key(scores[line * stride + i]);
    }
  }
  uint32_t* work = scratch.work.get<uint32_t>(kSampleSize);
  return score_of_key(find_kth_largest(sample, kSampleSize, wanted, work).key);
}

Candidates find_candidates(const TopKTable& table, const float* scores, int64_t count, int64_t k,
                           TopKScratch& scratch) {
  const float threshold = guess_threshold(scores, count, k, scratch);
  uint32_t* keys = scratch.keys.get<uint32_t>(count);
  if (threshold > kLowest) {
    auto* positions = scratch.positions.get<int32_t>(count + kVectorSlack);
    auto* candidates = scratch.candidates.get<float>(count + kVectorSlack);
    const int64_t found = table.collect(scores, count, threshold, positions, candidates);
    if (found >= k) {
      for (int64_t i = 0; i < found; ++i) keys[i] = order_key(candidates[i]);
      return {positions, keys, found};
    }
  }
  for (int64_t i = 0; i < count; ++i) keys[i] = order_key(scores[i]);
  return {nullptr, keys, count};
}

// The ordered compaction: everything above the k-th key, and the first ties with it.
void write_selection(const Candidates& candidates, Rank rank, int64_t k, int32_t* selection) {
  int64_t written = 0;
  for (int64_t i = 0; i < candidates.count && written < k; ++i) {
    const bool tie = candidates.keys[i] == rank.key && rank.num_ties > 0;
    selection[written] =
        candidates.positions == nullptr ? static_cast<int32_t>(i) : candidates.positions[i];
    rank.num_ties -= tie ? 1 : 0;
    written += tie || candidates.keys[i] > rank.key ? 1 : 0;
  }
}

void select_row(const TopKTable& table, const float* scores, int64_t visible, int64_t k,
                int32_t* selection) {
  if (visible <= k) {
    for (int64_t i = 0; i < k; ++i) selection[i] = i < visible ? static_cast<int32_t>(i) : -1;
    return;
  }
  if (k == 0) return;
  thread_local TopKScratch scratch;
  const Candidates candidates = find_candidates(table, scores, visible, k, scratch);
  const Rank rank = find_kth_largest(candidates.keys, candidates.count, k,
                                     scratch.work.get<uint32_t>(candidates.count));
  write_selection(candidates, rank, k, selection);
}

}  // namespace

int64_t top_k_collect_base(const float* scores, int64_t count, float threshold, int32_t* positions,
                           float* candidates) {
  int64_t found = 0;
  for (int64_t s = 0; s < count; ++s) {
    positions[found] = static_cast<int32_t>(s);
    candidates[found] = scores[s];
    found += scores[s] >= threshold ? 1 : 0;
  }
  return found;
}

const TopKTable& top_k_table(CpuIsa isa) {
  static constexpr TopKTable kBase{top_k_collect_base};
  static constexpr TopKTable kAvx2{top_k_collect_avx2};
  static constexpr TopKTable kAvx512{top_k_collect_avx512};
  if (isa == CpuIsa::kBase) return kBase;
  return isa == CpuIsa::kAvx2 ? kAvx2 : kAvx512;
}

void launch_top_k_with(const TopKTable& table, const TopKParams& params) {
  const int64_t k = params.selection.sizes[1];
  const int64_t grain =
      std::max<int64_t>(1, kScoresPerPiece / std::max<int64_t>(1, params.scores.sizes[1]));
  parallel_for(params.selection.sizes[0], grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      select_row(table, params.scores.row(t), params.visible(t), k, params.selection.row(t));
    }
  });
}

static void launch_top_k_cpu(const TopKParams& params) {
  launch_top_k_with(top_k_table(cpu_isa()), params);
}

DHS_LAUNCHER(launch_top_k, TopKParams)

}  // namespace dhs
