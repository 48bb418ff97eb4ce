// append: write a step's new rows, index keys and draft keys and values through to both tiers.
//
// For every new token: its row of one layer goes to the token's record in the host block and, if
// the record is resident, to its slot; its index key goes to the host block's page and to the
// device's. After a launch both tiers hold the same bytes. Tokens are distinct, so writes never
// overlap. A token whose host row is negative is padding: nothing of it is written. Rows and pages
// start at multiples of 16 bytes. Bytes written: num_tokens * (1 or 2) * row_bytes, num_tokens * 2
// * key_bytes.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"
#include "kernels/draft_attention/draft_attention.h"
#include "kernels/gather/gather.h"
#include "kernels/kv_row/kv_row.h"

namespace dhs {

struct AppendRowsParams {
  RowLayout layout;
  HostRecords host;
  ChunkedItems slots;
  TensorView<const int32_t, 1> slot_of;    // [num_host_rows]
  int64_t row_offset = 0;                  // of the layer within a record
  TensorView<const int64_t, 1> host_rows;  // [num_tokens], negative: padding
  TensorView<const float, 2> latents;      // [num_tokens, latent_dim], normalised
  TensorView<const float, 2> ropes;        // [num_tokens, rope_dim], rotated
};
void launch_append_rows(const AppendRowsParams& params, Stream stream);

struct AppendIndexKeysParams {
  IndexKeyLayout layout;
  std::byte* host_base = nullptr;
  int64_t host_block_bytes = 0;
  int64_t host_page_offset = 0;  // of the group's page within a host block
  ChunkedItems pages;
  int64_t page_offset = 0;                     // of the group's page within an index item
  TensorView<const int64_t, 1> host_rows;      // [num_tokens], negative: padding
  TensorView<const int32_t, 1> item_of_token;  // [num_tokens] index items
  TensorView<const float, 2> keys;             // [num_tokens, index_dim]
};
void launch_append_index_keys(const AppendIndexKeysParams& params, Stream stream);

struct AppendDraftKvParams {
  DraftPageLayout layout;  // token_bytes() is a multiple of 16
  std::byte* host_base = nullptr;
  int64_t host_block_bytes = 0;
  int64_t host_page_offset = 0;  // of the draft page within a host block
  ChunkedItems pages;
  TensorView<const int64_t, 1> host_rows;      // [num_tokens], negative: padding
  TensorView<const int32_t, 1> page_of_token;  // [num_tokens], -1: written to the host block only
  TensorView<const float, 2> kv;  // [num_tokens, num_layers * 2 * width]: per layer K, then V
};
void launch_append_draft_kv(const AppendDraftKvParams& params, Stream stream);

}  // namespace dhs
