// refill on CUDA: one block of 1024 threads, at a step boundary. It looks at the ring of evicted
// rows from its latest entry on, 1024 at a time, until it has found as many rows as are wanted: 12
// bytes per entry, one 32-byte sector each of slot_of and evicted_before, and 40 bytes per row that
// it finds. Static shared memory only, 4.3 KB. No scratch.
#include "kernels/cuda/launch.h"
#include "kernels/resolve/pass.cuh"
#include "kernels/resolve/resolve.h"

namespace dhs {
namespace row_cache {
namespace {

// The row that was evicted as `number`, if it still counts; kNoOwner if not.
__device__ int64_t evicted_row(const RefillParams& work, int64_t number) {
  const RowCacheState& cache = work.cache;
  const int64_t host_row = cache.evicted_rows(number & (cache.evicted_rows.sizes[0] - 1));
  if (host_row == kNoOwner) return kNoOwner;
  return number < cache.evicted_before(host_row / work.block_tokens) ? kNoOwner : host_row;
}

// Of the block's entries that name an absent row, the latest: the lowest thread. What the others
// leave in slot_of, it has to write over.
__device__ bool speaks_for(const RowCacheState& cache, int64_t host_row) {
  const int32_t code = code_of(thread_idx());
  bool is_absent = false;
  if (host_row != kNoOwner) {
    const int32_t old = atomicCAS(&cache.slot_of(host_row), kAbsent, code);
    if (old < kAbsent && code < old) atomicMin(&cache.slot_of(host_row), code);
    is_absent = old < 0;
  }
  __syncthreads();
  return is_absent && cache.slot_of(host_row) == code;
}

__device__ void refill_row(const RefillParams& work, int64_t number, int64_t host_row,
                           int32_t slot) {
  const RowCacheState& cache = work.cache;
  cache.owner_of(slot) = host_row;
  cache.slot_of(host_row) = slot;
  cache.last_used(slot) = cache.evicted_stamps(number & (cache.evicted_rows.sizes[0] - 1));
}

__global__ void __launch_bounds__(kMaxThreads, 1) refill_kernel(RefillParams work) {
  __shared__ BlockShared shared;
  const RowCacheHead head = *work.cache.head;
  __syncthreads();
  const int64_t ring_size = work.cache.evicted_rows.sizes[0];
  const int64_t num_entries = head.num_evicted < ring_size ? head.num_evicted : ring_size;
  const int64_t most = work.orders.sizes[0];
  const auto num_wanted = static_cast<int32_t>(most < head.num_free ? most : head.num_free);
  int32_t num_orders = 0;
  for (int64_t first = 0; first < num_entries && num_orders < num_wanted; first += num_threads()) {
    const int64_t i = first + thread_idx();
    const int64_t number = head.num_evicted - 1 - i;
    const int64_t host_row = i < num_entries ? evicted_row(work, number) : kNoOwner;
    const bool is_found = speaks_for(work.cache, host_row);
    const Rank rank = rank_in_block(is_found, shared);
    const int32_t order = num_orders + rank.before;
    if (is_found && order < num_wanted) {
      const int32_t slot = work.cache.free_ring(head.num_free - 1 - order);
      refill_row(work, number, host_row, slot);
      work.orders(order) = {host_row, slot};
    } else if (is_found) {
      work.cache.slot_of(host_row) = kAbsent;
    }
    const int32_t num_found = num_orders + rank.total;
    num_orders = num_found < num_wanted ? num_found : num_wanted;
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  work.cache.head->num_free = head.num_free - num_orders;
  *work.num_orders = num_orders;
  *work.num_refilled += num_orders;
}

}  // namespace
}  // namespace row_cache

void launch_refill_cuda(const RefillParams& params, Stream stream) {
  cuda::launch("refill", row_cache::refill_kernel, {.grid = 1, .block = row_cache::kMaxThreads},
               stream, params);
}

}  // namespace dhs
