// Random traffic over two row caches that must stay equal, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <type_traits>
#include <vector>

#include "kernels/row_cache_fixture.h"
#include "kernels/row_cache_spec.h"

#ifdef DHS_SIMT
#include "simt/emu/runtime.h"
#endif

namespace dhs::test {

// In emulation: warps and lanes in a random order, and races between threads and blocks reported
// (by the build whose kernels are checked).
class ScopedSchedule {
 public:
#ifdef DHS_SIMT
  explicit ScopedSchedule(uint32_t seed) : saved_(simt::options()) {
    simt::options().seed = seed;
    simt::options().global_races = true;
  }
  ~ScopedSchedule() { simt::options() = saved_; }

 private:
  simt::Options saved_;
#else
  explicit ScopedSchedule(uint32_t) {}
  ~ScopedSchedule() {}
#endif
};

#if DHS_TEST_CUDA
using TruePasses = CpuPasses;
#else
using TruePasses = SpecPasses;
#endif

// The version under test beside the one it must equal, bit for bit.
class Twins {
 public:
  explicit Twins(const Shape& shape) : tested_(shape), truth_(shape) {}

  // Runs `pass` on both; their states and what it returns must agree.
  template <class Pass>
  void run(const char* name, Pass pass) {
    if constexpr (std::is_void_v<decltype(pass(truth_))>) {
      pass(truth_);
      pass(tested_);
    } else {
      const auto expected = pass(truth_);
      ASSERT_EQ(pass(tested_) == expected, true) << name << " returns something else";
    }
    RowCacheImage image = truth_.image();
    ASSERT_EQ(difference(tested_.image(), image), "") << "after " << name;
    ASSERT_STREQ(image.check(), nullptr) << "after " << name;
  }
  RowCacheHead head() const { return truth_.head(); }

 private:
  TestedRowCache tested_;
  RowCache<PlainArray, TruePasses> truth_;
};

struct Traffic {
  Shape shape;
  int num_query_rows = 4;
  int top_k = 16;
  int num_sequences = 3;
  int blocks_each = 8;
  int locality = 50;  // percent of the selection that lies in one eighth of the context
  int num_steps = 100;
  uint32_t first_tick = 0;
};

// Draws what the passes of `traffic` ask for. Sequences share some of their host blocks.
class Draw {
 public:
  Draw(const Traffic& traffic, uint32_t seed) : traffic_(traffic), random_(seed) {
    num_blocks_ = static_cast<int32_t>(traffic.shape.num_host_rows / kBlockTokens);
    table_.resize(traffic.num_sequences);
    for (auto& row : table_) {
      row.resize(num_blocks_);
      for (int32_t i = 0; i < num_blocks_; ++i) row[i] = i;
      std::shuffle(row.begin(), row.end(), random_);
      row.resize(traffic.blocks_each);
    }
  }

  int below(int limit) { return static_cast<int>(random_() % limit); }

  // At most `max_num_rows` different host rows, in any order and some of them twice. Some rows of
  // the selection are padding.
  Selection selection(int64_t max_num_rows) {
    Selection out = {{}, {}, table_};
    std::set<int64_t> host_rows;
    for (int i = 0; i < traffic_.num_query_rows; ++i) {
      const bool is_padding = below(8) == 0;
      const int32_t sequence = is_padding ? 0 : below(traffic_.num_sequences);
      std::vector<int32_t> row;
      for (int k = is_padding ? 0 : 1 + below(traffic_.top_k); k > 0; --k) {
        const int32_t position = draw_position();
        const int64_t wanted = host_row(sequence, position);
        const bool fits = static_cast<int64_t>(host_rows.size()) < max_num_rows;
        if (!fits && !host_rows.count(wanted)) continue;
        host_rows.insert(wanted);
        row.push_back(position);
      }
      row.resize(traffic_.top_k, -1);
      out.rows.push_back(row);
      out.sequences.push_back(sequence);
    }
    return out;
  }

  std::vector<int64_t> new_rows(int num) {
    std::set<int64_t> rows;
    for (int i = 0; i < num; ++i) rows.insert(below(num_blocks_ * kBlockTokens));
    std::vector<int64_t> drawn(rows.begin(), rows.end());
    std::shuffle(drawn.begin(), drawn.end(), random_);
    drawn.push_back(-1);  // padding
    return drawn;
  }

  std::vector<int32_t> blocks(int num) {
    std::vector<int32_t> all(num_blocks_);
    for (int32_t i = 0; i < num_blocks_; ++i) all[i] = i;
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(std::min(num, num_blocks_));
    return all;
  }

 private:
  int32_t draw_position() {
    const int32_t context = traffic_.blocks_each * kBlockTokens;
    return below(100) < traffic_.locality ? below(context / 8) : below(context);
  }
  int64_t host_row(int32_t sequence, int32_t position) const {
    return int64_t{table_[sequence][position / kBlockTokens]} * kBlockTokens +
           position % kBlockTokens;
  }

  Traffic traffic_;
  std::mt19937 random_;
  int32_t num_blocks_ = 0;
  std::vector<std::vector<int32_t>> table_;
};

inline void run_one_pass(Twins& twins, const Traffic& traffic, Draw& draw) {
  const int kind = draw.below(17);
  const RowCacheHead head = twins.head();
  const int32_t num_segments = head.num_live / traffic.shape.slots_per_segment;
  if (kind == 0 && num_segments < traffic.shape.max_num_segments) {
    twins.run("add", [](auto& cache) { cache.grow(); });
  } else if (kind <= 2 && num_segments > 1) {
    twins.run("release", [](auto& cache) { return cache.release(); });
  } else if (kind <= 4) {
    const auto blocks = draw.blocks(1 + draw.below(3));
    twins.run("invalidate", [&](auto& cache) { cache.invalidate(blocks); });
  } else if (kind <= 6) {
    const auto rows = draw.new_rows(1 + draw.below(traffic.top_k));
    const bool protect = kind == 6;
    twins.run("claim", [&](auto& cache) { return cache.claim(rows, protect); });
    // What a protected claim stamps counts as needed in the two passes that follow.
    if (!protect) return;
    twins.run("claim", [&](auto& cache) { return cache.claim({}); });
    twins.run("claim", [&](auto& cache) { return cache.claim({}); });
  } else if (kind == 16) {
    const int most = draw.below(2 * traffic.shape.ring_size);
    twins.run("refill", [&](auto& cache) { return cache.refill(most); });
  } else if (kind == 7) {
    twins.run("begin", [](auto& cache) { cache.begin_step(); });
  } else {
    const Selection selection = draw.selection(head.num_live);
    twins.run("resolve", [&](auto& cache) { return cache.resolve(selection); });
  }
}

inline void expect_equal_states(const Traffic& traffic, uint32_t seed) {
  const ScopedSchedule schedule(seed);
  Twins twins(traffic.shape);
  Draw draw(traffic, seed);
  twins.run("add", [](auto& cache) { cache.grow(); });
  if (traffic.first_tick != 0) {
    twins.run("set_tick", [&](auto& cache) { cache.set_tick(traffic.first_tick); });
  }
  for (int step = 0; step < traffic.num_steps; ++step) {
    run_one_pass(twins, traffic, draw);
    if (::testing::Test::HasFatalFailure()) {
      FAIL() << "seed " << seed << ", step " << step;
    }
  }
  twins.run("reset", [](auto& cache) { cache.reset(); });
}

}  // namespace dhs::test
