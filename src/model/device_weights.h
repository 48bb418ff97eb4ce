// Weights on their way to the device: through pinned memory, at load time.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <vector>

#include "dhisparse/device.h"

namespace dhs {

// A small vector in device memory, immutable after loading.
template <class T>
struct DeviceVector {
  MemoryRange memory;
  const T* data() const { return memory.as<const T>(); }
};

class WeightUploader {
 public:
  static absl::StatusOr<WeightUploader> create(Device& device);

  Device& device() const { return *device_; }
  Stream stream() const { return device_->stream(); }

  // Returns when the bytes are there. RESOURCE_EXHAUSTED when the device has no room.
  absl::StatusOr<MemoryRange> upload(const void* from, int64_t bytes);

 private:
  WeightUploader(Device* device, MemoryRange staging)
      : device_(device), staging_(std::move(staging)) {}

  Device* device_;
  MemoryRange staging_;
};

}  // namespace dhs
