// The query rows of a step, and where the records they selected lie: what the model hands to the
// store, and what it gets back.
#pragma once

#include <cstdint>
#include <span>

#include "dhisparse/tensor.h"
#include "kernels/gather/gather.h"
#include "kernels/resolve/resolve.h"

namespace dhs {

// Query rows of one step: rows of a sequence are consecutive and ascending in position. Rows at the
// end may be padding: position -1, sequence 0. Device memory, but for the two host views.
struct QueryRows {
  TensorView<const int32_t, 1> sequence_of_row;  // [num_rows] rows of the tables below
  TensorView<const int32_t, 1> positions;        // [num_rows]
  TensorView<const int32_t, 2> block_table;      // [num_sequences, max_num_blocks] host blocks
  TensorView<const int32_t, 2> item_table;       // [num_sequences, max_num_blocks] index items
  // [num_sequences, max_num_blocks] draft pages, -1: not on the device; empty: drafts have none.
  TensorView<const int32_t, 2> page_table;
  std::span<const int32_t> host_sequence_of_row;
  std::span<const int32_t> host_positions;
  int64_t num_rows() const { return positions.sizes[0]; }
  int64_t num_sequences() const { return block_table.sizes[0]; }
};

struct RowTile {  // query rows that are resolved and attended to together
  int64_t first_row = 0;
  int64_t num_rows = 0;
};

// Query rows [first_row, first_row + num_rows) of the step, and where their selected rows lie.
struct SelectedRows {
  int64_t first_row = 0;
  TensorView<const int32_t, 2> slots;  // [num_rows, top_k], -1 padded
  ChunkedItems records;
  int64_t row_offset = 0;                // of the layer within a record
  TensorView<const int32_t, 2> miss_of;  // from here on set when attention is to fetch misses
  TensorView<const FetchOrder, 1> orders;
  HostRecords host;
};

}  // namespace dhs
