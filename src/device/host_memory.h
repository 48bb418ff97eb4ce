// Ordinary memory of this process, reserved and touched at once.
#pragma once

#include "dhisparse/device.h"

namespace dhs {

// Zero-filled and touched by all kernel threads, so that no step meets a page fault.
// RESOURCE_EXHAUSTED names `what`, how much was asked for and how much this process may still take.
absl::StatusOr<MemoryRange> reserve_host_memory(int64_t bytes, const char* what);

}  // namespace dhs
