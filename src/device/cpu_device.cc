#include "cpu_device.h"

#include <cstring>

#include "dhisparse/base.h"
#include "host_memory.h"

namespace dhs {
namespace {

// Work is done when a launch returns: there is nothing to wait for.
class PassedEvent final : public Event {
 public:
  void record(Stream) override {}
  void block(Stream) override {}
  bool is_done() const override { return true; }
  void synchronize() override {}
};

[[noreturn]] void no_graphs() {
  check_failed(__FILE__, __LINE__, "has_graphs()", "the CPU backend has no graphs");
}

}  // namespace

CpuDevice::CpuDevice(int num_threads) { set_num_kernel_threads(num_threads); }

std::string CpuDevice::description() const {
  return absl::StrCat("cpu (", num_kernel_threads(), " threads, ", cpu_isa_name(cpu_isa()), ")");
}

absl::StatusOr<MemoryRange> CpuDevice::allocate(int64_t bytes) {
  return reserve_host_memory(bytes, "device memory");
}

absl::StatusOr<MemoryRange> CpuDevice::allocate_host(int64_t bytes) {
  return reserve_host_memory(bytes, "host memory");
}

std::unique_ptr<Event> CpuDevice::make_event() { return std::make_unique<PassedEvent>(); }

void CpuDevice::copy(void* to, const void* from, int64_t bytes, Stream) {
  if (bytes != 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void CpuDevice::fill(void* to, std::byte value, int64_t bytes, Stream) {
  if (bytes != 0) std::memset(to, static_cast<int>(value), static_cast<size_t>(bytes));
}

void CpuDevice::begin_capture() { no_graphs(); }
std::unique_ptr<Graph> CpuDevice::end_capture() { no_graphs(); }
void CpuDevice::launch(const Graph&) { no_graphs(); }

}  // namespace dhs
