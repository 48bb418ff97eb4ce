// The embedded backend: device memory is a bounded arena in ordinary memory, work runs at launch.
// Both tiers are the same memory; a link between them can be emulated: whoever crosses it waits.
#pragma once

#include "dhisparse/device.h"

namespace dhs {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceConfig& config);

  BackendKind kind() const override { return BackendKind::kCpu; }
  std::string description() const override;
  absl::StatusOr<MemoryRange> allocate(int64_t bytes) override;
  absl::StatusOr<MemoryRange> allocate_host(int64_t bytes) override;
  Stream stream() override { return {}; }
  Stream copy_stream() override { return {}; }
  std::unique_ptr<Event> make_event() override;
  void copy(void* to, const void* from, int64_t bytes, Stream stream) override;
  void fill(void* to, std::byte value, int64_t bytes, Stream stream) override;
  void synchronize() override {}
  void cross_link(const int32_t* num_items, int64_t item_bytes, Stream stream) override;
  std::optional<absl::Duration> emulated_link_time() const override;
  bool has_graphs() const override { return false; }
  void begin_capture() override;
  std::unique_ptr<Graph> end_capture() override;
  void launch(const Graph& graph) override;

 private:
  const bool emulates_link_;
  const double link_bytes_per_s_;
  const absl::Duration link_latency_;
  absl::Duration link_time_;
};

}  // namespace dhs
