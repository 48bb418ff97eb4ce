// resolve: selected positions -> slots of one index group's row cache.
//
// The row cache of an index group holds records, keyed by host row and shared by all requests. This
// header is the policy's one specification; resolve_cpu.cc is its sequential form and resolve.cu
// its parallel one: from equal states and selections all of them leave equal states, bit for bit.
// The same arrays serve both and the simulation in the tests, which has no record bytes.
//
// State. slot_of maps every host row to its slot or kAbsent; owner_of is its inverse; last_used is
// the tick of the row's last selection. A tick is one resolve pass: it grows by one for each pass
// and each claim, so "stamped with the current tick" means "needed by the pass that is running".
// The pass whose tick is the last one (policy.h) ends with all stamps and the tick zero: order
// among old rows is lost once in years, correctness never.
//
// Passes.
//   resolve   every selected row gets a slot. A hit is stamped. A miss is claimed once, however
//             many query rows want it, is stamped, and becomes one FetchOrder.
//   claim     rows about to be written (this step's tokens) get slots without a fetch, as far as
//             slots not stamped with the current tick go round; the rest stay absent, which is
//             correct: their bytes are in the host block.
//   invalidate
//             rows whose host block is being reused lose their slots.
//   add       the next segment's slots become live and free.
//   begin     a step begins: the tick of its first pass is noted.
//   refill    free slots are given to rows that were evicted lately and are absent still, the
//             latest first; each becomes a FetchOrder. Nothing is evicted. A row gets back the
//             stamp that it was evicted with: older than any pass to come, so it is no protected
//             row and among the first to go.
//   release   the slots of the last segment leave the cache. Its rows stamped since the latest step
//             began move to free slots or, as victims are chosen with that tick as the limit, evict
//             older rows; one is dropped only when no older row is left. The other rows move while
//             free slots last and are then dropped. Both in rising order of slot.
// Live slots are always [0, num_live): segments come and go at the end only.
//
// A pass runs in phases, so that it does not matter who comes first: (1) every resident row it
// wants is stamped; (2) the rows that are absent are listed in the order in which the selection
// first names them; (3) the first num_free of them take the free ring from its top, the others take
// victims, in order; (4) owners and slots are written.
//
// Victim choice (sampled clock). With n victims wanted and stride = max(1, num_live /
// kNumCandidates), the class of j in [0, min(n, stride)) is the slots (hand + j + c * stride) %
// num_live for c in [0, min(kNumCandidates, num_live)): slots far apart in the cache, of unrelated
// ages, and no slot in two classes. Class j gives the victims j, j + stride, j + 2 * stride ... <
// n: its evictable slots by rising stamp, ties to the lowest c. A slot is evictable when it is
// owned and its stamp is older than the pass's limit (its own tick). Victims that a class cannot
// give are taken afterwards, in rising order of victim number, from the evictable slots that remain
// in rising order of slot. The hand then stands at (hand + n) % num_live. A choice costs O(1)
// loads, whatever the capacity, and is close to least recently used.
//
// Evicted rows. A ring remembers the rows that lost their slot to another row or to a release, and
// their stamps, if the state has one (its size a power of two). Row number n since the last reset,
// counted by num_evicted, is entry n % size. Victims are entered by their number, one that does not
// exist as kNoOwner; rows that a release drops follow, protected ones first, in rising order of
// slot. Of more victims or dropped rows than the ring holds, the last are entered. invalidate notes
// for a block how many rows had been evicted: entries before that are a former owner's, and never
// refilled.
//
// Invariants (check_row_cache): slot_of and owner_of are inverse; every live slot is either owned
// or in the free ring, once; no pass evicts a slot stamped with its own tick.
//
// Cost: O(selected + kNumCandidates * min(misses, stride)) loads, so no pass looks at a slot twice;
// where classes run dry, one more look over the slots until the victims are found. Deterministic:
// orders appear in the order in which the selection first names their rows.
#pragma once

#include <cstdint>

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

inline constexpr int32_t kAbsent = -1;   // slot_of: not resident
inline constexpr int64_t kNoOwner = -1;  // owner_of: empty
inline constexpr int kNumCandidates = 32;

struct RowCacheHead {
  uint32_t tick = 0;        // of the latest pass
  uint32_t step_tick = 0;   // of the first pass of the running step (begin_step)
  int32_t hand = 0;         // clock hand, a slot
  int32_t num_live = 0;     // slots that have memory: [0, num_live)
  int32_t num_free = 0;     // entries of the free ring
  int32_t num_missing = 0;  // of the pass that is running; 0 between passes
  int64_t num_evicted = 0;  // rows that were entered into the ring of evicted rows
};

