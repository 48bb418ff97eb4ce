// Whether a GPU can be used and, when none can, why: every message names the value, the limit and
// what to change.
#include <cuda_runtime_api.h>

#include "compute_capability.h"
#include "cuda_backend.h"
#include "cuda_device.h"
#include "cuda_error.h"
#include "dhisparse/base.h"

namespace dhs {
namespace {

constexpr int kMinComputeCapability = 80;

// CUDA writes 13.0 as 13000.
std::string version_text(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// 90 -> "9.0"
std::string capability_text(int capability) {
  return absl::StrCat(capability / 10, ".", capability % 10);
}

absl::Status unusable(const std::string& reason) { return absl::FailedPreconditionError(reason); }

absl::Status explain_old_driver() {
  int supported = 0;
  if (cudaDriverGetVersion(&supported) != cudaSuccess) supported = 0;
  const std::string needed = version_text(CUDART_VERSION);
  if (supported == 0) {
    return unusable(absl::StrCat("no NVIDIA driver (libcuda.so.1 is not found); install one that ",
                                 "supports CUDA ", needed, " or newer"));
  }
  return unusable(absl::StrCat("the NVIDIA driver supports CUDA ", version_text(supported),
                               ", this program needs ", needed, "; update the driver"));
}

absl::Status explain_no_gpus(cudaError_t error) {
  cudaGetLastError();  // it has been heard
  if (error == cudaErrorInsufficientDriver) return explain_old_driver();
  if (error == cudaErrorStubLibrary) {
    return unusable(
        "libcuda.so.1 is the toolkit's stub, not a driver; take lib/stubs off LD_LIBRARY_PATH");
  }
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    return unusable("0 GPUs are visible, 1 is needed; check nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  return unusable(
      absl::StrCat("looking for GPUs failed: ", cuda_error_text(error), "; check nvidia-smi"));
}

absl::StatusOr<int> attribute(cudaDeviceAttr name, int ordinal) {
  int value = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&value, name, ordinal);
  if (error == cudaSuccess) return value;
  cudaGetLastError();  // it has been heard
  return unusable(absl::StrCat("GPU ", ordinal, ": asking for attribute ", static_cast<int>(name),
                               " failed: ", cuda_error_text(error), "; check nvidia-smi"));
}

absl::StatusOr<GpuProperties> read_properties(int ordinal) {
  cudaDeviceProp device{};
  if (const cudaError_t error = cudaGetDeviceProperties(&device, ordinal); error != cudaSuccess) {
    cudaGetLastError();  // it has been heard
    return unusable(
        absl::StrCat("GPU ", ordinal, ": ", cuda_error_text(error), "; check nvidia-smi"));
  }
  return GpuProperties{.ordinal = ordinal,
                       .name = device.name,
                       .compute_capability = device.major * 10 + device.minor,
                       .num_sms = device.multiProcessorCount,
                       .total_bytes = static_cast<int64_t>(device.totalGlobalMem)};
}

absl::Status check_capability(const GpuProperties& gpu) {
  const std::string what =
      absl::StrCat("GPU ", gpu.ordinal, " (", gpu.name, ") has compute capability ",
                   capability_text(gpu.compute_capability));
  if (gpu.compute_capability < kMinComputeCapability) {
    return unusable(absl::StrCat(what, ", the minimum is ", capability_text(kMinComputeCapability),
                                 "; choose another one with device.ordinal, or use cpu"));
  }
  if (!has_kernels_for(gpu.compute_capability, DHS_CUDA_ARCHITECTURES)) {
    return unusable(absl::StrCat(what, ", this program's kernels are for ", DHS_CUDA_ARCHITECTURES,
                                 "; build it with DHS_CUDA_ARCHITECTURES for this one"));
  }
  return absl::OkStatus();
}

// The host tier is read through the pointers that the host uses.
absl::Status check_host_pointers(const GpuProperties& gpu) {
  for (cudaDeviceAttr name :
       {cudaDevAttrUnifiedAddressing, cudaDevAttrCanUseHostPointerForRegisteredMem}) {
    DHS_ASSIGN_OR_RETURN(const int value, attribute(name, gpu.ordinal));
    if (value != 0) continue;
    return unusable(absl::StrCat(
        "GPU ", gpu.ordinal, " (", gpu.name, ") cannot use host pointers of registered memory",
        " (attribute ", static_cast<int>(name), " is 0, 1 is needed); use a driver and a platform",
        " with unified addressing, or cpu"));
  }
  return absl::OkStatus();
}

absl::Status check_memory(const GpuProperties& gpu, const DeviceConfig& config) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cudaError_t error = cudaSetDevice(gpu.ordinal);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (error != cudaSuccess) {
    cudaGetLastError();  // it has been heard
    return unusable(absl::StrCat("GPU ", gpu.ordinal, " (", gpu.name, ") has no usable memory: ",
                                 cuda_error_text(error), "; free the GPU, check nvidia-smi"));
  }
  const int64_t needed = config.memory_bytes + 2 * config.scratch_bytes;
  if (static_cast<int64_t>(free_bytes) >= needed) return absl::OkStatus();
  return unusable(absl::StrCat("GPU ", gpu.ordinal, " (", gpu.name, ") has ", free_bytes, " of ",
                               total_bytes, " bytes free, device.memory and two device.scratch ",
                               "take ", needed, "; lower them or free the GPU"));
}

absl::StatusOr<GpuProperties> find_usable_gpu(const DeviceConfig& config) {
  int num_gpus = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_gpus);
  if (error != cudaSuccess || num_gpus == 0) return explain_no_gpus(error);
  if (config.ordinal >= num_gpus) {
    return unusable(absl::StrCat("device.ordinal is ", config.ordinal, ", ", num_gpus,
                                 " GPUs are visible, the first is 0; lower device.ordinal"));
  }
  DHS_ASSIGN_OR_RETURN(GpuProperties gpu, read_properties(config.ordinal));
  DHS_RETURN_IF_ERROR(check_capability(gpu));
  DHS_RETURN_IF_ERROR(check_host_pointers(gpu));
  DHS_RETURN_IF_ERROR(check_memory(gpu, config));
  return gpu;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> open_cuda_device(const DeviceConfig& config) {
  DHS_ASSIGN_OR_RETURN(GpuProperties gpu, find_usable_gpu(config));
  DHS_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device,
                       CudaDevice::create(std::move(gpu), config.scratch_bytes));
  return device;
}

}  // namespace dhs
