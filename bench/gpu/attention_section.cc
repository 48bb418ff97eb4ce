// Attention over selected rows, all of them resident.
#include "attention_problem.h"

namespace dhs::bench {

void bench_attention(const Bench& bench) {
  for (RowFormat format : {RowFormat::kFp8, RowFormat::kBf16}) {
    const RowLayout row{format, 512, 64};
    const AttentionProblem problem(bench,
                                   {.row = row,
                                    .num_slots = bench.pick(kBeyondL2Bytes / row.row_bytes(), 64),
                                    .num_query_rows = bench.pick(256, 2),
                                    .num_heads = bench.pick(64, 16),
                                    .top_k = bench.pick(2048, 40)});
    for (int64_t count : {1, 16, 64, 256}) {
      const int64_t available = problem.shape().num_query_rows;
      if (count > available) continue;
      const double us = bench.meter.median_us([&](int64_t turn) {
        launch_sparse_attention(problem.params(turn * count % available, count), bench.stream());
      });
      bench.report.add({.section = "attention",
                        .what = std::string(format == RowFormat::kFp8 ? "fp8" : "bf16") + ", " +
                                std::to_string(count) + " query rows x " +
                                std::to_string(problem.shape().top_k) + ", " +
                                std::to_string(problem.shape().num_heads) + " heads",
                        .us = us,
                        .work = problem.work(count)});
    }
  }
}

}  // namespace dhs::bench
