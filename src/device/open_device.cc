#include "cpu_device.h"
#include "dhisparse/base.h"

namespace dhs {

absl::StatusOr<std::unique_ptr<Device>> open_device(const DeviceConfig& config) {
  if (config.backend == BackendKind::kCuda) {
    return absl::FailedPreconditionError(
        "device.backend: cuda: this build has no CUDA backend; use cpu or auto");
  }
  if (config.backend == BackendKind::kAuto) {
    log_info("device.backend: auto: using the CPU, this build has no CUDA backend");
  }
  return std::make_unique<CpuDevice>(config.num_threads);
}

}  // namespace dhs
