#include "simt/emu/device_state.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "simt/emu/runtime.h"

namespace simt {
namespace {

constexpr size_t kDefaultSharedBytes = 48 << 10;
constexpr size_t kMaxErrors = 50;
constexpr int kExitStatus = 66;

// What a test leaves behind fails it, after all its own checks.
void judge_at_exit() {
  DeviceState& state = device_state();
  bool fails = state.has_errors();
  const std::string leaks = state.memory.leaks();
  if (fails) std::fprintf(stderr, "simt: the errors above were never looked at\n");
  if (!leaks.empty()) {
    std::fprintf(stderr, "simt: memory leak: %s\n", leaks.c_str());
    fails |= options().leaks_fail;
  }
  if (state.scheduler.num_streams() + state.events.size() + state.num_graphs != 0) {
    std::fprintf(stderr, "simt: leak: %zu streams, %zu events, %zu graphs are not destroyed\n",
                 state.scheduler.num_streams(), state.events.size(), state.num_graphs);
    fails |= options().leaks_fail;
  }
  if (!fails) return;
  std::fflush(nullptr);
  _exit(kExitStatus);
}

thread_local bool inside_host_function = false;

cudaError_t refusal(Needs needs) {
  if (inside_host_function) {
    return wrong_call("a host function calls CUDA", cudaErrorNotPermitted);
  }
  if (needs == Needs::nothing) return cudaSuccess;
  if (options().driver_error != cudaSuccess) return options().driver_error;
  if (options().device_count == 0) return cudaErrorNoDevice;
  if (needs == Needs::no_capture && unsafe_call_breaks_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  return device_state().context_error();
}

}  // namespace

DeviceState& device_state() {
  static DeviceState* state = [] {
    auto* made = new DeviceState;
    std::atexit(&judge_at_exit);
    return made;
  }();
  return *state;
}

int& current_device() {
  static thread_local int device = 0;
  return device;
}

cudaError_t& last_error() {
  static thread_local cudaError_t error = cudaSuccess;
  return error;
}

void DeviceState::add_error(std::string text) {
  std::fprintf(stderr, "simt: %s\n", text.c_str());
  if (errors_.size() < kMaxErrors) errors_.push_back(std::move(text));
}

std::vector<std::string> DeviceState::take_errors() {
  context_error_ = cudaSuccess;
  last_error() = cudaSuccess;
  return std::exchange(errors_, {});
}

void DeviceState::break_context(cudaError_t error) {
  if (context_error_ == cudaSuccess) context_error_ = error;
  scheduler.drop_all();
}

void DeviceState::allow_shared_bytes(const void* kernel, size_t bytes) {
  max_shared_bytes_[{current_device(), kernel}] = bytes;
}

size_t DeviceState::max_shared_bytes(const void* kernel) const {
  const auto found = max_shared_bytes_.find({current_device(), kernel});
  return found == max_shared_bytes_.end() ? kDefaultSharedBytes : found->second;
}

cudaError_t api_call(Needs needs, const std::function<cudaError_t(Lock&)>& body) {
  Lock lock(device_state().mutex, std::defer_lock);
  // A host function runs on a thread that may hold the lock already.
  if (!inside_host_function) lock.lock();
  cudaError_t error = refusal(needs);
  if (error == cudaSuccess) error = body(lock);
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error() = error;
  return error;
}

cudaError_t wrong_call(std::string text, cudaError_t error) {
  device_state().add_error(std::move(text));
  return error;
}

bool unsafe_call_breaks_capture() {
  bool breaks = false;
  for (Capture* capture : device_state().captures) {
    const bool other_thread = capture->thread != std::this_thread::get_id();
    const bool forgiven = capture->mode == cudaStreamCaptureModeRelaxed ||
                          (capture->mode == cudaStreamCaptureModeThreadLocal && other_thread);
    if (forgiven) continue;
    capture->invalid = true;
    breaks = true;
  }
  return breaks;
}

cudaError_t submit(StreamQueue& stream, Work work) {
  if (work.is_host_function) {
    work.run = [run = std::move(work.run)](AccessLog& log) {
      inside_host_function = true;
      const cudaError_t error = run(log);
      inside_host_function = false;
      return error;
    };
  }
  auto shared = std::make_shared<const Work>(std::move(work));
  if (stream.capture != nullptr) {
    if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
    stream.capture->add(stream, std::move(shared));
  } else {
    device_state().scheduler.push(stream, {.work = std::move(shared)});
  }
  return cudaSuccess;
}

StreamQueue* stream_of(cudaStream_t handle, const char* caller) {
  auto* stream = reinterpret_cast<StreamQueue*>(handle);
  if (device_state().scheduler.is_alive(stream)) return stream;
  wrong_call(std::string(caller) + ": no such stream, or it is destroyed",
             cudaErrorInvalidResourceHandle);
  return nullptr;
}

// ------------------------------------------------------------------------------------ for tests

std::vector<std::string> take_errors() {
  const Lock lock(device_state().mutex);
  return device_state().take_errors();
}

}  // namespace simt
