// Attention over selected rows, all of them resident: as the op runs it, and with mma.sync where it
// would take wgmma.
#include "attention_problem.h"
#include "kernels/sparse_attention/attention_config.h"

namespace dhs::bench {
namespace {

AttentionDesc desc_of(const SparseAttentionParams& params, const Stream& stream) {
  return {.layout = params.layout,
          .num_query_rows = params.out.sizes[0],
          .num_heads = static_cast<int32_t>(params.out.sizes[1]),
          .top_k = static_cast<int32_t>(params.slots.sizes[1]),
          .num_sms = stream.num_sms,
          .compute_capability = stream.compute_capability,
          .scratch_bytes = stream.scratch_bytes};
}

const char* name_of(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::kPlain:
      return "f32";
    case AttentionKernel::kMma:
      return "mma.sync";
    case AttentionKernel::kWarpgroup:
      return "wgmma";
  }
  return "";
}

void bench_calls(const Bench& bench, const AttentionProblem& problem, int64_t count,
                 AttentionKernel kernel) {
  const int64_t available = problem.shape().num_query_rows;
  const AttentionDesc desc = desc_of(problem.params(0, count), bench.stream());
  const AttentionConfig config = pick_attention_config(desc, kernel);
  const double us = bench.meter.median_us([&](int64_t turn) {
    launch_sparse_attention_as(config, problem.params(turn * count % available, count),
                               bench.stream());
  });
  const bool is_fp8 = problem.shape().row.format == RowFormat::kFp8;
  bench.report.add({.section = "attention",
                    .what = std::string(is_fp8 ? "fp8" : "bf16") + ", " + std::to_string(count) +
                            " query rows x " + std::to_string(problem.shape().top_k) + ", " +
                            std::to_string(problem.shape().num_heads) + " heads, " +
                            name_of(kernel),
                    .us = us,
                    .work = problem.work(count)});
}

}  // namespace

void bench_attention(const Bench& bench) {
  for (RowFormat format : {RowFormat::kFp8, RowFormat::kBf16}) {
    const RowLayout row{format, 512, 64};
    const AttentionProblem problem(bench,
                                   {.row = row,
                                    .num_slots = bench.pick(kBeyondL2Bytes / row.row_bytes(), 64),
                                    .num_query_rows = bench.pick(256, 2),
                                    .num_heads = bench.pick(64, 16),
                                    .top_k = bench.pick(2048, 40)});
    const AttentionKernel kernel =
        pick_attention_kernel(desc_of(problem.params(0, 1), bench.stream()));
    for (int64_t count : {1, 16, 64, 256}) {
      if (count > problem.shape().num_query_rows) continue;
      bench_calls(bench, problem, count, kernel);
      if (kernel == AttentionKernel::kMma) continue;
      bench_calls(bench, problem, count, AttentionKernel::kMma);
    }
  }
}

}  // namespace dhs::bench
