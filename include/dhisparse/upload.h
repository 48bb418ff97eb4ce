// upload: the small tables of a step, from host code to device memory, without waiting.
//
// Two halves of pinned memory take turns, one per step: what was uploaded in one step stays
// untouched until the step after the next begins. So the host may be one step ahead of the device.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <span>

#include "dhisparse/device.h"

namespace dhs {

class Uploader {
 public:
  Uploader() = default;
  // bytes_per_step: of all uploads of one step, each rounded up to 64 bytes. `device` must outlive
  // it.
  static absl::StatusOr<Uploader> create(Device& device, int64_t bytes_per_step);

  // Precondition: the device has passed the uploads of the step before the latest one.
  void begin_step();

  // Queued on `stream`; `from` may change as soon as the call returns.
  template <class T>
  void upload(std::span<const T> from, T* to, Stream stream) {
    upload_bytes(from.data(), static_cast<int64_t>(from.size_bytes()), to, stream);
  }

 private:
  void upload_bytes(const void* from, int64_t bytes, void* to, Stream stream);

  Device* device_ = nullptr;
  MemoryRange staging_;  // both halves
  int64_t half_bytes_ = 0;
  int half_ = 0;
  int64_t used_ = 0;  // of the current half
};

}  // namespace dhs
