#include "kernels/append/append.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/test_memory.h"

namespace dhs {
namespace {

using Bytes = std::vector<std::byte>;
using test::DeviceArray;
using test::HostArray;

constexpr RowFormat kFormats[] = {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8};
constexpr int32_t kBlockTokens = 4;
constexpr int64_t kNumBlocks = 6;
constexpr int64_t kNumHostRows = kNumBlocks * kBlockTokens;
constexpr int32_t kItemsPerChunk = 3;

// Ordinary values, with one of each special kind here and there.
std::vector<float> make_values(int64_t count, unsigned seed) {
  const float special[] = {std::numeric_limits<float>::infinity(),  std::nanf(""), 1e-40f, -0.0f,
                           -std::numeric_limits<float>::infinity(), 448.0f,        -3e38f};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = random() % 61 == 0 ? special[random() % std::size(special)] : normal(random);
  }
  return values;
}

// ---- Rows ---------------------------------------------------------------------------------------

struct RowCase {
  RowLayout layout;
  std::vector<int64_t> host_rows;
  int64_t num_layers = 3;
  int64_t layer = 1;

  int64_t record_bytes() const { return num_layers * layout.row_bytes(); }
  HostRecords host(std::byte* base) const {
    return {base, kBlockTokens * record_bytes() + 48, 16, record_bytes(), kBlockTokens};
  }
};

// Host rows 0, 3, 6, ... are resident, in falling order of slot.
std::vector<int32_t> make_slots() {
  std::vector<int32_t> slot_of(kNumHostRows, kAbsent);
  for (size_t row = 0; row < slot_of.size(); row += 3) {
    slot_of[row] = static_cast<int32_t>((kNumHostRows - static_cast<int64_t>(row)) / 3 - 1);
  }
  return slot_of;
}

void expect_both_tiers_get(const RowCase& c) {
  const auto num_tokens = static_cast<int64_t>(c.host_rows.size());
  const int64_t latent_stride = c.layout.latent_dim + 1, rope_stride = c.layout.rope_dim + 3;
  const std::vector<float> latents = make_values(num_tokens * latent_stride, 1);
  const std::vector<float> ropes = make_values(num_tokens * rope_stride, 2);
  const std::vector<int32_t> slot_of = make_slots();
  const int64_t chunk_bytes = kItemsPerChunk * c.record_bytes() + 32;
  const std::vector<int64_t> offsets = {2 * chunk_bytes, 0, chunk_bytes};
  Bytes arena(static_cast<size_t>(kNumBlocks * c.host(nullptr).block_bytes), std::byte{0xee});
  Bytes pool(static_cast<size_t>(3 * chunk_bytes), std::byte{0xdd});

  const HostArray host(arena);
  const DeviceArray<std::byte> device(pool);
  const DeviceArray<int64_t> device_offsets(offsets), host_rows(c.host_rows);
  const DeviceArray<int32_t> slots(slot_of);
  const DeviceArray<float> device_latents(latents), device_ropes(ropes);
  launch_append_rows(
      {.layout = c.layout,
       .host = c.host(host.data()),
       .slots = {device.data(), device_offsets.data(), kItemsPerChunk, c.record_bytes()},
       .slot_of = view<const int32_t>(slots.data(), kNumHostRows),
       .row_offset = c.layer * c.layout.row_bytes(),
       .host_rows = view<const int64_t>(host_rows.data(), num_tokens),
       .latents = {device_latents.data(), {num_tokens, c.layout.latent_dim}, {latent_stride, 1}},
       .ropes = {device_ropes.data(), {num_tokens, c.layout.rope_dim}, {rope_stride, 1}}},
      test::stream());

  const ChunkedItems expected_slots{pool.data(), offsets.data(), kItemsPerChunk, c.record_bytes()};
  for (int64_t i = 0; i < num_tokens; ++i) {
    const int64_t host_row = c.host_rows[static_cast<size_t>(i)];
    if (host_row < 0) continue;
    Bytes row(static_cast<size_t>(c.layout.row_bytes()));
    encode_row(c.layout, &latents[static_cast<size_t>(i * latent_stride)],
               &ropes[static_cast<size_t>(i * rope_stride)], row.data());
    const int64_t row_offset = c.layer * c.layout.row_bytes();
    std::copy(row.begin(), row.end(), c.host(arena.data()).at(host_row) + row_offset);
    const int32_t slot = slot_of[static_cast<size_t>(host_row)];
    if (slot == kAbsent) continue;
    std::copy(row.begin(), row.end(), expected_slots.at(slot) + row_offset);
  }
  EXPECT_TRUE(device.download() == pool);
  EXPECT_TRUE(host.bytes() == arena);
}

TEST(AppendRows, puts_the_encoded_row_into_the_host_block_and_the_slot_and_nowhere_else) {
  for (RowFormat format : kFormats) {
    for (const RowLayout& layout : {RowLayout{format, 512, 64}, RowLayout{format, 64, 16},
                                    RowLayout{format, 136, 8}, RowLayout{format, 5, 2}}) {
      SCOPED_TRACE(testing::Message() << int(format) << ", " << layout.latent_dim);
      expect_both_tiers_get({layout, {0, 1, 2, 3, 6, 23, 12}});
    }
  }
}

TEST(AppendRows, takes_a_row_without_rope) {
  for (RowFormat format : kFormats) expect_both_tiers_get({RowLayout{format, 128, 0}, {9, 10}});
}

TEST(AppendRows, writes_the_first_and_the_last_layer_of_a_record) {
  for (int64_t layer : {0, 2}) {
    expect_both_tiers_get({RowLayout{RowFormat::kFp8, 128, 16}, {3, 4}, 3, layer});
  }
}

TEST(AppendRows, writes_nothing_for_padding) {
  for (RowFormat format : kFormats) {
    expect_both_tiers_get({RowLayout{format, 128, 16}, {3, -1, 21, -1, -1}});
    expect_both_tiers_get({RowLayout{format, 128, 16}, {-1}});
  }
}

TEST(AppendRows, takes_no_tokens_as_nothing_to_do) {
  expect_both_tiers_get({RowLayout{RowFormat::kFp8, 128, 16}, {}});
}

// ---- Index keys ---------------------------------------------------------------------------------

struct KeyCase {
  IndexKeyLayout layout;
  std::vector<int64_t> host_rows;
};

// Item of a token: its block's number, from the back.
std::vector<int32_t> items_of(const std::vector<int64_t>& host_rows) {
  std::vector<int32_t> items;
  for (int64_t row : host_rows) {
    items.push_back(row < 0 ? -1 : static_cast<int32_t>(kNumBlocks - 1 - row / kBlockTokens));
  }
  return items;
}

void expect_both_pages_get(const KeyCase& c) {
  const auto num_tokens = static_cast<int64_t>(c.host_rows.size());
  const int64_t page_bytes = c.layout.page_bytes(), block_bytes = page_bytes + 80,
                stride = c.layout.index_dim + 1, item_bytes = page_bytes + 32;
  const std::vector<float> keys = make_values(num_tokens * stride, 3);
  const std::vector<int32_t> items = items_of(c.host_rows);
  const int64_t chunk_bytes = kItemsPerChunk * item_bytes + 16;
  const std::vector<int64_t> offsets = {chunk_bytes, 0};
  Bytes arena(static_cast<size_t>(kNumBlocks * block_bytes), std::byte{0xee});
  Bytes pool(static_cast<size_t>(2 * chunk_bytes), std::byte{0xdd});

  const HostArray host(arena);
  const DeviceArray<std::byte> device(pool);
  const DeviceArray<int64_t> device_offsets(offsets), host_rows(c.host_rows);
  const DeviceArray<int32_t> device_items(items);
  const DeviceArray<float> device_keys(keys);
  launch_append_index_keys(
      {.layout = c.layout,
       .host_base = host.data(),
       .host_block_bytes = block_bytes,
       .host_page_offset = 48,
       .pages = {device.data(), device_offsets.data(), kItemsPerChunk, item_bytes},
       .page_offset = 16,
       .host_rows = view<const int64_t>(host_rows.data(), num_tokens),
       .item_of_token = view<const int32_t>(device_items.data(), num_tokens),
       .keys = {device_keys.data(), {num_tokens, c.layout.index_dim}, {stride, 1}}},
      test::stream());

  const ChunkedItems pages{pool.data(), offsets.data(), kItemsPerChunk, item_bytes};
  for (size_t i = 0; i < c.host_rows.size(); ++i) {
    const int64_t host_row = c.host_rows[i];
    if (host_row < 0) continue;
    const auto offset = static_cast<int>(host_row % kBlockTokens);
    const float* key = &keys[i * static_cast<size_t>(stride)];
    encode_index_key(c.layout, key, offset,
                     arena.data() + host_row / kBlockTokens * block_bytes + 48);
    encode_index_key(c.layout, key, offset, pages.at(items[i]) + 16);
  }
  EXPECT_TRUE(device.download() == pool);
  EXPECT_TRUE(host.bytes() == arena);
}

TEST(AppendIndexKeys, writes_key_and_scale_into_both_pages_and_nowhere_else) {
  for (RowFormat format : kFormats) {
    for (int32_t index_dim : {128, 256, 40, 4}) {
      SCOPED_TRACE(testing::Message() << int(format) << ", " << index_dim);
      expect_both_pages_get({{format, index_dim, kBlockTokens}, {0, 1, 2, 3, 4, 11, 23}});
    }
  }
}

TEST(AppendIndexKeys, writes_nothing_for_padding) {
  for (RowFormat format : kFormats) {
    expect_both_pages_get({{format, 128, kBlockTokens}, {-1, 7, -1, -1, -1, 8}});
    expect_both_pages_get({{format, 128, kBlockTokens}, {-1}});
  }
}

TEST(AppendIndexKeys, takes_no_tokens_as_nothing_to_do) {
  expect_both_pages_get({{RowFormat::kFp8, 128, kBlockTokens}, {}});
}

// ---- Draft keys and values ----------------------------------------------------------------------

struct DraftCase {
  DraftPageLayout layout;
  std::vector<int64_t> host_rows;
  std::vector<int32_t> pages;  // of the tokens
};

// Encoded token by token into the host block and, where there is one, the page.
void append_expected(const DraftCase& c, const std::vector<float>& kv, const ChunkedItems& pages,
                     Bytes& arena) {
  const DraftPageLayout& layout = c.layout;
  const int64_t block_bytes = layout.page_bytes() + 112, width = layout.width();
  for (size_t i = 0; i < c.host_rows.size(); ++i) {
    if (c.host_rows[i] < 0) continue;
    std::byte* host = arena.data() + c.host_rows[i] / layout.page_tokens * block_bytes + 48;
    const int64_t token = c.host_rows[i] % layout.page_tokens;
    for (int64_t part = 0; part < 2 * layout.num_layers; ++part) {
      const float* values =
          &kv[i * static_cast<size_t>(2 * layout.num_layers * width + 3) + part * width];
      Bytes stored(static_cast<size_t>(layout.token_bytes()));
      if (layout.dtype == DType::kF32) {
        std::memcpy(stored.data(), values, stored.size());
      } else {
        convert_to_bf16(values, width, reinterpret_cast<Bf16*>(stored.data()));
      }
      const int64_t at =
          ((part / 2 * 2 + part % 2) * layout.page_tokens + token) * layout.token_bytes();
      std::copy(stored.begin(), stored.end(), host + at);
      if (c.pages[i] < 0) continue;
      std::copy(stored.begin(), stored.end(), pages.at(c.pages[i]) + at);
    }
  }
}

void expect_both_draft_pages_get(const DraftCase& c) {
  const auto num_tokens = static_cast<int64_t>(c.host_rows.size());
  const int64_t page_bytes = c.layout.page_bytes(), block_bytes = page_bytes + 112,
                item_bytes = page_bytes + 32, chunk_bytes = kItemsPerChunk * item_bytes + 16,
                columns = c.layout.num_layers * 2 * c.layout.width(), stride = columns + 3;
  const std::vector<float> kv = make_values(num_tokens * stride, 4);
  const std::vector<int64_t> offsets = {chunk_bytes, 0};
  Bytes arena(static_cast<size_t>(kNumBlocks * block_bytes), std::byte{0xee});
  Bytes pool(static_cast<size_t>(2 * chunk_bytes), std::byte{0xdd});

  const HostArray host(arena);
  const DeviceArray<std::byte> device(pool);
  const DeviceArray<int64_t> device_offsets(offsets), host_rows(c.host_rows);
  const DeviceArray<int32_t> pages(c.pages);
  const DeviceArray<float> device_kv(kv);
  launch_append_draft_kv(
      {.layout = c.layout,
       .host_base = host.data(),
       .host_block_bytes = block_bytes,
       .host_page_offset = 48,
       .pages = {device.data(), device_offsets.data(), kItemsPerChunk, item_bytes},
       .host_rows = view<const int64_t>(host_rows.data(), num_tokens),
       .page_of_token = view<const int32_t>(pages.data(), num_tokens),
       .kv = {device_kv.data(), {num_tokens, columns}, {stride, 1}}},
      test::stream());

  append_expected(c, kv, {pool.data(), offsets.data(), kItemsPerChunk, item_bytes}, arena);
  EXPECT_TRUE(device.download() == pool);
  EXPECT_TRUE(host.bytes() == arena);
}

TEST(AppendDraftKv, writes_all_layers_into_both_pages_and_nowhere_else) {
  for (DType dtype : {DType::kBf16, DType::kF32}) {
    for (const DraftPageLayout& layout :
         {DraftPageLayout{dtype, 1, 1, 8, kBlockTokens}, DraftPageLayout{dtype, 3, 2, 24, 4},
          DraftPageLayout{dtype, 2, 8, 128, kBlockTokens}}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << layout.width());
      expect_both_draft_pages_get({layout, {0, 1, 2, 3, 6, 23, 12}, {5, 5, 5, 5, 0, 2, 3}});
    }
  }
}

TEST(AppendDraftKv, writes_to_the_host_alone_where_the_device_has_no_page) {
  expect_both_draft_pages_get({{DType::kBf16, 2, 2, 16, kBlockTokens}, {3, 4, 9}, {-1, 2, -1}});
}

TEST(AppendDraftKv, writes_nothing_for_padding) {
  expect_both_draft_pages_get({{DType::kBf16, 2, 2, 16, kBlockTokens}, {-1, 7, -1}, {-1, 1, 0}});
}

TEST(AppendDraftKv, takes_no_tokens_as_nothing_to_do) {
  expect_both_draft_pages_get({{DType::kBf16, 2, 2, 16, kBlockTokens}, {}, {}});
}

}  // namespace
}  // namespace dhs
