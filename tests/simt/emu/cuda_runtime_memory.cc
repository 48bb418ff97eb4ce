// The CUDA runtime's functions that reserve, copy and fill memory.
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <vector>

#include "simt/emu/access_checker.h"
#include "simt/emu/device_state.h"

using simt::AccessLog;
using simt::api_call;
using simt::device_state;
using simt::Lock;
using simt::MemoryKind;
using simt::Needs;
using simt::StreamQueue;
using simt::Work;

namespace {

// Rows of `width` bytes. A plain copy is one row.
struct Copy {
  void* to = nullptr;
  size_t to_pitch = 0;
  const void* from = nullptr;
  size_t from_pitch = 0;
  size_t width = 0;
  size_t height = 1;
  cudaMemcpyKind kind = cudaMemcpyDefault;

  size_t to_bytes() const { return height == 0 ? 0 : (height - 1) * to_pitch + width; }
  size_t from_bytes() const { return height == 0 ? 0 : (height - 1) * from_pitch + width; }
};

bool is_allocated(const void* data, size_t bytes) {
  return simt::buffers().find(reinterpret_cast<uintptr_t>(data), bytes) != nullptr;
}

// What the copy's kind says about an end, where it says it.
bool is_device_side(cudaMemcpyKind kind, bool destination) {
  if (kind == cudaMemcpyDeviceToDevice) return true;
  return kind == (destination ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost);
}

bool contradicts_kind(const void* data, cudaMemcpyKind kind, bool destination) {
  const auto* found = device_state().memory.find(reinterpret_cast<uintptr_t>(data));
  const bool is_device_memory = found != nullptr && found->kind == MemoryKind::device;
  const bool says_host = kind != cudaMemcpyDefault && !is_device_side(kind, destination);
  return is_device_memory && says_host;
}

cudaError_t check(const Copy& copy, const char* caller) {
  const auto& memory = device_state().memory;
  const auto report = [&](const char* end, const std::string& text) {
    return simt::wrong_call(std::string(caller) + " " + end + " " + text, cudaErrorInvalidValue);
  };
  if (copy.width == 0 || copy.height == 0) return cudaSuccess;
  if (const auto fault =
          memory.fault_of(copy.to, copy.to_bytes(), is_device_side(copy.kind, true))) {
    return report("writes", *fault);
  }
  if (const auto fault =
          memory.fault_of(copy.from, copy.from_bytes(), is_device_side(copy.kind, false))) {
    return report("reads", *fault);
  }
  if (contradicts_kind(copy.to, copy.kind, true) || contradicts_kind(copy.from, copy.kind, false)) {
    return simt::wrong_call(std::string(caller) + ": the kind says host, the memory is a device's",
                            cudaErrorInvalidMemcpyDirection);
  }
  return cudaSuccess;
}

void copy_rows(const Copy& copy, AccessLog& log) {
  for (size_t row = 0; row < copy.height; ++row) {
    auto* to = static_cast<std::byte*>(copy.to) + row * copy.to_pitch;
    const auto* from = static_cast<const std::byte*>(copy.from) + row * copy.from_pitch;
    std::memmove(to, from, copy.width);
    log.add(reinterpret_cast<uintptr_t>(to), copy.width, simt::AccessKind::write);
    log.add(reinterpret_cast<uintptr_t>(from), copy.width, simt::AccessKind::read);
  }
}

// Checked again when it runs: an end may have been freed by then.
Work work_of(const Copy& copy, const char* caller) {
  return {.name = {"copy"}, .run = [copy, caller](AccessLog& log) {
            const cudaError_t error = check(copy, caller);
            if (error == cudaSuccess) copy_rows(copy, log);
            return error;
          }};
}

// Ordinary host memory is read before the call returns, as drivers do.
Work staged(Copy copy, const char* caller) {
  auto bytes = std::make_shared<std::vector<std::byte>>(copy.from_bytes());
  std::memcpy(bytes->data(), copy.from, bytes->size());
  copy.from = bytes->data();
  Work work = work_of(copy, caller);
  work.run = [bytes, run = std::move(work.run)](AccessLog& log) { return run(log); };
  return work;
}

cudaError_t copy_now(const Copy& copy, const char* caller, Lock& lock) {
  if (simt::unsafe_call_breaks_capture()) return cudaErrorStreamCaptureImplicit;
  const cudaError_t error = check(copy, caller);
  if (error != cudaSuccess) return error;
  auto& scheduler = device_state().scheduler;
  scheduler.run_all_blocking(lock);
  if (device_state().context_error() != cudaSuccess) return device_state().context_error();
  return scheduler.run_now(work_of(copy, caller));
}

cudaError_t copy_async(const Copy& copy, cudaStream_t handle, const char* caller, Lock& lock) {
  if (copy.width == 0 || copy.height == 0) return cudaSuccess;
  if (simt::is_default_stream(handle)) return copy_now(copy, caller, lock);
  StreamQueue* stream = simt::stream_of(handle, caller);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  const cudaError_t error = check(copy, caller);
  if (error != cudaSuccess) return error;
  const bool captures = stream->capture != nullptr;
  const bool pageable_source = !is_allocated(copy.from, copy.from_bytes());
  const bool pageable_target = !is_allocated(copy.to, copy.to_bytes());
  if (pageable_source && !captures) return simt::submit(*stream, staged(copy, caller));
  const cudaError_t queued = simt::submit(*stream, work_of(copy, caller));
  if (queued != cudaSuccess || captures || !pageable_target) return queued;
  // Into ordinary host memory the call returns when the bytes have arrived.
  device_state().scheduler.run_stream(*stream, lock);
  return device_state().context_error();
}

Copy plain_copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return {
      .to = to, .to_pitch = bytes, .from = from, .from_pitch = bytes, .width = bytes, .kind = kind};
}

