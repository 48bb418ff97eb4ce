// An index group's first layer with misses: a gather of the records and then attention, or
// attention that fetches its rows itself (the other layers then follow beside it, not timed here).
#include <random>

#include "attention_problem.h"

namespace dhs::bench {
namespace {

constexpr int32_t kBlockTokens = 64;
constexpr int64_t kNumTurns = 8;  // tables of orders that calls take turns with

struct Misses {
  std::vector<FetchOrder> orders;  // [kNumTurns, count]
  std::vector<int32_t> miss_of;    // [num_query_rows, top_k]
  int64_t count = 0;
};

// Every query row misses `per_row` entries, evenly spread; no two share one.
Misses make_misses(const AttentionProblem& problem, int64_t num_query_rows, int64_t per_row,
                   int64_t num_host_rows) {
  const int64_t top_k = problem.shape().top_k;
  std::mt19937_64 generator(41);
  Misses misses{.miss_of = std::vector<int32_t>(static_cast<size_t>(num_query_rows * top_k), -1),
                .count = num_query_rows * per_row};
  misses.orders.resize(static_cast<size_t>(kNumTurns * misses.count));
  for (int64_t order = 0; order < misses.count; ++order) {
    const int64_t at = order / per_row * top_k + order % per_row * (top_k / per_row);
    misses.miss_of[at] = static_cast<int32_t>(2 * order + 1);
    for (int64_t turn = 0; turn < kNumTurns; ++turn) {
      misses.orders[turn * misses.count + order] = {
          static_cast<int64_t>(generator() % static_cast<uint64_t>(num_host_rows)),
          problem.slots()[at]};
    }
  }
  return misses;
}

class FusedCase {
 public:
  FusedCase(const Bench& bench, const AttentionProblem& problem, const MemoryRange& host)
      : bench_(bench), problem_(problem), host_(host) {}

  void run(int64_t num_query_rows, int64_t per_row) {
    const int64_t block_bytes = kBlockTokens * problem_.shape().record_bytes();
    const int64_t num_host_rows = host_.bytes() / block_bytes * kBlockTokens;
    const Misses misses = make_misses(problem_, num_query_rows, per_row, num_host_rows);
    const MemoryRange orders = bench_.uploaded(misses.orders);
    const MemoryRange miss_of = bench_.uploaded(misses.miss_of);
    const MemoryRange count = bench_.uploaded(std::vector{static_cast<int32_t>(misses.count)});
    const HostRecords host{host_.data(), block_bytes, 0, problem_.shape().record_bytes(),
                           kBlockTokens};
    auto orders_of = [&](int64_t turn) {
      return view(orders.as<const FetchOrder>() + turn % kNumTurns * misses.count, misses.count);
    };
    const double apart_us = bench_.meter.median_us([&](int64_t turn) {
      launch_gather({.host = host,
                     .slots = problem_.records(),
                     .orders = orders_of(turn),
                     .num_orders = count.as<const int32_t>()},
                    bench_.stream());
      launch_sparse_attention(problem_.params(0, num_query_rows), bench_.stream());
    });
    const double fused_us = bench_.meter.median_us([&](int64_t turn) {
      SparseAttentionParams params = problem_.params(0, num_query_rows);
      params.fetch = {
          .miss_of = view(miss_of.as<const int32_t>(), num_query_rows, problem_.shape().top_k),
          .orders = orders_of(turn),
          .host = host};
      launch_sparse_attention(params, bench_.stream());
    });
    report("gather, attention", apart_us, num_query_rows, misses.count,
           problem_.shape().num_layers);
    report("fused attention", fused_us, num_query_rows, misses.count, 1);
  }

 private:
  void report(const std::string& how, double us, int64_t num_query_rows, int64_t num_misses,
              int64_t layers_fetched) const {
    Work work = problem_.work(num_query_rows);
    work.link_bytes =
        static_cast<double>(num_misses * layers_fetched * problem_.shape().row.row_bytes());
    bench_.report.add({.section = "fused",
                       .what = how + ", " + std::to_string(num_query_rows) + " query rows, " +
                               std::to_string(num_misses) + " misses",
                       .us = us,
                       .work = work});
  }

  const Bench& bench_;
  const AttentionProblem& problem_;
  const MemoryRange& host_;
};

}  // namespace

void bench_fused(const Bench& bench) {
  const RowLayout row{RowFormat::kFp8, 512, 64};
  constexpr int64_t kLayers = 4;
  const int64_t most_rows = bench.pick(16, 1);
  const int64_t top_k = bench.pick(2048, 40);
  // Slots enough that query rows share none: misses are written to them.
  const AttentionProblem problem(bench, {.row = row,
                                         .num_layers = kLayers,
                                         .num_slots = bench.pick(262'144, 64),
                                         .num_query_rows = most_rows,
                                         .num_heads = bench.pick(64, 16),
                                         .top_k = top_k});
  const MemoryRange host = bench.host_memory(bench.pick(int64_t{256} << 20, int64_t{1} << 18));
  FusedCase fused(bench, problem, host);
  for (int64_t num_query_rows : {1, 16}) {
    if (num_query_rows > most_rows) continue;
    for (int64_t per_row : {1, 16, 64, 256, 1024}) {
      if (per_row <= top_k) fused.run(num_query_rows, per_row);
    }
  }
}

}  // namespace dhs::bench
