// The CUDA runtime's functions about devices, errors and kernels' attributes.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "simt/emu/device_state.h"
#include "simt/emu/runtime.h"

using simt::api_call;
using simt::device_state;
using simt::Lock;
using simt::Needs;
using simt::options;

namespace {

constexpr int kToolkitVersion = CUDART_VERSION;
constexpr size_t kMaxSharedBytes = 227 << 10;
constexpr size_t kSharedBytesPerSm = 228 << 10;
constexpr size_t kReservedSharedBytes = 1 << 10;  // per block
constexpr int kMaxThreadsPerSm = 2048;
constexpr int kMaxBlocksPerSm = 32;
constexpr int kMaxThreadsPerBlock = 1024;

bool is_device(int device) { return device >= 0 && device < options().device_count; }

void fill(cudaDeviceProp& prop, int device) {
  prop = {};
  std::snprintf(prop.name, sizeof prop.name, "Emulated device %d", device);
  prop.totalGlobalMem = options().device_memory_bytes;
  prop.sharedMemPerBlock = 48 << 10;
  prop.sharedMemPerBlockOptin = kMaxSharedBytes;
  prop.sharedMemPerMultiprocessor = kSharedBytesPerSm;
  prop.reservedSharedMemPerBlock = kReservedSharedBytes;
  prop.regsPerBlock = 65536;
  prop.regsPerMultiprocessor = 65536;
  prop.warpSize = 32;
  prop.maxThreadsPerBlock = kMaxThreadsPerBlock;
  prop.maxThreadsPerMultiProcessor = kMaxThreadsPerSm;
  prop.maxBlocksPerMultiProcessor = kMaxBlocksPerSm;
  prop.maxGridSize[0] = 0x7fffffff;
  prop.maxGridSize[1] = prop.maxGridSize[2] = 65535;
  prop.maxThreadsDim[0] = prop.maxThreadsDim[1] = kMaxThreadsPerBlock;
  prop.maxThreadsDim[2] = 64;
  prop.major = options().compute_capability / 10;
  prop.minor = options().compute_capability % 10;
  prop.multiProcessorCount = options().num_sms;
  prop.unifiedAddressing = 1;
  prop.canMapHostMemory = 1;
  prop.concurrentKernels = 1;
  prop.asyncEngineCount = 2;
  prop.l2CacheSize = 50 << 20;
  prop.memoryBusWidth = 5120;
  prop.pciBusID = device + 1;
  prop.canUseHostPointerForRegisteredMem = 1;
}

cudaError_t attribute(int* value, cudaDeviceAttr attr, const cudaDeviceProp& prop) {
  switch (attr) {
    case cudaDevAttrMultiProcessorCount:
      *value = prop.multiProcessorCount;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = prop.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = prop.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = int(prop.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = int(prop.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = int(prop.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = prop.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = prop.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrWarpSize:
      *value = prop.warpSize;
      break;
    case cudaDevAttrL2CacheSize:
      *value = prop.l2CacheSize;
      break;
    case cudaDevAttrClockRate:
      *value = 1'980'000;  // kHz
      break;
    case cudaDevAttrMemoryClockRate:
      *value = 2'619'000;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = prop.memoryBusWidth;
      break;
    case cudaDevAttrAsyncEngineCount:
      *value = prop.asyncEngineCount;
      break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      *value = 1;
      break;
    default:
      return simt::wrong_call(
          "cudaDeviceGetAttribute: attribute " + std::to_string(int(attr)) + " is not emulated",
          cudaErrorNotSupported);
  }
  return cudaSuccess;
}

}  // namespace

// -------------------------------------------------------------------------------------- devices

cudaError_t cudaGetDeviceCount(int* count) {
  return api_call(Needs::nothing, [&](Lock&) {
    if (options().driver_error != cudaSuccess) return options().driver_error;
    *count = options().device_count;
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return api_call(Needs::device, [&](Lock&) {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    simt::current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return api_call(Needs::device, [&](Lock&) {
    *device = simt::current_device();
    return cudaSuccess;
  });
}

// Succeeds with 0 when there is no driver.
cudaError_t cudaDriverGetVersion(int* version) {
  return api_call(Needs::nothing, [&](Lock&) {
    *version = options().driver_error == cudaSuccess ? kToolkitVersion : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return api_call(Needs::nothing, [&](Lock&) {
    *version = kToolkitVersion;
    return cudaSuccess;
  });
}

// The header may rename it to a versioned symbol: this defines whatever it is called.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return api_call(Needs::device, [&](Lock&) {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    fill(*prop, device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return api_call(Needs::device, [&](Lock&) {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    cudaDeviceProp prop;
    fill(prop, device);
    return attribute(value, attr, prop);
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return api_call(Needs::device, [&](Lock&) {
    if (!is_device(device) || !is_device(peer)) return cudaErrorInvalidDevice;
    *can = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return api_call(Needs::device, [&](Lock&) {
    if (flags != 0) return cudaErrorInvalidValue;
    const bool is_peer = is_device(peer) && peer != simt::current_device();
    return is_peer ? cudaSuccess : cudaErrorInvalidDevice;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return api_call(Needs::device, [&](Lock&) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return api_call(Needs::no_capture, [](Lock& lock) {
    device_state().scheduler.run_all(lock);
    return device_state().context_error();
  });
}

// --------------------------------------------------------------------------------------- errors

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  simt::last_error() = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  const Lock lock(device_state().mutex);
  const cudaError_t broken = device_state().context_error();
  return broken != cudaSuccess ? broken : simt::last_error();
}

// -------------------------------------------------------------------------------------- kernels

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attr, int value) {
  return api_call(Needs::device, [&](Lock&) {
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || size_t(value) > kMaxSharedBytes) return cudaErrorInvalidValue;
    device_state().allow_shared_bytes(kernel, size_t(value));
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* num_blocks, const void* kernel,
                                                          int block_size, size_t shared_bytes) {
  return api_call(Needs::device, [&](Lock&) {
    if (block_size <= 0 || block_size > kMaxThreadsPerBlock) return cudaErrorInvalidValue;
    *num_blocks = 0;
    if (shared_bytes > device_state().max_shared_bytes(kernel)) return cudaSuccess;
    const size_t by_shared = kSharedBytesPerSm / (shared_bytes + kReservedSharedBytes);
    *num_blocks = std::min({kMaxThreadsPerSm / block_size, int(by_shared), kMaxBlocksPerSm});
    return cudaSuccess;
  });
}
