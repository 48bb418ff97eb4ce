#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/append/append.h"
#include "kernels/cuda/dispatch.h"

namespace dhs {
namespace {

constexpr int64_t kTokensPerPiece = 64;
constexpr int64_t kDraftTokensPerPiece = 16;  // of all layers

void launch_append_rows_cpu(const AppendRowsParams& params) {
  const int64_t row_bytes = params.layout.row_bytes();
  parallel_for(params.host_rows.sizes[0], kTokensPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t host_row = params.host_rows(i);
      if (host_row < 0) continue;
      std::byte* host = params.host.at(host_row) + params.row_offset;
      encode_row(params.layout, params.latents.row(i), params.ropes.row(i), host);
      const int32_t slot = params.slot_of(host_row);
      if (slot == kAbsent) continue;
      std::memcpy(params.slots.at(slot) + params.row_offset, host, static_cast<size_t>(row_bytes));
    }
  });
}

void launch_append_index_keys_cpu(const AppendIndexKeysParams& params) {
  const int64_t block_tokens = params.layout.block_tokens;
  // One piece: tokens of one block share its page, and two threads must not write one cache line.
  for (int64_t i = 0; i < params.host_rows.sizes[0]; ++i) {
    if (params.host_rows(i) < 0) continue;
    const int64_t block = params.host_rows(i) / block_tokens;
    const auto offset = static_cast<int>(params.host_rows(i) % block_tokens);
    const float* key = params.keys.row(i);
    encode_index_key(params.layout, key, offset,
                     params.host_base + block * params.host_block_bytes + params.host_page_offset);
    encode_index_key(params.layout, key, offset,
                     params.pages.at(params.item_of_token(i)) + params.page_offset);
  }
}

void store_draft_values(DType dtype, const float* values, int64_t count, std::byte* target) {
  if (dtype == DType::kF32) {
    std::memcpy(target, values, static_cast<size_t>(count) * sizeof(float));
  } else {
    convert_to_bf16(values, count, reinterpret_cast<Bf16*>(target));
  }
}

void append_draft_token(const AppendDraftKvParams& params, int64_t token) {
  const DraftPageLayout& layout = params.layout;
  const int64_t host_row = params.host_rows(token);
  if (host_row < 0) return;
  const int64_t offset = host_row % layout.page_tokens;
  std::byte* host_page = params.host_base +
                         host_row / layout.page_tokens * params.host_block_bytes +
                         params.host_page_offset;
  const int32_t page = params.page_of_token(token);
  for (int32_t i = 0; i < 2 * layout.num_layers; ++i) {
    const int64_t at = layout.offset(i / 2, i % 2 == 1, offset);
    store_draft_values(layout.dtype, params.kv.row(token) + i * layout.width(), layout.width(),
                       host_page + at);
    if (page == kAbsent) continue;
    std::memcpy(params.pages.at(page) + at, host_page + at,
                static_cast<size_t>(layout.token_bytes()));
  }
}

void launch_append_draft_kv_cpu(const AppendDraftKvParams& params) {
  const DraftPageLayout& layout = params.layout;
  DHS_CHECK(layout.dtype == DType::kBf16 || layout.dtype == DType::kF32, "draft pages of ",
            dtype_name(layout.dtype));
  DHS_CHECK(params.kv.sizes[1] == layout.num_layers * 2 * layout.width(),
            "draft values: ", params.kv.sizes[1],
            ", of a token: ", layout.num_layers * 2 * layout.width());
  parallel_for(params.host_rows.sizes[0], kDraftTokensPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) append_draft_token(params, token);
  });
}

}  // namespace

DHS_LAUNCHER(launch_append_rows, AppendRowsParams)
DHS_LAUNCHER(launch_append_index_keys, AppendIndexKeysParams)
DHS_LAUNCHER(launch_append_draft_kv, AppendDraftKvParams)

}  // namespace dhs
