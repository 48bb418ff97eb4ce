#include "dhisparse/device.h"
#include "kernels/append/append.h"
#include "kernels/cuda/dispatch.h"

namespace dhs {
namespace {

constexpr int64_t kTokensPerPiece = 64;

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

}  // namespace

DHS_LAUNCHER(launch_append_rows, AppendRowsParams)
DHS_LAUNCHER(launch_append_index_keys, AppendIndexKeysParams)

}  // namespace dhs
