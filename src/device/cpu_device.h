// The embedded backend: device memory is a bounded arena in ordinary memory, work runs at launch.
#pragma once

#include "dhisparse/device.h"

namespace dhs {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int num_threads);

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
  bool has_graphs() const override { return false; }
  void begin_capture() override;
  std::unique_ptr<Graph> end_capture() override;
  void launch(const Graph& graph) override;
};

}  // namespace dhs
