// Where a kernel test's launches run and where their memory lies. One test source serves three
// programs: the CPU versions, the CUDA versions under emulation, the CUDA versions on a GPU. The
// last two are compiled with DHS_TEST_CUDA=1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

#ifndef DHS_TEST_CUDA
#define DHS_TEST_CUDA 0
#endif

#if DHS_TEST_CUDA
#include <cuda_runtime_api.h>
#endif

namespace dhs::test {

inline constexpr bool kOnCuda = DHS_TEST_CUDA != 0;
inline constexpr int64_t kScratchBytes = int64_t{8} << 20;

#if DHS_TEST_CUDA
inline void* allocate(size_t bytes) {
  void* data = nullptr;
  if (cudaMalloc(&data, bytes == 0 ? 1 : bytes) != cudaSuccess) std::abort();
  return data;
}
inline void release(void* data) { cudaFree(data); }
inline void* allocate_host(size_t bytes) {
  void* data = nullptr;
  if (cudaHostAlloc(&data, bytes == 0 ? 1 : bytes, cudaHostAllocDefault) != cudaSuccess) {
    std::abort();
  }
  return data;
}
inline void release_host(void* data) { cudaFreeHost(data); }
// Both wait for the work launched before.
inline void copy(void* to, const void* from, size_t bytes) {
  if (cudaDeviceSynchronize() != cudaSuccess) std::abort();
  if (bytes != 0 && cudaMemcpy(to, from, bytes, cudaMemcpyDefault) != cudaSuccess) std::abort();
}
// What launches are chosen for: the machine that runs them.
#ifdef DHS_SIMT
inline int num_sms() { return 8; }  // few, so that small problems fill them
inline int compute_capability() { return 80; }
#else
inline int device_attribute(cudaDeviceAttr name) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) != cudaSuccess) std::abort();
  if (cudaDeviceGetAttribute(&value, name, device) != cudaSuccess) std::abort();
  return value;
}
inline int num_sms() { return device_attribute(cudaDevAttrMultiProcessorCount); }
inline int compute_capability() {
  return 10 * device_attribute(cudaDevAttrComputeCapabilityMajor) +
         device_attribute(cudaDevAttrComputeCapabilityMinor);
}
#endif
inline Stream stream() {
  static const Stream made = [] {
    cudaStream_t handle = nullptr;
    if (cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking) != cudaSuccess) std::abort();
    return Stream{.handle = handle,
                  .scratch = static_cast<std::byte*>(allocate(kScratchBytes)),
                  .scratch_bytes = kScratchBytes,
                  .num_sms = num_sms(),
                  .compute_capability = compute_capability()};
  }();
  return made;
}
#else
inline void* allocate(size_t bytes) { return ::operator new (bytes, std::align_val_t{64}); }
inline void release(void* data) { ::operator delete (data, std::align_val_t{64}); }
inline void* allocate_host(size_t bytes) { return allocate(bytes); }
inline void release_host(void* data) { release(data); }
inline void copy(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
inline Stream stream() { return {}; }
#endif

// An array that launches can reach, in device memory.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    test::copy(data_, values.data(), size_ * sizeof(T));
  }
  explicit DeviceArray(size_t size)
      : data_(static_cast<T*>(allocate(size * sizeof(T)))), size_(size) {}
  DeviceArray(size_t size, T value) : DeviceArray(std::vector<T>(size, value)) {}
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() {
    if (data_ != nullptr) release(data_);
  }

  T* data() const { return data_; }
  size_t size() const { return size_; }
  void upload(const std::vector<T>& values) { test::copy(data_, values.data(), size_ * sizeof(T)); }
  // What it holds after all work launched so far.
  std::vector<T> download() const {
    std::vector<T> values(size_);
    test::copy(values.data(), data_, size_ * sizeof(T));
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// Pinned host memory: the host tier as kernels see it. Read it after synchronize() only.
class HostArray {
 public:
  explicit HostArray(const std::vector<std::byte>& bytes)
      : data_(static_cast<std::byte*>(allocate_host(bytes.size()))), size_(bytes.size()) {
    std::memcpy(data_, bytes.data(), size_);
  }
  HostArray(HostArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  HostArray& operator=(HostArray&&) = delete;
  ~HostArray() {
    if (data_ != nullptr) release_host(data_);
  }
  std::byte* data() const { return data_; }
  std::vector<std::byte> bytes() const { return {data_, data_ + size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Returns when all work launched so far is done.
inline void synchronize() { copy(nullptr, nullptr, 0); }

}  // namespace dhs::test