cudaError_t check_fill(void* data, size_t bytes) {
  const auto fault = device_state().memory.fault_of(data, bytes, true);
  if (!fault) return cudaSuccess;
  return simt::wrong_call("cudaMemset writes " + *fault, cudaErrorInvalidValue);
}

Work fill_work(void* data, int value, size_t bytes) {
  return {.name = {"memset"}, .run = [=](AccessLog& log) {
            const cudaError_t error = check_fill(data, bytes);
            if (error != cudaSuccess) return error;
            std::memset(data, value, bytes);
            log.add(reinterpret_cast<uintptr_t>(data), bytes, simt::AccessKind::write);
            return cudaSuccess;
          }};
}

cudaError_t fill_now(void* data, int value, size_t bytes, Lock& lock) {
  if (simt::unsafe_call_breaks_capture()) return cudaErrorStreamCaptureImplicit;
  device_state().scheduler.run_all_blocking(lock);
  return device_state().scheduler.run_now(fill_work(data, value, bytes));
}

cudaError_t free_memory(void* data, MemoryKind kind) {
  // Freeing waits for all work, on hardware too.
  // And it still works in a broken context, so that what cleans up leaves no leak behind.
  return api_call(Needs::nothing, [&](Lock& lock) {
    if (simt::unsafe_call_breaks_capture()) return cudaErrorStreamCaptureUnsupported;
    device_state().scheduler.run_all(lock);
    const cudaError_t error = device_state().memory.release(data, kind);
    if (error == cudaSuccess) return device_state().context_error();
    return simt::wrong_call("free of memory that is not allocated, or not by this kind of call",
                            error);
  });
}

}  // namespace

// ------------------------------------------------------------------------------------ allocation

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return api_call(Needs::no_capture, [&](Lock&) {
    return device_state().memory.allocate(data, bytes, MemoryKind::device, simt::current_device());
  });
}

cudaError_t cudaFree(void* data) { return free_memory(data, MemoryKind::device); }

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int) {
  return api_call(Needs::no_capture, [&](Lock&) {
    return device_state().memory.allocate(data, bytes, MemoryKind::pinned, 0);
  });
}

cudaError_t cudaMallocHost(void** data, size_t bytes) { return cudaHostAlloc(data, bytes, 0); }

cudaError_t cudaFreeHost(void* data) { return free_memory(data, MemoryKind::pinned); }

cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned int) {
  return api_call(Needs::no_capture,
                  [&](Lock&) { return device_state().memory.add_registered(data, bytes); });
}

cudaError_t cudaHostUnregister(void* data) {
  return api_call(Needs::nothing, [&](Lock& lock) {
    if (simt::unsafe_call_breaks_capture()) return cudaErrorStreamCaptureUnsupported;
    device_state().scheduler.run_all(lock);
    return device_state().memory.remove_registered(data);
  });
}

cudaError_t cudaHostGetDevicePointer(void** device_data, void* host_data, unsigned int) {
  return api_call(Needs::device, [&](Lock&) {
    const auto* found = device_state().memory.find(reinterpret_cast<uintptr_t>(host_data));
    if (found == nullptr || found->kind == MemoryKind::device) return cudaErrorInvalidValue;
    *device_data = host_data;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return api_call(Needs::device, [&](Lock&) {
    *total = simt::options().device_memory_bytes;
    *free = *total - device_state().memory.device_bytes_in_use(simt::current_device());
    return cudaSuccess;
  });
}

// ----------------------------------------------------------------------------------------- copies

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return api_call(Needs::device, [&](Lock& lock) {
    return copy_now(plain_copy(to, from, bytes, kind), "cudaMemcpy", lock);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return api_call(Needs::device, [&](Lock& lock) {
    return copy_async(plain_copy(to, from, bytes, kind), stream, "cudaMemcpyAsync", lock);
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return api_call(Needs::device, [&](Lock& lock) {
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
    const Copy copy = {to, to_pitch, from, from_pitch, width, height, kind};
    return copy_async(copy, stream, "cudaMemcpy2DAsync", lock);
  });
}

cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  return api_call(Needs::device, [&](Lock& lock) { return fill_now(data, value, bytes, lock); });
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t handle) {
  return api_call(Needs::device, [&](Lock& lock) {
    if (simt::is_default_stream(handle)) return fill_now(data, value, bytes, lock);
    StreamQueue* stream = simt::stream_of(handle, "cudaMemsetAsync");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = check_fill(data, bytes);
    return error != cudaSuccess ? error : simt::submit(*stream, fill_work(data, value, bytes));
  });
}
