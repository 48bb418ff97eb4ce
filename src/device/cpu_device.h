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
  void synchronize() override {}
};

}  // namespace dhs
