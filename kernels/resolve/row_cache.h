// Steps shared by the passes of resolve, on one thread.
#pragma once

#include "kernels/resolve/resolve.h"

namespace dhs::row_cache {

// The next tick.
void begin_pass(const RowCacheState& cache);

// Starts the ticks again after the last one: all stamps are forgotten. Order among old rows is lost
// once in years, correctness never.
void end_pass(const RowCacheState& cache);

// Slots for slots.sizes[0] new rows: the free ring from its top, then victims stamped before
// `limit`, whose rows become absent; kAbsent where there is neither. How many rows lost their slot.
int64_t take_slots(const RowCacheState& cache, uint32_t limit, TensorView<int32_t, 1> slots);

// Gives the slot to `host_row` and stamps it.
void assign(const RowCacheState& cache, int32_t slot, int64_t host_row, uint32_t stamp);

// Empties an owned slot, whose row is remembered as the latest that was evicted.
void drop_row(const RowCacheState& cache, int32_t slot);

// Empties an owned slot and puts it on the free ring.
void free_slot(const RowCacheState& cache, int32_t slot);

}  // namespace dhs::row_cache
