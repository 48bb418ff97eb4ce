#include "cpu_device.h"
#include "cuda_backend.h"
#include "dhisparse/base.h"

namespace dhs {
namespace {

absl::StatusOr<std::unique_ptr<Device>> open_cuda(const DeviceConfig& config) {
  if (&open_cuda_device == nullptr) return absl::FailedPreconditionError(kNoCudaInProgram);
  return open_cuda_device(config);
}

std::unique_ptr<Device> open_cpu(const DeviceConfig& config) {
  return std::make_unique<CpuDevice>(config);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> open_device(const DeviceConfig& config) {
  if (config.backend == BackendKind::kCpu) return open_cpu(config);
  absl::StatusOr<std::unique_ptr<Device>> device = open_cuda(config);
  if (device.ok() && config.emulate_link) {
    log_warning("device.emulate_link: not on a GPU, which has a link of its own");
  }
  if (device.ok()) return device;
  if (config.backend == BackendKind::kCuda) {
    return absl::Status(device.status().code(),
                        absl::StrCat("device.backend: cuda: ", device.status().message()));
  }
  log_info("device.backend: auto: using the CPU: ", device.status().message());
  return open_cpu(config);
}

}  // namespace dhs
