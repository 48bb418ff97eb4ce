// Finds pairs of accesses to one byte that nothing orders.
//
// Time is a counter per OS thread, the epoch. It grows at every block barrier, with every phase of
// an mbarrier and at the start of every block, and never shrinks. So one number tells in which
// launch, in which block and between which two barriers an access happened, and shadow memory never
// needs clearing: what an earlier block left behind is merely old.
#pragma once

#include <cstdint>
#include <optional>

#include "simt/emu/runtime.h"

namespace simt {

inline constexpr uint32_t kByAsyncProxy = 0xffffffffu;

// The moment of an access.
struct AccessTime {
  uint32_t launch_begin = 0;  // first epoch of this launch
  uint32_t block_begin = 0;   // first epoch of this block
  uint32_t epoch = 0;
  // What happened in this block before that epoch is past for this thread: the epoch of the latest
  // block barrier, or a later one that the thread has learnt of by waiting at an mbarrier.
  uint32_t synced_epoch = 0;
  uint32_t warp_epoch = 0;
  // That the thread has made in this block; kByAsyncProxy when it is not the thread that writes.
  uint32_t proxy_fences = 0;
  uint16_t thread = 0;
};

// Which memory: decides whether threads of different blocks can meet in it.
enum class Space : uint8_t { shared, global };

// The widest group among the accesses that one shadow entry stands for.
enum class Scope : uint8_t { none, thread, warp, block, grid };

// The latest accesses of one kind. All zero: none yet.
struct ShadowAccess {
  uint32_t epoch = 0;
  uint32_t warp_epoch = 0;
  uint16_t thread = 0;
  Scope scope = Scope::none;
};

// What is remembered about one byte. Each kind needs a place of its own: a thread's atomic must not
// hide its own plain write, which others' atomics race with.
struct ShadowCell {
  ShadowAccess write;
  ShadowAccess read;
  ShadowAccess atomic;
  uint32_t write_fences = 0;  // the writer's proxy fences before the write
};

struct Race {
  AccessKind earlier_kind;
  ShadowAccess earlier;
};

// Whether this block has written the byte, atomically or not. For shared memory.
bool is_written(const ShadowCell& cell, const AccessTime& now);

// Records the access and returns the race it is part of, if any.
std::optional<Race> record_access(ShadowCell& cell, const AccessTime& now, AccessKind kind,
                                  Space space);

}  // namespace simt
