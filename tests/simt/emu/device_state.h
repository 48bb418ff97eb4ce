// The emulated machine behind the CUDA runtime's functions: its memory, its streams, its errors,
// and the lock around them all.
#pragma once

#include <driver_types.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "simt/emu/device_memory.h"
#include "simt/emu/graph.h"
#include "simt/emu/stream_queue.h"

namespace simt {

class DeviceState {
 public:
  // Errors of queued work and of wrong calls, since the last take_errors().
  void add_error(std::string text);
  std::vector<std::string> take_errors();
  bool has_errors() const { return !errors_.empty(); }

  // After a kernel has failed every call answers with its error, until errors are taken.
  void break_context(cudaError_t error);
  cudaError_t context_error() const { return context_error_; }

  // Dynamic shared memory that cudaFuncSetAttribute has allowed a kernel on the current device.
  size_t max_shared_bytes(const void* kernel) const;
  void allow_shared_bytes(const void* kernel, size_t bytes);

  std::mutex mutex;
  DeviceMemory memory;
  StreamScheduler scheduler;
  std::set<Event*> events;
  std::set<Capture*> captures;  // in progress
  size_t num_graphs = 0;        // graphs and executable graphs that are not destroyed

 private:
  std::vector<std::string> errors_;
  cudaError_t context_error_ = cudaSuccess;
  std::map<std::pair<int, const void*>, size_t> max_shared_bytes_;  // by device and kernel
};

// Lives until the process ends: static objects of tests may free memory late.
DeviceState& device_state();

// The device that this host thread has chosen.
int& current_device();

enum class Needs : uint8_t {
  nothing,  // answers without a device
  device,
  no_capture  // also forbidden, as unsafe, while a capture is in progress
};

using Lock = StreamScheduler::Lock;

// What every function of the runtime does around its own work: takes the lock, answers for a
// missing driver, a broken context or a forbidden moment, and remembers the error.
cudaError_t api_call(Needs needs, const std::function<cudaError_t(Lock&)>& body);

// Reports a call that is wrong in itself and gives back `error`.
cudaError_t wrong_call(std::string text, cudaError_t error);

// The last error of this host thread.
cudaError_t& last_error();

// Whether a capture is in progress that forbids this thread unsafe calls; they make it invalid.
bool unsafe_call_breaks_capture();

// Queues the work on the stream, or adds it to what the stream captures.
cudaError_t submit(StreamQueue& stream, Work work);

// Null for a handle that is no stream (any more); reported.
StreamQueue* stream_of(cudaStream_t handle, const char* caller);
inline bool is_default_stream(cudaStream_t handle) {
  return handle == nullptr || handle == cudaStreamLegacy;
}

}  // namespace simt
