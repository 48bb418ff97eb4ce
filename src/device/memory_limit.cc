#include "memory_limit.h"

#include <algorithm>
#include <fstream>
#include <optional>

namespace dhs {
namespace {

// The whole of a one-number file; nullopt when there is none ("max" limits nothing).
std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// The number behind `key` in a file of "key number" lines; 0 when there is none.
int64_t read_field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  int64_t number = 0;
  for (std::string word; file >> word;) {
    if (word == key && file >> number) return number;
  }
  return 0;
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* stat;
  const char* cache_fields[2];
};

constexpr CgroupFiles kCgroups[] = {
    {"/sys/fs/cgroup/memory.max",
     "/sys/fs/cgroup/memory.current",
     "/sys/fs/cgroup/memory.stat",
     {"inactive_file", "active_file"}},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
     "/sys/fs/cgroup/memory/memory.usage_in_bytes",
     "/sys/fs/cgroup/memory/memory.stat",
     {"total_inactive_file", "total_active_file"}},
};

int64_t available_in_cgroup(const std::string& root, const CgroupFiles& files) {
  const auto limit = read_number(root + files.limit);
  const auto usage = read_number(root + files.usage);
  if (!limit.has_value() || !usage.has_value()) return INT64_MAX;
  int64_t reclaimable = 0;
  for (const char* field : files.cache_fields) reclaimable += read_field(root + files.stat, field);
  const int64_t used = std::max<int64_t>(0, *usage - reclaimable);
  return std::max<int64_t>(0, *limit - used);
}

}  // namespace

int64_t available_memory_bytes(const std::string& root) {
  const int64_t kib = read_field(root + "/proc/meminfo", "MemAvailable:");
  int64_t available = kib > 0 ? kib << 10 : INT64_MAX;
  for (const CgroupFiles& files : kCgroups) {
    available = std::min(available, available_in_cgroup(root, files));
  }
  return available;
}

}  // namespace dhs
