// The CUDA runtime's functions about streams, events and host functions.
#include <cuda_runtime_api.h>

#include <string>

#include "simt/emu/device_state.h"

using simt::AccessLog;
using simt::api_call;
using simt::Capture;
using simt::device_state;
using simt::Event;
using simt::Lock;
using simt::Needs;
using simt::StreamQueue;

namespace {

// Null for a handle that is no event (any more); reported.
Event* event_of(cudaEvent_t handle, const char* caller) {
  auto* event = reinterpret_cast<Event*>(handle);
  if (device_state().events.contains(event)) return event;
  simt::wrong_call(std::string(caller) + ": no such event, or it is destroyed",
                   cudaErrorInvalidResourceHandle);
  return nullptr;
}

cudaError_t create_stream(cudaStream_t* handle, unsigned flags, int priority) {
  return api_call(Needs::no_capture, [&](Lock&) {
    if ((flags & ~cudaStreamNonBlocking) != 0) return cudaErrorInvalidValue;
    StreamQueue* stream = device_state().scheduler.create(flags, priority, simt::current_device());
    *handle = reinterpret_cast<cudaStream_t>(stream);
    return cudaSuccess;
  });
}

// Waiting for a stream that captures ends the capture.
cudaError_t refuse_capturing(StreamQueue& stream) {
  if (stream.capture == nullptr) return cudaSuccess;
  stream.capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t record_event(Event& event, StreamQueue& stream) {
  if (stream.capture != nullptr) {
    event.recording = nullptr;
    event.capture = stream.capture;
    event.frontier = stream.capture->branches.at(&stream).frontier;
    return cudaSuccess;
  }
  event.capture = nullptr;
  event.recording = std::make_shared<simt::Recording>();
  device_state().scheduler.push(stream, {.records = event.recording});
  return cudaSuccess;
}

// A wait between streams of one capture becomes an edge of the graph and draws the waiting stream
// into the capture.
cudaError_t wait_for_captured(StreamQueue& stream, const Event& event) {
  if (!event.capture->active) return cudaErrorCapturedEvent;
  if (stream.capture != nullptr && stream.capture != event.capture) {
    return cudaErrorStreamCaptureMerge;
  }
  stream.capture = event.capture;
  event.capture->join(stream, event.frontier);
  return cudaSuccess;
}

cudaError_t wait_for_event(StreamQueue& stream, const Event& event) {
  if (event.capture != nullptr) return wait_for_captured(stream, event);
  if (stream.capture != nullptr) {
    stream.capture->invalid = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (event.recording == nullptr) return cudaSuccess;
  device_state().scheduler.push(stream, {.waits_for = event.recording});
  return cudaSuccess;
}

cudaError_t with_stream(cudaStream_t handle, const char* caller,
                        const std::function<cudaError_t(StreamQueue&, Lock&)>& body) {
  return api_call(Needs::device, [&](Lock& lock) {
    StreamQueue* stream = simt::stream_of(handle, caller);
    return stream == nullptr ? cudaErrorInvalidResourceHandle : body(*stream, lock);
  });
}

cudaError_t with_event(cudaEvent_t handle, const char* caller,
                       const std::function<cudaError_t(Event&, Lock&)>& body) {
  return api_call(Needs::device, [&](Lock& lock) {
    Event* event = event_of(handle, caller);
    return event == nullptr ? cudaErrorInvalidResourceHandle : body(*event, lock);
  });
}

}  // namespace

// --------------------------------------------------------------------------------------- streams

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return create_stream(stream, 0, 0); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return create_stream(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return create_stream(stream, flags, priority);
}

// What is queued is still done. Works in a broken context too, so that tests can clean up.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return api_call(Needs::nothing, [&](Lock& lock) {
    StreamQueue* stream = simt::stream_of(handle, "cudaStreamDestroy");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = refuse_capturing(*stream);
    if (error != cudaSuccess) return error;
    device_state().scheduler.run_stream(*stream, lock);
    device_state().scheduler.destroy(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  if (simt::is_default_stream(handle)) {
    return api_call(Needs::no_capture, [](Lock& lock) {
      device_state().scheduler.run_all_blocking(lock);
      return device_state().context_error();
    });
  }
  return with_stream(handle, "cudaStreamSynchronize", [](StreamQueue& stream, Lock& lock) {
    const cudaError_t error = refuse_capturing(stream);
    if (error != cudaSuccess) return error;
    device_state().scheduler.run_stream(stream, lock);
    return device_state().context_error();
  });
}

// Work goes on a little while the host keeps asking.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return with_stream(handle, "cudaStreamQuery", [](StreamQueue& stream, Lock& lock) {
    const cudaError_t error = refuse_capturing(stream);
    if (error != cudaSuccess) return error;
    if (stream.items.empty()) {
      device_state().scheduler.host_saw(stream.clock);
      return cudaSuccess;
    }
    device_state().scheduler.run_one(lock);
    const cudaError_t broken = device_state().context_error();
    return broken != cudaSuccess ? broken : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle,
                                unsigned int flags) {
  return with_stream(stream_handle, "cudaStreamWaitEvent", [&](StreamQueue& stream, Lock&) {
    if (flags != cudaEventWaitDefault) {
      return simt::wrong_call("cudaStreamWaitEvent: flags are not emulated", cudaErrorNotSupported);
    }
    const Event* event = event_of(event_handle, "cudaStreamWaitEvent");
    return event == nullptr ? cudaErrorInvalidResourceHandle : wait_for_event(stream, *event);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return with_stream(handle, "cudaLaunchHostFunc", [&](StreamQueue& stream, Lock&) {
    simt::Work work = {.name = {"host function"}, .run = [=](AccessLog&) {
                         function(data);
                         return cudaSuccess;
                       }};
    work.is_host_function = true;
    return simt::submit(stream, std::move(work));
  });
}

// ---------------------------------------------------------------------------------------- events

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned int flags) {
  return api_call(Needs::device, [&](Lock&) {
    auto* event = new Event;
    event->flags = flags;
    device_state().events.insert(event);
    *handle = reinterpret_cast<cudaEvent_t>(event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return api_call(Needs::nothing, [&](Lock&) {
    Event* event = event_of(handle, "cudaEventDestroy");
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    device_state().events.erase(event);
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t stream_handle) {
  return with_event(event_handle, "cudaEventRecord", [&](Event& event, Lock&) {
    StreamQueue* stream = simt::stream_of(stream_handle, "cudaEventRecord");
    return stream == nullptr ? cudaErrorInvalidResourceHandle : record_event(event, *stream);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return with_event(handle, "cudaEventSynchronize", [](Event& event, Lock& lock) {
    if (event.capture != nullptr) {
      event.capture->invalid = true;
      return cudaErrorCapturedEvent;
    }
    const auto recording = event.recording;
    if (recording != nullptr) device_state().scheduler.run_recording(*recording, lock);
    return device_state().context_error();
  });
}

// The first answer about unfinished work is always "not ready".
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return with_event(handle, "cudaEventQuery", [](Event& event, Lock& lock) {
    if (event.capture != nullptr) {
      event.capture->invalid = true;
      return cudaErrorCapturedEvent;
    }
    const auto recording = event.recording;
    if (recording == nullptr) return cudaSuccess;
    if (recording->done) {
      device_state().scheduler.host_saw(recording->clock);
      return cudaSuccess;
    }
    device_state().scheduler.run_one(lock);
    const cudaError_t broken = device_state().context_error();
    return broken != cudaSuccess ? broken : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start_handle, cudaEvent_t end_handle) {
  return with_event(start_handle, "cudaEventElapsedTime", [&](Event& start, Lock&) {
    const Event* end = event_of(end_handle, "cudaEventElapsedTime");
    if (end == nullptr || ((start.flags | end->flags) & cudaEventDisableTiming) != 0 ||
        start.recording == nullptr || end->recording == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!start.recording->done || !end->recording->done) return cudaErrorNotReady;
    const auto time = end->recording->time - start.recording->time;
    *ms = std::chrono::duration<float, std::milli>(time).count();
    return cudaSuccess;
  });
}
