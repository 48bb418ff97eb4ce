// What happens to a row cache between passes, on CUDA.
//
//   invalidate  two launches over the rows of the blocks, one 256-thread block per 256 of them:
//               find and free, then push on the ring in order. 8 bytes per row, 24 per freed slot.
//   reset       a grid over the arrays.
//   add, begin, release
//               one block of 1024 threads, or one thread. They run between steps, and their loops
//               are over one segment's slots; release also reads the free ring once.
//
// Static shared memory only, 4.3 KB. Scratch: invalidate 4 bytes per row, release 8 per slot of the
// segment.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/launch.h"
#include "kernels/resolve/resolve.h"
#include "kernels/resolve/victims.cuh"

namespace dhs {
namespace row_cache {
namespace {

// ---- invalidate ---------------------------------------------------------------------------------

constexpr int kRowThreads = 256;

struct Invalidation {
  RowCacheState cache;
  TensorView<const int32_t, 1> blocks;
  int32_t block_tokens = 0;
  int32_t* num_free = nullptr;        // scratch: the ring's length before
  int32_t* freed = nullptr;           // [num_rows] a slot or kAbsent
  int32_t* freed_of_block = nullptr;  // [CUDA blocks]
};

__device__ void forget_evicted_rows(const RowCacheState& cache, int32_t block) {
  if (cache.evicted_before.sizes[0] > 0) cache.evicted_before(block) = cache.head->num_evicted;
}

__global__ void __launch_bounds__(kRowThreads) free_rows_kernel(Invalidation work) {
  __shared__ BlockShared shared;
  const int64_t idx = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  const int64_t block = idx / work.block_tokens;
  int32_t slot = kAbsent;
  if (block < work.blocks.sizes[0]) {
    const int64_t first_row = int64_t{work.blocks(block)} * work.block_tokens;
    slot = work.cache.slot_of(first_row + idx % work.block_tokens);
    work.freed[idx] = slot;
    if (idx % work.block_tokens == 0) forget_evicted_rows(work.cache, work.blocks(block));
  }
  if (slot != kAbsent) empty_slot(work.cache, slot);
  const int32_t num_freed = block_sum(slot != kAbsent ? 1 : 0, shared);
  if (threadIdx.x != 0) return;
  work.freed_of_block[blockIdx.x] = num_freed;
  if (blockIdx.x == 0) *work.num_free = work.cache.head->num_free;
}

__global__ void __launch_bounds__(kRowThreads) push_freed_kernel(Invalidation work) {
  __shared__ BlockShared shared;
  const int64_t idx = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  const bool is_row = idx < work.blocks.sizes[0] * work.block_tokens;
  const int32_t slot = is_row ? work.freed[idx] : kAbsent;
  const auto own_block = static_cast<int32_t>(blockIdx.x);
  const int32_t first = *work.num_free + sum_of_counts(work.freed_of_block, own_block, shared);
  const Rank rank = rank_in_block(slot != kAbsent, shared);
  if (slot != kAbsent) work.cache.free_ring(first + rank.before) = slot;
  const bool is_last = blockIdx.x == gridDim.x - 1;
  if (is_last && threadIdx.x == 0) work.cache.head->num_free = first + rank.total;
}

// ---- reset, add, begin --------------------------------------------------------------------------

__global__ void __launch_bounds__(kRowThreads) reset_kernel(RowCacheState cache) {
  const int64_t thread = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  const int64_t num = int64_t{gridDim.x} * kRowThreads;
  for (int64_t row = thread; row < cache.slot_of.sizes[0]; row += num) cache.slot_of(row) = kAbsent;
  for (int64_t slot = thread; slot < cache.owner_of.sizes[0]; slot += num) {
    cache.owner_of(slot) = kNoOwner;
    cache.last_used(slot) = 0;
  }
  for (int64_t entry = thread; entry < cache.evicted_rows.sizes[0]; entry += num) {
    cache.evicted_rows(entry) = kNoOwner;
    cache.evicted_stamps(entry) = 0;
  }
  for (int64_t block = thread; block < cache.evicted_before.sizes[0]; block += num) {
    cache.evicted_before(block) = 0;
  }
  if (thread == 0) *cache.head = RowCacheHead{};
}

// Pushed in falling order, so that slots are handed out in rising order.
__global__ void __launch_bounds__(kMaxThreads) add_segment_kernel(RowCacheState cache) {
  const RowCacheHead head = *cache.head;
  __syncthreads();
  const int32_t num_live = head.num_live + cache.slots_per_segment;
  stop_unless(num_live <= cache.owner_of.sizes[0], "more segments than the cache has slots for");
  for (int32_t i = thread_idx(); i < cache.slots_per_segment; i += num_threads()) {
    const int32_t slot = num_live - 1 - i;
    stop_unless(cache.owner_of(slot) == kNoOwner, "a slot of the new segment is owned already");
    cache.last_used(slot) = 0;
    cache.free_ring(head.num_free + i) = slot;
  }
  if (threadIdx.x != 0) return;
  cache.head->num_live = num_live;
  cache.head->num_free = head.num_free + cache.slots_per_segment;
}

__global__ void begin_step_kernel(RowCacheState cache) {
  cache.head->step_tick = cache.head->tick + 1;
}

// ---- release ------------------------------------------------------------------------------------

struct Release {
  RowCacheState cache;
  TensorView<MoveOrder, 1> moves;
  int32_t* num_moves = nullptr;
  int64_t* num_dropped = nullptr;
  int32_t* sources = nullptr;  // scratch: [slots_per_segment] owned slots, protected ones first
  int32_t* targets = nullptr;  // scratch: [slots_per_segment] where they go, or kAbsent
};

// Which of the slots that go away hold what. Counts of sources.
struct Leaving {
  int32_t num_protected = 0;
  int32_t num_optional = 0;
};

// Takes the slots at or above `num_live` off the free ring, in place: a chunk is read before any of
// it is written, and never written beyond. Returns how many stay.
__device__ int32_t drop_free_slots(const RowCacheState& cache, const RowCacheHead& head,
                                   BlockShared& shared) {
  int32_t num_kept = 0;
  for (int32_t first = 0; first < head.num_free; first += num_threads()) {
    const int32_t i = first + thread_idx();
    const int32_t slot = i < head.num_free ? cache.free_ring(i) : kAbsent;
    const bool stays = slot != kAbsent && slot < head.num_live;
    const Rank rank = rank_in_block(stays, shared);
    if (stays) cache.free_ring(num_kept + rank.before) = slot;
    num_kept += rank.total;
  }
  return num_kept;
}

// Appends the segment's slots with (or without) protected rows to the sources, in rising order.
__device__ int32_t list_sources(const Release& work, const RowCacheHead& head, int32_t num_listed,
                                bool want_protected, BlockShared& shared) {
  const int32_t last = head.num_live + work.cache.slots_per_segment;
  const int32_t num_before = num_listed;
  for (int32_t first = head.num_live; first < last; first += num_threads()) {
    const int32_t slot = first + thread_idx();
    bool is_listed = slot < last && work.cache.owner_of(slot) != kNoOwner;
    if (is_listed) is_listed = (work.cache.last_used(slot) >= head.step_tick) == want_protected;
    const Rank rank = rank_in_block(is_listed, shared);
    if (is_listed) work.sources[num_listed + rank.before] = slot;
    num_listed += rank.total;
  }
  return num_listed - num_before;
}

__device__ __forceinline__ int32_t at_most(int32_t value, int32_t limit) {
  return value < limit ? value : limit;
}

// Protected rows take the ring's top, then victims; the others what is left of the ring. Returns
// how many protected rows get nothing.
__device__ int32_t choose_targets(const Release& work, const RowCacheHead& head,
                                  const Leaving& leaving, BlockShared& shared) {
  const int32_t num_from_free = at_most(leaving.num_protected, head.num_free);
  const int32_t num_victims = leaving.num_protected - num_from_free;
  const VictimChoice choice = {.cache = work.cache,
                               .limit = head.step_tick,
                               .num_live = head.num_live,
                               .hand = head.hand,
                               .num_victims = num_victims,
                               .slots = {work.targets + num_from_free, {num_victims}, {1}},
                               .num_evicted = head.num_evicted};
  const int32_t num_all = leaving.num_protected + leaving.num_optional;
  for (int32_t i = thread_idx(); i < num_all; i += num_threads()) {
    if (i >= num_from_free && i < leaving.num_protected) continue;  // a victim's place
    const int32_t taken = i < num_from_free ? i : i - num_victims;
    work.targets[i] =
        taken < head.num_free ? work.cache.free_ring(head.num_free - 1 - taken) : kAbsent;
  }
  const int32_t own_deficits = choose_in_classes(choice, warp_idx(), num_warps());
  const int32_t num_deficits = block_sum(own_deficits, shared);
  const int32_t num_short = num_deficits > 0 ? fill_deficits(choice, num_deficits, shared) : 0;
  __syncthreads();
  return num_short;
}

// Numbers of evicted rows, [first, last).
struct Dropped {
  int64_t first;
  int64_t last;
};

__device__ void move_row(const RowCacheState& cache, int32_t source, int32_t target) {
  const int64_t host_row = cache.owner_of(source);
  cache.owner_of(source) = kNoOwner;
  cache.slot_of(host_row) = target;
  if (target == kAbsent) return;
  cache.owner_of(target) = host_row;
  cache.last_used(target) = cache.last_used(source);
}

// Returns the number of moves.
__device__ int32_t move_rows(const Release& work, int32_t num_sources, const Dropped& dropped,
                             BlockShared& shared) {
  int32_t num_moves = 0;
  for (int32_t first = 0; first < num_sources; first += num_threads()) {
    const int32_t i = first + thread_idx();
    const int32_t target = i < num_sources ? work.targets[i] : kAbsent;
    const Rank rank = rank_in_block(target != kAbsent, shared);
    const int32_t moves_before = num_moves + rank.before;
    if (i < num_sources && target == kAbsent) {
      const int32_t source = work.sources[i];
      remember(work.cache, dropped.first + i - moves_before, dropped.last,
               {work.cache.owner_of(source), work.cache.last_used(source)});
    }
    if (i < num_sources) move_row(work.cache, work.sources[i], target);
    if (target != kAbsent) work.moves(moves_before) = {work.sources[i], target};
    num_moves += rank.total;
  }
  return num_moves;
}

__global__ void __launch_bounds__(kMaxThreads, 1) release_segment_kernel(Release work) {
  __shared__ BlockShared shared;
  RowCacheHead head = *work.cache.head;
  stop_unless(head.num_live >= work.cache.slots_per_segment, "no segment to release");
  head.num_live -= work.cache.slots_per_segment;
  head.num_free = drop_free_slots(work.cache, head, shared);
  Leaving leaving;
  leaving.num_protected = list_sources(work, head, 0, true, shared);
  leaving.num_optional = list_sources(work, head, leaving.num_protected, false, shared);
  const int32_t num_short = choose_targets(work, head, leaving, shared);
  const int32_t num_victims = leaving.num_protected - at_most(leaving.num_protected, head.num_free);
  const int32_t optional_moves =
      at_most(leaving.num_optional, head.num_free - (leaving.num_protected - num_victims));
  const int32_t num_dropped = num_short + leaving.num_optional - optional_moves;
  const int64_t first_dropped = head.num_evicted + num_victims;
  const int32_t num_moves = move_rows(work, leaving.num_protected + leaving.num_optional,
                                      {first_dropped, first_dropped + num_dropped}, shared);
  if (threadIdx.x != 0) return;
  // A victim's row is dropped; so is the row that wanted a victim and found none.
  *work.num_dropped += num_victims - num_short + num_dropped;
  *work.num_moves = num_moves;
  head.num_evicted = first_dropped + num_dropped;
  head.num_free -= leaving.num_protected - num_victims + optional_moves;
  if (num_victims > 0 && head.num_live > 0) {
    head.hand = static_cast<int32_t>((int64_t{head.hand} + num_victims) % head.num_live);
  }
  *work.cache.head = head;
}

void require(bool holds, const char* why) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", why);
  std::abort();
}

// As many of the blocks as the scratch has room for.
void launch_invalidate_some(const InvalidateParams& params, Stream stream) {
  const int64_t num_rows = params.blocks.sizes[0] * params.block_tokens;
  const int64_t grid = (num_rows + kRowThreads - 1) / kRowThreads;
  cuda::ScratchCarver scratch(stream);
  Invalidation work = {params.cache, params.blocks, params.block_tokens};
  work.num_free = scratch.take<int32_t>(1);
  work.freed_of_block = scratch.take<int32_t>(grid);
  work.freed = scratch.take<int32_t>(num_rows);
  require(work.freed != nullptr, "invalidate: the stream's scratch does not hold one host block");
  const cuda::Shape shape = {.grid = unsigned(grid), .block = kRowThreads};
  cuda::launch("invalidate", free_rows_kernel, shape, stream, work);
  cuda::launch("invalidate", push_freed_kernel, shape, stream, work);
}

}  // namespace
}  // namespace row_cache

