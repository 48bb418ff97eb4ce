// Lightning indexer: scores of each query row against every key of its sequence.
#include "kernels/index_score/index_score.h"
#include "meter.h"

namespace dhs::bench {
namespace {

constexpr int32_t kBlockTokens = 64;
constexpr int64_t kNumHeads = 32;

struct Shape {
  IndexKeyLayout layout;
  int64_t num_keys = 0;  // of every sequence
  int64_t num_sequences = 0;
  int64_t num_blocks() const { return ceil_div(num_keys, kBlockTokens); }
};

struct Memory {
  Memory(const Bench& bench, const Shape& shape)
      : pages(bench.repeated(random_pages(shape.layout, bench.pick(256, 2)),
                             shape.num_sequences * shape.num_blocks() * shape.layout.page_bytes())),
        chunk_offset(bench.uploaded(std::vector<int64_t>{0})),
        items(bench.uploaded(rising(shape.num_sequences * shape.num_blocks()))),
        sequences(bench.uploaded(rising(shape.num_sequences))),
        visible(bench.uploaded(std::vector<int32_t>(static_cast<size_t>(shape.num_sequences),
                                                    static_cast<int32_t>(shape.num_keys)))),
        q(bench.uploaded(
            normal_floats(shape.num_sequences * kNumHeads * shape.layout.index_dim, 11))),
        head_weights(bench.uploaded(normal_floats(shape.num_sequences * kNumHeads, 12))),
        scores(bench.device_memory(shape.num_sequences * shape.num_keys * 4)) {}
  MemoryRange pages, chunk_offset, items, sequences, visible, q, head_weights, scores;
};

// Calls take turns with the sequences, so that keys come from device memory.
void bench_batch(const Bench& bench, const Shape& shape, const Memory& memory, int64_t batch) {
  const int64_t index_dim = shape.layout.index_dim;
  const int64_t num_items = shape.num_sequences * shape.num_blocks();
  const double us = bench.meter.median_us([&](int64_t turn) {
    const int64_t first = turn * batch % shape.num_sequences;
    launch_index_score(
        {.layout = shape.layout,
         .pages = {memory.pages.data(), memory.chunk_offset.as<const int64_t>(),
                   static_cast<int32_t>(num_items), shape.layout.page_bytes()},
         .item_table =
             view(memory.items.as<const int32_t>(), shape.num_sequences, shape.num_blocks()),
         .q = view(memory.q.as<const float>(), batch, kNumHeads, index_dim),
         .head_weights = view(memory.head_weights.as<const float>(), batch, kNumHeads),
         .sequence_of_row = view(memory.sequences.as<const int32_t>() + first, batch),
         .visible = view(memory.visible.as<const int32_t>(), batch),
         .softmax_scale = 0.0156f,
         .scores = view(memory.scores.as<float>(), batch, shape.num_keys)},
        bench.stream());
  });
  const bool is_fp8 = shape.layout.format == RowFormat::kFp8;
  const auto keys = static_cast<double>(batch * shape.num_keys);
  const double key_bytes = static_cast<double>(shape.layout.key_bytes()) + (is_fp8 ? 4 : 0);
  bench.report.add({.section = "index",
                    .what = std::string(is_fp8 ? "fp8" : "bf16") + ", " + std::to_string(batch) +
                            " sequences x " + std::to_string(shape.num_keys) +
                            " keys, 32 heads x 128",
                    .us = us,
                    .work = {.memory_bytes = keys * (key_bytes + 4),
                             .bf16_flops = 2 * keys * static_cast<double>(kNumHeads * index_dim)}});
}

}  // namespace

void bench_index_score(const Bench& bench) {
  for (RowFormat format : {RowFormat::kFp8, RowFormat::kBf16}) {
    const Shape shape{{format, 128, kBlockTokens}, bench.pick(100'000, 130), bench.pick(64, 2)};
    const Memory memory(bench, shape);
    for (int64_t batch : {1, 16, 64}) {
      if (batch <= shape.num_sequences) bench_batch(bench, shape, memory, batch);
    }
  }
}

}  // namespace dhs::bench
