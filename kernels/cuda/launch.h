// Launching a kernel from a launcher: errors stop the process with the op's name, since nothing
// after a failed launch can be trusted.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "dhisparse/stream.h"
#include "kernels/cuda/cuda.h"

namespace dhs::cuda {

// Dynamic shared memory beyond this needs allow_shared_bytes() before the first launch.
inline constexpr int64_t kDefaultSharedBytes = 48 << 10;

inline void check(cudaError_t error, const char* op) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s (%s)\n", op, cudaGetErrorString(error), cudaGetErrorName(error));
  std::abort();
}

struct Shape {
  dim3 grid;
  dim3 block;
  int64_t shared_bytes = 0;
};

// Queues kernel(args...) on the stream. An empty grid is nothing to do.
template <class... Params, class... Args>
void launch(const char* op, void (*kernel)(Params...), const Shape& shape, Stream stream,
            Args&&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  check(simt::launch(kernel, shape.grid, shape.block, static_cast<size_t>(shape.shared_bytes),
                     static_cast<cudaStream_t>(stream.handle), static_cast<Args&&>(args)...),
        op);
}

// Lets `kernel` use up to `bytes` of dynamic shared memory on the current device. Not legal during
// a capture, so launchers call it through a static OncePerDevice.
template <class Kernel>
void allow_shared_bytes(const char* op, Kernel* kernel, int64_t bytes) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        op);
}

// What a launcher has to do once on every GPU that it launches on. Static in the launcher; any
// thread, each with its own current device.
class OncePerDevice {
 public:
  template <class SetUp>
  void operator()(const char* op, const SetUp& set_up) {
    int device = 0;
    check(cudaGetDevice(&device), op);
    if (device >= kMaxDevices) check(cudaErrorInvalidDevice, op);
    std::atomic<bool>& is_done = is_done_[device];
    if (is_done.load(std::memory_order_acquire)) return;
    set_up();
    is_done.store(true, std::memory_order_release);
  }

 private:
  static constexpr int kMaxDevices = 1024;
  std::atomic<bool> is_done_[kMaxDevices] = {};
};

// Part of the stream's scratch: takes the next `count` T, 256-byte aligned. Null when it does not
// fit: the launcher has chosen a shape too large for the stream it was given.
class ScratchCarver {
 public:
  explicit ScratchCarver(Stream stream) : stream_(stream) {}

  template <class T>
  T* take(int64_t count) {
    const int64_t bytes = (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    if (used_ + bytes > stream_.scratch_bytes) return nullptr;
    T* data = reinterpret_cast<T*>(stream_.scratch + used_);
    used_ += bytes;
    return data;
  }
  int64_t left_bytes() const { return stream_.scratch_bytes - used_; }

 private:
  Stream stream_;
  int64_t used_ = 0;
};

}  // namespace dhs::cuda