void launch_invalidate_cuda(const InvalidateParams& params, Stream stream) {
  const int64_t max_num_rows = (stream.scratch_bytes - 1024) / 8;
  const int64_t blocks = params.blocks.sizes[0];
  int64_t at_once = max_num_rows / params.block_tokens;
  at_once = at_once < 1 ? 1 : at_once;
  for (int64_t first = 0; first < blocks; first += at_once) {
    InvalidateParams some = params;
    some.blocks.data = params.blocks.row(first);
    some.blocks.sizes[0] = blocks - first < at_once ? blocks - first : at_once;
    row_cache::launch_invalidate_some(some, stream);
  }
}

void launch_reset_row_cache_cuda(const SegmentParams& params, Stream stream) {
  constexpr int64_t kMaxGrid = 4096;
  const int64_t num_rows = params.cache.slot_of.sizes[0];
  const int64_t blocks = num_rows / row_cache::kRowThreads + 1;
  cuda::launch(
      "reset_row_cache", row_cache::reset_kernel,
      {.grid = unsigned(blocks < kMaxGrid ? blocks : kMaxGrid), .block = row_cache::kRowThreads},
      stream, params.cache);
}

void launch_add_segment_cuda(const SegmentParams& params, Stream stream) {
  cuda::launch("add_segment", row_cache::add_segment_kernel,
               {.grid = 1, .block = row_cache::kMaxThreads}, stream, params.cache);
}

void launch_begin_step_cuda(const SegmentParams& params, Stream stream) {
  cuda::launch("begin_step", row_cache::begin_step_kernel, {.grid = 1, .block = 1}, stream,
               params.cache);
}

void launch_release_segment_cuda(const ReleaseParams& params, Stream stream) {
  row_cache::Release work = {params.cache, params.moves, params.num_moves, params.num_dropped};
  cuda::ScratchCarver scratch(stream);
  work.sources = scratch.take<int32_t>(params.cache.slots_per_segment);
  work.targets = scratch.take<int32_t>(params.cache.slots_per_segment);
  row_cache::require(work.targets != nullptr,
                     "release: the stream's scratch holds less than 8 bytes per slot");
  cuda::launch("release_segment", row_cache::release_segment_kernel,
               {.grid = 1, .block = row_cache::kMaxThreads}, stream, work);
}

}  // namespace dhs
