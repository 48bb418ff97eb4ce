// Steps shared by the passes of resolve, on one thread.
#pragma once

#include "kernels/resolve/resolve.h"

namespace dhs::row_cache {

// The next tick. After 2^32 - 1 of them all stamps start again from zero: order among old rows is
// lost once in years, correctness never.
void begin_pass(const RowCacheState& cache);

// Gives the slot to `host_row` and stamps it with the current tick.
void assign(const RowCacheState& cache, int32_t slot, int64_t host_row);

// A slot for a new row: the top of the free ring, else a victim stamped before `protected_tick`.
// kAbsent when there is neither. `*evicted` grows by one when another row lost its slot.
int32_t take_slot(const RowCacheState& cache, uint32_t protected_tick, int64_t* evicted);

// Empties an owned slot and puts it on the free ring.
void free_slot(const RowCacheState& cache, int32_t slot);

}  // namespace dhs::row_cache
