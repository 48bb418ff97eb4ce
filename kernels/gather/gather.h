// gather: copy the missed records from host blocks to their slots; move records between slots.
//
//   gather   for each order: slots[order.slot] = record(order.host_row), from first_byte on
//   move     for each order: slots[order.to_slot] = slots[order.from_slot]
//
// Layout. A record (all layers' rows of one token in one index group) is contiguous in both tiers
// and a multiple of 16 bytes. Host row r lives in host block r / block_tokens, at
//   host_base + block * host_block_bytes + group_offset + (r % block_tokens) * record_bytes.
// Bytes moved: 2 * num_orders * record_bytes. No arithmetic: bits are copied. Orders are
// independent and name distinct slots (moves: no target is a source). How many orders there are is
// known to the device only: the launch covers the whole array and looks.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"
#include "kernels/resolve/resolve.h"

namespace dhs {

struct HostRecords {  // one index group's records in the host arena
  std::byte* base = nullptr;
  int64_t block_bytes = 0;
  int64_t group_offset = 0;
  int64_t record_bytes = 0;
  int32_t block_tokens = 64;

  constexpr std::byte* at(int64_t host_row) const {
    return base + (host_row / block_tokens) * block_bytes + group_offset +
           (host_row % block_tokens) * record_bytes;
  }
};

struct GatherParams {
  HostRecords host;
  ChunkedItems slots;  // item_bytes == host.record_bytes
  TensorView<const FetchOrder, 1> orders;
  const int32_t* num_orders = nullptr;  // <= orders.sizes[0]
  // Bytes of every record that are there already: those that fused retrieval fetched. Multiple of
  // 16.
  int64_t first_byte = 0;
};
void launch_gather(const GatherParams& params, Stream stream);
void gather_ref(const GatherParams& params);

struct MoveRecordsParams {
  ChunkedItems slots;
  TensorView<const MoveOrder, 1> orders;
  const int32_t* num_orders = nullptr;  // <= orders.sizes[0]
};
void launch_move_records(const MoveRecordsParams& params, Stream stream);

}  // namespace dhs
