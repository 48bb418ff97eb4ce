// BlockRunner's asynchronous copies: cp.async, and cp.async.bulk with mbarriers.
//
// Hardware may make a copy at any time between its issue and the end of the wait. The emulator
// makes it as late as it can, so that a missing wait shows as missing data. It checks the accesses
// at both ends, so that a buffer that is still being read by others is found as a race.
#include <algorithm>
#include <cstring>

#include "simt/emu/block_runner.h"
#include "simt/emu/block_runner_internal.h"

namespace simt {
namespace {

constexpr unsigned kBulkUnit = 16;

std::string place_of(const ThreadContext& thread, std::source_location where) {
  return describe(thread) + " at " + describe(where);
}

bool is_bulk_aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kBulkUnit == 0;
}

}  // namespace

// -------------------------------------------------------------------------------------- cp.async

void BlockRunner::async_copy(void* to, const void* from, CopyBytes bytes,
                             std::source_location where) {
  ThreadState& thread = current();
  const ChecksOff checks_off;
  thread.where = where;
  const AsyncCopy copy{to, from, bytes.total, bytes.valid, thread.async_groups, where};
  if (launch_->check_accesses) {
    check_copy(thread, copy);
  }
  thread.async_copies.push_back(copy);
}

void BlockRunner::async_commit() { ++current().async_groups; }

void BlockRunner::async_wait(unsigned groups_left_pending) {
  ThreadState& thread = current();
  const ChecksOff checks_off;
  auto& copies = thread.async_copies;
  const auto is_due = [&](const AsyncCopy& copy) {
    return copy.group + groups_left_pending < thread.async_groups;
  };
  const auto due_end = std::find_if_not(copies.begin(), copies.end(), is_due);
  for (auto copy = copies.begin(); copy != due_end; ++copy) {
    if (launch_->check_accesses) {
      check_copy(thread, *copy);
    }
    make(*copy);
  }
  copies.erase(copies.begin(), due_end);
}

void BlockRunner::check_copy(ThreadState& thread, const AsyncCopy& copy) {
  const CodePlace place{nullptr, copy.where};
  // Bulk copies have been checked for their alignment.
  const bool is_word = copy.bytes <= 16;
  const bool is_whole = copy.valid_bytes == copy.bytes;
  const Access source{copy.from, copy.valid_bytes, AccessKind::read, is_word && is_whole};
  const Access target{copy.to, copy.bytes, AccessKind::write, is_word, copy.by_async_proxy};
  const bool reads = copy.valid_bytes != 0;
  const bool allowed =
      (!reads || is_allowed(thread, source, place)) && is_allowed(thread, target, place);
  // The copy may be another thread's, but it is this one that comes to its end.
  if (!allowed) park(*running_);
}

void BlockRunner::make(const AsyncCopy& copy) {
  auto* to = static_cast<std::byte*>(copy.to);
  if (copy.valid_bytes != 0) std::memcpy(to, copy.from, copy.valid_bytes);
  std::memset(to + copy.valid_bytes, 0, copy.bytes - copy.valid_bytes);
}

// --------------------------------------------------------------------------------------- mbarrier

void BlockRunner::barrier_init(uint64_t* address, unsigned count, std::source_location where) {
  note_access(address, sizeof *address, AccessKind::write, where);
  const ChecksOff checks_off;
  async_barriers_[address] = AsyncBarrier{.count = count, .missing_arrivals = count};
}

// To the access checks every use is an atomic on the object: unordered with its like, but not with
// its initialisation.
BlockRunner::AsyncBarrier& BlockRunner::barrier_at(uint64_t* address, std::source_location where) {
  ThreadState& thread = current();
  note_access(address, sizeof *address, AccessKind::atomic, where);
  const ChecksOff checks_off;
  thread.where = where;
  const auto found = async_barriers_.find(address);
  if (found != async_barriers_.end()) return found->second;
  fail(thread, [&] { return "mbarrier is not initialised: " + place_of(thread, where); });
}

bool BlockRunner::can_complete(const AsyncBarrier& barrier) {
  uint64_t bytes = 0;
  for (const auto& issued : barrier.copies) bytes += issued.copy.bytes;
  return barrier.missing_arrivals == 0 && barrier.announced_bytes == bytes;
}

// What came before in this block is now past for whoever observes the phase. That is a little more
// than hardware promises: it forgives some races, and invents none.
void BlockRunner::complete(AsyncBarrier& barrier) {
  for (const auto& [copy, thread] : barrier.copies) {
    if (launch_->check_accesses) check_copy(*thread, copy);
    make(copy);
  }
  barrier.copies.clear();
  barrier.missing_arrivals = barrier.count;
  barrier.announced_bytes = 0;
  barrier.parity ^= 1;
  barrier.completed_epoch = ++epoch_;
}

void BlockRunner::barrier_arrive(uint64_t* address, unsigned announced_bytes,
                                 std::source_location where) {
  AsyncBarrier& barrier = barrier_at(address, where);
  ThreadState& thread = current();
  const ChecksOff checks_off;
  // The phase before may be complete without anyone having looked.
  if (can_complete(barrier)) complete(barrier);
  if (barrier.missing_arrivals == 0) {
    fail(thread, [&] {
      return "more arrivals than the mbarrier counts in a phase: " + place_of(thread, where);
    });
  }
  barrier.announced_bytes += announced_bytes;
  --barrier.missing_arrivals;
}

bool BlockRunner::barrier_try_wait(uint64_t* address, unsigned parity, std::source_location where) {
  AsyncBarrier& barrier = barrier_at(address, where);
  ThreadState& thread = current();
  {
    const ChecksOff checks_off;
    if (barrier.parity == parity && can_complete(barrier)) complete(barrier);
  }
  if (barrier.parity != parity) {
    thread.acquired_epoch = std::max(thread.acquired_epoch, barrier.completed_epoch);
    return true;
  }
  yield();
  return false;
}

void BlockRunner::bulk_copy(AsyncCopy copy, uint64_t* address) {
  AsyncBarrier& barrier = barrier_at(address, copy.where);
  ThreadState& thread = current();
  if (copy.bytes % kBulkUnit != 0 || !is_bulk_aligned(copy.to) || !is_bulk_aligned(copy.from)) {
    fail(thread, [&] {
      return "misaligned bulk copy of " + std::to_string(copy.bytes) +
             " bytes: " + place_of(thread, copy.where);
    });
  }
  const ChecksOff checks_off;
  if (can_complete(barrier)) complete(barrier);
  if (launch_->check_accesses) check_copy(thread, copy);
  barrier.copies.push_back({copy, &thread});
}

}  // namespace simt