// Arrays of one index group. All of one memory (device, host or simulator); plain data.
struct RowCacheState {
  TensorView<int32_t, 1> slot_of;     // [num_host_rows]
  TensorView<int64_t, 1> owner_of;    // [max_num_slots] host row or kNoOwner
  TensorView<uint32_t, 1> last_used;  // [max_num_slots]
  TensorView<int32_t, 1> free_ring;   // [max_num_slots] the first num_free entries (a stack)
  RowCacheHead* head = nullptr;
  int32_t slots_per_segment = 1;  // a segment is one chunk's worth of slots
  // The ring of evicted rows; all empty where nothing is ever refilled.
  TensorView<int64_t, 1> evicted_rows;     // [ring size] host row or kNoOwner
  TensorView<uint32_t, 1> evicted_stamps;  // [ring size]
  TensorView<int64_t, 1> evicted_before;   // [num_host_blocks] num_evicted when it was invalidated
};

struct FetchOrder {
  int64_t host_row;
  int32_t slot;
};
struct MoveOrder {
  int32_t from_slot;
  int32_t to_slot;
};

struct ResolveCounters {
  int64_t selected = 0;  // entries of the selection, padding aside
  int64_t hit = 0;       // distinct rows of the pass that were resident
  int64_t missed = 0;    // distinct rows of the pass that were not
  int64_t evicted = 0;   // owned slots taken from another row
};

struct ResolveParams {
  RowCacheState cache;
  TensorView<const int32_t, 2> selection;        // [num_query_rows, top_k] positions, -1 padded
  TensorView<const int32_t, 1> sequence_of_row;  // [num_query_rows]
  TensorView<const int32_t, 2> block_table;      // [num_sequences, max_num_blocks] host blocks
  int32_t block_tokens = 64;                     // a power of two
  TensorView<int32_t, 2> slots;                  // out: [num_query_rows, top_k], -1 padded
  // out: for every entry that missed, 2 * (index of its order) + (1 for the entry that names the
  // row first), -1 for hits and padding. Null data: not wanted.
  TensorView<int32_t, 2> miss_of;
  TensorView<FetchOrder, 1> misses;     // out: capacity >= distinct rows
  int32_t* num_misses = nullptr;        // out
  ResolveCounters* counters = nullptr;  // in/out: added to
  // in/out, added to; null to skip: [num_sequences]. A miss counts for the sequence that names it
  // first.
  int64_t* selected_of_sequence = nullptr;
  int64_t* missed_of_sequence = nullptr;
};

// Precondition: the distinct rows of the selection fit in num_live slots (the caller tiles the
// query rows so that they do). Violating it is a bug and stops the process (CUDA: traps).
void launch_resolve(const ResolveParams& params, Stream stream);

struct ClaimParams {
  RowCacheState cache;
  TensorView<const int64_t, 1> host_rows;  // [num_rows] distinct; negative: padding
  // Stamp the rows for the pass that follows, so that it cannot evict them. Only when that pass's
  // selection fits beside them.
  bool protect_in_next_pass = false;
  ResolveCounters* counters = nullptr;  // in/out: evicted only
};
void launch_claim(const ClaimParams& params, Stream stream);

struct InvalidateParams {
  RowCacheState cache;
  // Distinct host blocks whose rows leave the cache, in this order.
  TensorView<const int32_t, 1> blocks;
  int32_t block_tokens = 64;
};
void launch_invalidate(const InvalidateParams& params, Stream stream);

struct RefillParams {
  RowCacheState cache;
  int32_t block_tokens = 64;
  TensorView<FetchOrder, 1> orders;  // out: as many as are wanted at most
  int32_t* num_orders = nullptr;     // out
  int64_t* num_refilled = nullptr;   // in/out: added to
};
void launch_refill(const RefillParams& params, Stream stream);

struct SegmentParams {
  RowCacheState cache;
};
// Everything absent, no slot live, ticks from zero.
void launch_reset_row_cache(const SegmentParams& params, Stream stream);
// Makes the next slots_per_segment slots live and free (their chunk has arrived).
void launch_add_segment(const SegmentParams& params, Stream stream);
// Notes the tick of the step's first pass.
void launch_begin_step(const SegmentParams& params, Stream stream);

struct ReleaseParams {  // of the last live segment
  RowCacheState cache;
  // Distinct sources, distinct targets, no target is a source: copy them in any order.
  TensorView<MoveOrder, 1> moves;  // out: capacity >= slots_per_segment; to_slot is live after
  int32_t* num_moves = nullptr;    // out: copy these before the chunk changes hands
  int64_t* num_dropped = nullptr;  // in/out: rows that lost their slot
};
void launch_release_segment(const ReleaseParams& params, Stream stream);

// Host memory only. Verifies the invariants above; the text of the first violation, or nullptr.
// O(slots + host rows).
const char* check_row_cache(const RowCacheState& cache);

}  // namespace dhs
