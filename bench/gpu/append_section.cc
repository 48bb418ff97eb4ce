// New rows and index keys through to both tiers.
#include "kernels/append/append.h"
#include "meter.h"

namespace dhs::bench {
namespace {

constexpr int32_t kBlockTokens = 64;

struct Tokens {  // token i is host row i, resident in slot i
  Tokens(const Bench& bench, int64_t count, int64_t width)
      : host_rows(bench.uploaded([&] {
          const auto numbers = rising(count);
          return std::vector<int64_t>(numbers.begin(), numbers.end());
        }())),
        slot_of(bench.uploaded(rising(count))),
        values(bench.uploaded(normal_floats(count * width, 5))),
        chunk_offset(bench.uploaded(std::vector<int64_t>{0})) {}
  MemoryRange host_rows, slot_of, values, chunk_offset;
};

void report(const Bench& bench, const std::string& what, double us, int64_t bytes) {
  bench.report.add({.section = "append",
                    .what = what,
                    .us = us,
                    .work = {.memory_bytes = static_cast<double>(bytes),
                             .link_bytes = static_cast<double>(bytes)},
                    .note = "link: written to the host"});
}

void bench_rows(const Bench& bench, int64_t count) {
  const RowLayout layout{RowFormat::kFp8, 512, 64};
  constexpr int64_t kLayers = 4;
  const int64_t record_bytes = kLayers * layout.row_bytes();
  const int64_t num_rows = round_up(count, kBlockTokens);
  const MemoryRange host = bench.host_memory(num_rows * record_bytes);
  const MemoryRange slots = bench.device_memory(num_rows * record_bytes);
  const Tokens tokens(bench, count, layout.latent_dim + layout.rope_dim);
  const float* ropes = tokens.values.as<const float>() + count * layout.latent_dim;
  const double us = bench.meter.median_us([&](int64_t turn) {
    launch_append_rows(
        {.layout = layout,
         .host = {host.data(), kBlockTokens * record_bytes, 0, record_bytes, kBlockTokens},
         .slots = {slots.data(), tokens.chunk_offset.as<const int64_t>(),
                   static_cast<int32_t>(num_rows), record_bytes},
         .slot_of = view(tokens.slot_of.as<const int32_t>(), count),
         .row_offset = turn % kLayers * layout.row_bytes(),
         .host_rows = view(tokens.host_rows.as<const int64_t>(), count),
         .latents = view(tokens.values.as<const float>(), count, int64_t{layout.latent_dim}),
         .ropes = view(ropes, count, int64_t{layout.rope_dim})},
        bench.stream());
  });
  report(bench, std::to_string(count) + " rows, fp8 512+64", us, count * layout.row_bytes());
}

void bench_index_keys(const Bench& bench, int64_t count) {
  const IndexKeyLayout layout{RowFormat::kFp8, 128, kBlockTokens};
  const int64_t num_pages = ceil_div(count, kBlockTokens);
  const MemoryRange host = bench.host_memory(num_pages * layout.page_bytes());
  const MemoryRange pages = bench.device_memory(num_pages * layout.page_bytes());
  const Tokens tokens(bench, count, layout.index_dim);
  std::vector<int32_t> items;
  for (int64_t i = 0; i < count; ++i) items.push_back(static_cast<int32_t>(i / kBlockTokens));
  const MemoryRange item_of_token = bench.uploaded(items);
  const double us = bench.meter.median_us([&](int64_t) {
    launch_append_index_keys(
        {.layout = layout,
         .host_base = host.data(),
         .host_block_bytes = layout.page_bytes(),
         .pages = {pages.data(), tokens.chunk_offset.as<const int64_t>(),
                   static_cast<int32_t>(num_pages), layout.page_bytes()},
         .host_rows = view(tokens.host_rows.as<const int64_t>(), count),
         .item_of_token = view(item_of_token.as<const int32_t>(), count),
         .keys = view(tokens.values.as<const float>(), count, int64_t{layout.index_dim})},
        bench.stream());
  });
  report(bench, std::to_string(count) + " index keys, fp8 128", us,
         count * (layout.key_bytes() + 4));
}

}  // namespace

void bench_append(const Bench& bench) {
  for (int64_t count : {1, 16, 64, 2048}) {
    if (bench.is_tiny && count > 16) continue;
    bench_rows(bench, count);
    bench_index_keys(bench, count);
  }
}

}  // namespace dhs::bench
