#include "host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "memory_limit.h"

namespace dhs {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

void unmap(std::byte* data, int64_t bytes) { munmap(data, static_cast<size_t>(bytes)); }

// One byte of every page.
void touch(std::byte* data, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  parallel_for(ceil_div(bytes, page), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      reinterpret_cast<volatile std::byte*>(data)[i * page] = std::byte{0};
    }
  });
}

}  // namespace

absl::StatusOr<MemoryRange> reserve_host_memory(int64_t bytes, const char* what) {
  DHS_CHECK(bytes >= 0, what, " of ", bytes, " bytes");
  if (bytes == 0) return MemoryRange();
  const int64_t available = available_memory_bytes();
  if (bytes > available) {
    return absl::ResourceExhaustedError(absl::StrCat(
        what, " of ", bytes, " bytes asked for, ", available,
        " bytes available to this process; lower device.memory or host.pool, or free memory"));
  }
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " of ", bytes, " bytes: ", std::strerror(errno)));
  }
  if (bytes >= kHugePageBytes) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  touch(static_cast<std::byte*>(data), bytes);
  return MemoryRange(static_cast<std::byte*>(data), bytes, unmap);
}

}  // namespace dhs
