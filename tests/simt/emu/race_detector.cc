#include "simt/emu/race_detector.h"

#include <algorithm>

namespace simt {
namespace {

unsigned warp_of(unsigned thread) { return thread / kWarpSize; }

// True when every thread of the block sees `earlier` as past, or the accessing thread does.
bool happened_before(const ShadowAccess& earlier, const AccessTime& now, Space space) {
  if (earlier.scope == Scope::none) {
    return true;
  }
  // Shared memory belongs to one block at a time; global memory is synchronized by a launch's end.
  const uint32_t horizon = space == Space::shared ? now.block_begin : now.launch_begin;
  if (earlier.epoch < horizon) {
    return true;
  }
  const bool other_block = earlier.epoch < now.block_begin || earlier.scope == Scope::grid;
  if (other_block) {
    return false;
  }
  const bool barrier_between = earlier.epoch < now.synced_epoch;
  if (barrier_between) {
    return true;
  }
  if (earlier.scope == Scope::block) {
    return false;
  }
  if (earlier.scope == Scope::thread && earlier.thread == now.thread) {
    return true;
  }
  const bool same_warp = warp_of(earlier.thread) == warp_of(now.thread);
  return same_warp && earlier.warp_epoch < now.warp_epoch;
}

// The scope of `earlier` and of this access together, when neither is ordered before the other.
Scope joined_scope(const ShadowAccess& earlier, const AccessTime& now) {
  if (earlier.scope == Scope::grid || earlier.epoch < now.block_begin) {
    return Scope::grid;
  }
  if (earlier.scope == Scope::block || warp_of(earlier.thread) != warp_of(now.thread)) {
    return Scope::block;
  }
  return Scope::warp;
}

// An ordered predecessor can be forgotten: whoever is unordered with it is unordered with us too.
void replace(ShadowAccess& slot, const AccessTime& now) {
  slot.epoch = now.epoch;
  slot.warp_epoch = now.warp_epoch;
  slot.thread = now.thread;
  slot.scope = Scope::thread;
}

// Unordered accesses of a kind that does not conflict with itself must all be remembered.
//
// The warp scope matters: with "several threads" as the only wider state, reads by a whole warp
// followed by __syncwarp() and a write would be a false alarm.
void join(ShadowAccess& slot, const AccessTime& now, Space space) {
  if (happened_before(slot, now, space)) {
    replace(slot, now);
    return;
  }
  slot.scope = joined_scope(slot, now);
  slot.epoch = now.epoch;
  slot.warp_epoch = std::max(slot.warp_epoch, now.warp_epoch);
  slot.thread = now.thread;
}

}  // namespace

bool is_written(const ShadowCell& cell, const AccessTime& now) {
  return cell.write.epoch >= now.block_begin || cell.atomic.epoch >= now.block_begin;
}

std::optional<Race> record_access(ShadowCell& cell, const AccessTime& now, AccessKind kind,
                                  Space space) {
  std::optional<Race> race;
  if (kind != AccessKind::read && !happened_before(cell.read, now, space)) {
    race = Race{AccessKind::read, cell.read};
  }
  if (kind != AccessKind::atomic && !happened_before(cell.atomic, now, space)) {
    race = Race{AccessKind::atomic, cell.atomic};
  }
  if (!happened_before(cell.write, now, space)) {
    race = Race{AccessKind::write, cell.write};
  }
  switch (kind) {
    case AccessKind::read:
      join(cell.read, now, space);
      break;
    case AccessKind::write:
      replace(cell.write, now);
      cell.write_fences = now.proxy_fences;
      break;
    case AccessKind::atomic:
      join(cell.atomic, now, space);
      break;
  }
  return race;
}

}  // namespace simt
