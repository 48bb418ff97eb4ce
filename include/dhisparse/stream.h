// An ordered queue of device work, as kernels see it. Plain data: nvcc compiles this header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dhs {

// The CPU backend runs every launch before it returns and its handle is null; a CUDA stream's
// handle is its cudaStream_t. Copied freely; the Device that made it owns the queue.
struct Stream {
  void* handle = nullptr;
  // Device memory that any launch may use until it ends: launches of one stream follow each other,
  // so they share it. Launchers cut their work to fit. Empty on the CPU.
  std::byte* scratch = nullptr;
  int64_t scratch_bytes = 0;
  // What choosing a launch configuration needs to know of the device.
  int32_t num_sms = 0;
  int32_t compute_capability = 0;  // 80, 90, 100, ...
};

}  // namespace dhs
