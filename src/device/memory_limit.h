// How much memory this process may still take: the machine's, or less where its cgroup says so.
#pragma once

#include <cstdint>
#include <string>

namespace dhs {

// Reads `root`/proc/meminfo and the memory controller below `root`/sys/fs/cgroup (v2, or v1 in its
// usual place). Page cache that the kernel would give back counts as available. Files that are not
// there limit nothing.
int64_t available_memory_bytes(const std::string& root = "");

}  // namespace dhs
