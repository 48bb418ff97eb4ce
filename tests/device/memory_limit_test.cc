#include "device/memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace dhs {
namespace {

// A root directory with the files that the test writes.
class MemoryLimit : public testing::Test {
 protected:
  MemoryLimit() : root_(testing::TempDir() + "memory_limit_root") {
    std::filesystem::remove_all(root_);
  }
  ~MemoryLimit() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  const std::string root_;
};

TEST_F(MemoryLimit, is_the_machines_when_no_cgroup_limits_it) {
  write("/proc/meminfo", "MemTotal: 4096 kB\nMemAvailable: 1000 kB\n");
  write("/sys/fs/cgroup/memory.max", "max\n");
  write("/sys/fs/cgroup/memory.current", "512\n");
  EXPECT_EQ(available_memory_bytes(root_), 1000 << 10);
}

TEST_F(MemoryLimit, counts_page_cache_of_the_cgroup_as_available) {
  write("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  write("/sys/fs/cgroup/memory.max", "10000\n");
  write("/sys/fs/cgroup/memory.current", "9500\n");
  write("/sys/fs/cgroup/memory.stat", "anon 500\ninactive_file 6000\nactive_file 3000\n");
  EXPECT_EQ(available_memory_bytes(root_), 9500);
}

TEST_F(MemoryLimit, is_never_negative_under_a_cgroup_that_is_over_its_limit) {
  write("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  write("/sys/fs/cgroup/memory.max", "10000\n");
  write("/sys/fs/cgroup/memory.current", "12000\n");
  EXPECT_EQ(available_memory_bytes(root_), 0);
}

TEST_F(MemoryLimit, heeds_the_first_version_of_cgroups_too) {
  write("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8000\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  write("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1000\n");
  EXPECT_EQ(available_memory_bytes(root_), 4000);
}

}  // namespace
}  // namespace dhs
