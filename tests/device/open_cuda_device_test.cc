// Why a GPU cannot be used: each reason, with auto and with cuda. What the emulated machine cannot
// be told is answered here in its place (the linker's --wrap).
#include <gmock/gmock.h>

#include <map>
#include <optional>

#include "emulated_gpu.h"

namespace {

std::optional<int> driver_version;
std::map<cudaDeviceAttr, int> attributes;

}  // namespace

extern "C" {
cudaError_t __real_cudaDriverGetVersion(int* version);
cudaError_t __wrap_cudaDriverGetVersion(int* version) {
  if (!driver_version) return __real_cudaDriverGetVersion(version);
  *version = *driver_version;
  return cudaSuccess;
}

cudaError_t __real_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t __wrap_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const auto found = attributes.find(attribute);
  if (found == attributes.end()) return __real_cudaDeviceGetAttribute(value, attribute, device);
  *value = found->second;
  return cudaSuccess;
}
}

namespace dhs {
namespace {

using testing::HasSubstr;

class OpenCudaDevice : public EmulatedGpu {
 protected:
  ~OpenCudaDevice() override {
    driver_version.reset();
    attributes.clear();
  }

  // `cuda` fails with the reason, `auto` logs the same words and takes the CPU.
  static void expect_reason(const std::string& reason, DeviceConfig config = gpu_config()) {
    const absl::Status status = open_device(config).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(status.message(), "device.backend: cuda: " + reason);
    config.backend = BackendKind::kAuto;
    testing::internal::CaptureStderr();
    const auto device = open_device(config);
    const std::string log = testing::internal::GetCapturedStderr();
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ((*device)->kind(), BackendKind::kCpu);
    EXPECT_THAT(log, HasSubstr("device.backend: auto: using the CPU: " + reason));
  }
};

TEST_F(OpenCudaDevice, auto_takes_a_usable_gpu) {
  DeviceConfig config = gpu_config();
  config.backend = BackendKind::kAuto;
  const auto device = open_device(config);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->kind(), BackendKind::kCuda);
}

TEST_F(OpenCudaDevice, cpu_is_the_cpu_on_a_machine_with_a_gpu_too) {
  const auto device = open_device({.backend = BackendKind::kCpu});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->kind(), BackendKind::kCpu);
}

TEST_F(OpenCudaDevice, no_driver_is_a_reason) {
  simt::options().driver_error = cudaErrorInsufficientDriver;
  expect_reason(
      "no NVIDIA driver (libcuda.so.1 is not found); install one that supports CUDA 13.0 or newer");
}

TEST_F(OpenCudaDevice, an_old_driver_is_a_reason_with_both_versions) {
  simt::options().driver_error = cudaErrorInsufficientDriver;
  driver_version = 12040;
  expect_reason("the NVIDIA driver supports CUDA 12.4, this program needs 13.0; update the driver");
}

TEST_F(OpenCudaDevice, the_stub_of_the_driver_is_a_reason) {
  simt::options().driver_error = cudaErrorStubLibrary;
  expect_reason(
      "libcuda.so.1 is the toolkit's stub, not a driver; take lib/stubs off LD_LIBRARY_PATH");
}

TEST_F(OpenCudaDevice, a_driver_that_answers_with_another_error_is_a_reason_with_its_words) {
  simt::options().driver_error = cudaErrorSystemDriverMismatch;
  const absl::Status status = open_device(gpu_config()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("looking for GPUs failed: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("check nvidia-smi"));
}

TEST_F(OpenCudaDevice, no_gpu_is_a_reason) {
  simt::options().device_count = 0;
  expect_reason("0 GPUs are visible, 1 is needed; check nvidia-smi and CUDA_VISIBLE_DEVICES");
}

TEST_F(OpenCudaDevice, an_ordinal_beyond_the_visible_gpus_is_a_reason) {
  simt::options().device_count = 2;
  expect_reason("device.ordinal is 2, 2 GPUs are visible, the first is 0; lower device.ordinal",
                gpu_config(2));
}

TEST_F(OpenCudaDevice, too_low_a_compute_capability_is_a_reason) {
  simt::options().compute_capability = 75;
  expect_reason(
      "GPU 0 (Emulated device 0) has compute capability 7.5, the minimum is 8.0; choose another "
      "one with device.ordinal, or use cpu");
}

TEST_F(OpenCudaDevice, a_gpu_that_no_kernel_was_compiled_for_is_a_reason) {
  simt::options().compute_capability = 120;
  const absl::Status status = open_device(gpu_config()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has compute capability 12.0, this program's kernels are for "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("build it with DHS_CUDA_ARCHITECTURES"));
}

TEST_F(OpenCudaDevice, a_gpu_that_cannot_use_host_pointers_is_a_reason) {
  for (cudaDeviceAttr attribute :
       {cudaDevAttrUnifiedAddressing, cudaDevAttrCanUseHostPointerForRegisteredMem}) {
    attributes = {{attribute, 0}};
    expect_reason(absl::StrCat(
        "GPU 0 (Emulated device 0) cannot use host pointers of registered memory (attribute ",
        static_cast<int>(attribute), " is 0, 1 is needed); use a driver and a platform with ",
        "unified addressing, or cpu"));
  }
}

TEST_F(OpenCudaDevice, too_little_free_memory_is_a_reason_with_both_numbers) {
  simt::options().device_memory_bytes = 3 << 20;
  DeviceConfig config = gpu_config();
  config.memory_bytes = (1 << 20) + 1;
  expect_reason(
      "GPU 0 (Emulated device 0) has 3145728 of 3145728 bytes free, device.memory and two "
      "device.scratch take 3145729; lower them or free the GPU",
      config);
  config.memory_bytes = 1 << 20;
  EXPECT_TRUE(open_device(config).ok());
}

}  // namespace
}  // namespace dhs
