// Devices of the emulated machine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "dhisparse/device.h"
#include "simt/emu/runtime.h"

namespace dhs {

inline constexpr int64_t kTestScratchBytes = int64_t{1} << 20;

// What opens a GPU of the emulated machine as it is by default.
inline DeviceConfig gpu_config(int ordinal = 0) {
  return {.backend = BackendKind::kCuda,
          .memory_bytes = int64_t{1} << 20,
          .ordinal = ordinal,
          .scratch_bytes = kTestScratchBytes};
}

inline std::unique_ptr<Device> open_gpu(int ordinal = 0) {
  auto device = open_device(gpu_config(ordinal));
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

// Each test gets the emulated machine as it is by default, and leaves no error behind.
class EmulatedGpu : public testing::Test {
 protected:
  ~EmulatedGpu() override {
    EXPECT_EQ(simt::take_errors(), std::vector<std::string>());
    simt::options() = saved_;
  }

 private:
  const simt::Options saved_ = simt::options();
};

inline MemoryRange device_memory(Device& device, int64_t bytes) {
  auto range = device.allocate(bytes);
  EXPECT_TRUE(range.ok()) << range.status();
  return *std::move(range);
}

inline MemoryRange host_memory(Device& device, int64_t bytes) {
  auto range = device.allocate_host(bytes);
  EXPECT_TRUE(range.ok()) << range.status();
  return *std::move(range);
}

inline int64_t count_of(const MemoryRange& range, int value) {
  return std::count(range.data(), range.data() + range.bytes(), static_cast<std::byte>(value));
}

}  // namespace dhs
