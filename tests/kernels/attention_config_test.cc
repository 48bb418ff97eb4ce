// What sparse_attention chooses for a GPU, and when the store fuses retrieval: no GPU needed.
#include "kernels/sparse_attention/attention_config.h"

#include <gtest/gtest.h>

#include <string>

#include "dhisparse/base.h"

namespace dhs {
namespace {

constexpr RowFormat kFormats[] = {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8};

AttentionDesc decode_desc(int64_t num_query_rows) {
  return {.layout = {RowFormat::kFp8, 512, 64},
          .num_query_rows = num_query_rows,
          .num_heads = 64,
          .top_k = 2048,
          .num_sms = 132,
          .compute_capability = 90,
          .scratch_bytes = 64 << 20};
}

int64_t num_blocks(const AttentionDesc& desc, const AttentionConfig& config) {
  const int64_t runs = ceil_div(attention_segments(desc.top_k), config.segments_per_block);
  return desc.num_query_rows * ceil_div(desc.num_heads, config.heads_per_block) * runs;
}

TEST(AttentionConfig, fits_shared_memory_and_scratch_on_every_device) {
  for (const int32_t device : {80, 86, 89, 90, 100, 120}) {
    for (RowFormat format : kFormats) {
      for (const int64_t rows : {1, 7, 64, 4096}) {
        AttentionDesc desc = decode_desc(rows);
        desc.layout.format = format;
        desc.compute_capability = device;
        const AttentionConfig config = pick_attention_config(desc);
        const std::string what = std::to_string(device) + ", " + std::to_string(rows) + " rows";
        EXPECT_LE(config.shared_bytes, max_shared_bytes(device)) << what;
        EXPECT_GE(config.rows_per_launch, 1) << what;
        EXPECT_EQ(config.kernel != AttentionKernel::kPlain,
                  format == RowFormat::kBf16 ||
                      (format == RowFormat::kFp8 && device != 86 && device != 89 && device != 120))
            << what;
        if (config.segments_per_block == 8) continue;
        EXPECT_LE(config.rows_per_launch * 8 * 64 * (512 + 2) * 4 + 512, desc.scratch_bytes)
            << what;
      }
    }
  }
}

TEST(AttentionConfig, spreads_few_rows_over_the_device_and_gives_many_rows_whole_blocks) {
  AttentionDesc one = decode_desc(1);
  EXPECT_EQ(num_blocks(one, pick_attention_config(one)), 8);  // 64 heads take one block
  one.compute_capability = 100;
  EXPECT_GE(num_blocks(one, pick_attention_config(one)), 32);
  const AttentionDesc many = decode_desc(4096);
  const AttentionConfig config = pick_attention_config(many);
  EXPECT_EQ(config.heads_per_block, 64);
  EXPECT_EQ(config.segments_per_block, 8);  // no second kernel
  EXPECT_EQ(config.rows_per_launch, 4096);
}

void expect_kernel(AttentionKernel kernel, int32_t device, int32_t heads) {
  for (RowFormat format : {RowFormat::kBf16, RowFormat::kFp8}) {
    for (const int64_t rows : {1, 2, 8, 100, 4096}) {
      AttentionDesc desc = decode_desc(rows);
      desc.layout.format = format;
      desc.compute_capability = device;
      desc.num_heads = heads;
      EXPECT_EQ(pick_attention_config(desc).kernel, kernel)
          << device << ", " << heads << " heads, " << rows << " rows";
    }
  }
}

// Kernels round in different orders: the choice must not depend on a row's company.
TEST(AttentionConfig, takes_one_kernel_for_any_number_of_query_rows) {
  for (const int32_t device : {80, 90, 100}) {
    for (const int32_t heads : {8, 63, 64, 128}) {
      const bool is_warpgroup = device == 90 && heads >= 64;
      expect_kernel(is_warpgroup ? AttentionKernel::kWarpgroup : AttentionKernel::kMma, device,
                    heads);
    }
  }
}

TEST(AttentionConfig, leaves_rows_that_two_warpgroups_cannot_share_to_others) {
  AttentionDesc desc = decode_desc(64);
  desc.layout = {RowFormat::kBf16, 256, 64};
  EXPECT_EQ(pick_attention_kernel(desc), AttentionKernel::kMma);
  desc.layout = {RowFormat::kBf16, 512, 256};  // too long for shared memory
  EXPECT_EQ(pick_attention_kernel(desc), AttentionKernel::kMma);
  desc.layout = {RowFormat::kF32, 512, 64};
  EXPECT_EQ(pick_attention_kernel(desc), AttentionKernel::kPlain);
}

TEST(AttentionConfig, needs_no_scratch_where_there_is_none) {
  AttentionDesc desc = decode_desc(1);
  desc.scratch_bytes = 0;
  EXPECT_EQ(pick_attention_config(desc).segments_per_block, 8);
}

TEST(AttentionConfig, takes_no_more_heads_per_block_than_there_are) {
  AttentionDesc desc = decode_desc(4096);
  for (const int32_t heads : {1, 16, 17, 32, 33, 128}) {
    desc.num_heads = heads;
    EXPECT_EQ(pick_attention_config(desc).heads_per_block, heads <= 16   ? 16
                                                           : heads <= 32 ? 32
                                                                         : 64);
  }
}

TEST(AttentionConfig, fuses_few_misses_and_gathers_many) {
  FusedChoice choice{.num_query_rows = 1,
                     .expected_misses = 8,
                     .num_heads = 64,
                     .top_k = 2048,
                     .num_layers = 4,
                     .record_bytes = 4 * 656,
                     .num_sms = 132,
                     .compute_capability = 100};
  EXPECT_TRUE(prefer_fused(choice));
  choice.num_layers = 1;  // four blocks of heads fetch each row, and a gather has no more to fetch
  choice.record_bytes = 656;
  choice.expected_misses = 2000;
  EXPECT_FALSE(prefer_fused(choice));
}

}  // namespace
}  // namespace dhs
