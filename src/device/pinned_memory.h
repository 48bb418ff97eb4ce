// Host memory that the device reads and writes directly.
#pragma once

#include "dhisparse/device.h"

namespace dhs {

// Registration takes the driver minutes per TiB, so it is cut into pieces that end at addresses
// divisible by this. The driver takes no copy that spans two of them: copies are cut likewise.
inline constexpr int64_t kPinnedPieceBytes = int64_t{1} << 30;

// Reserved, touched and registered with the device, every GPU of the process alike; the range gives
// all of it back. RESOURCE_EXHAUSTED when the machine or the driver has no more.
absl::StatusOr<MemoryRange> reserve_pinned_memory(int64_t bytes, int ordinal,
                                                  int64_t piece_bytes = kPinnedPieceBytes);

// Calls body(offset, bytes) for consecutive parts of [0, bytes), in order. No part crosses an
// address divisible by `piece_bytes` at either end of the copy.
void for_each_part(const void* to, const void* from, int64_t bytes, int64_t piece_bytes,
                   const std::function<void(int64_t offset, int64_t part_bytes)>& body);

}  // namespace dhs
