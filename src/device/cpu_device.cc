#include "cpu_device.h"

#include <chrono>
#include <cstring>
#include <thread>

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

using Clock = std::chrono::steady_clock;

// Sleeps for most of it: a sleep may end late by this much.
constexpr std::chrono::microseconds kSleepSlack(200);

void wait_until(Clock::time_point end) {
  if (end - kSleepSlack > Clock::now()) std::this_thread::sleep_until(end - kSleepSlack);
  while (Clock::now() < end) {
  }
}

[[noreturn]] void no_graphs() {
  check_failed(__FILE__, __LINE__, "has_graphs()", "the CPU backend has no graphs");
}

}  // namespace

CpuDevice::CpuDevice(const DeviceConfig& config)
    : emulates_link_(config.emulate_link),
      link_bytes_per_s_(static_cast<double>(config.link_bandwidth)),
      link_latency_(config.link_latency) {
  set_num_kernel_threads(config.num_threads);
}

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

// What copying took already is not taken off, so that the emulated time does not depend on the
// machine.
void CpuDevice::cross_link(const int32_t* num_items, int64_t item_bytes, Stream) {
  if (!emulates_link_ || *num_items == 0) return;
  const double bytes = static_cast<double>(*num_items) * static_cast<double>(item_bytes);
  const absl::Duration time = link_latency_ + absl::Seconds(bytes / link_bytes_per_s_);
  link_time_ += time;
  const std::chrono::duration<double> seconds(absl::ToDoubleSeconds(time));
  wait_until(Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds));
}

std::optional<absl::Duration> CpuDevice::emulated_link_time() const {
  if (!emulates_link_) return std::nullopt;
  return link_time_;
}

void CpuDevice::begin_capture() { no_graphs(); }
std::unique_ptr<Graph> CpuDevice::end_capture() { no_graphs(); }
void CpuDevice::launch(const Graph&) { no_graphs(); }

}  // namespace dhs
