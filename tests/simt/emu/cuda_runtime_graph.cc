// The CUDA runtime's functions that capture streams into graphs and launch those.
#include <cuda_runtime_api.h>

#include "simt/emu/device_state.h"

using simt::api_call;
using simt::Capture;
using simt::device_state;
using simt::Graph;
using simt::GraphExec;
using simt::Lock;
using simt::Needs;
using simt::StreamQueue;

namespace {

// Handles of graphs point to these.
using GraphHandle = std::shared_ptr<const Graph>;
using ExecHandle = std::shared_ptr<const GraphExec>;

template <class Handle, class Shared>
Handle make_handle(Shared shared) {
  ++device_state().num_graphs;
  return reinterpret_cast<Handle>(new Shared(std::move(shared)));
}

template <class Shared, class Handle>
void delete_handle(Handle handle) {
  --device_state().num_graphs;
  delete reinterpret_cast<Shared*>(handle);
}

cudaError_t begin_capture(StreamQueue& stream, cudaStreamCaptureMode mode) {
  if (stream.capture != nullptr) return cudaErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->begin(stream);
  device_state().captures.insert(capture.get());
  stream.capture = std::move(capture);
  return cudaSuccess;
}

cudaError_t end_capture(StreamQueue& stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != &stream) {
    capture->invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  const bool wrong_thread = capture->thread != std::this_thread::get_id();
  if (wrong_thread && capture->mode != cudaStreamCaptureModeRelaxed) {
    return cudaErrorStreamCaptureWrongThread;
  }
  capture->active = false;
  device_state().captures.erase(capture.get());
  for (const auto& [branch, state] : capture->branches) branch->capture = nullptr;
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!capture->is_joined()) return cudaErrorStreamCaptureUnjoined;
  *graph = make_handle<cudaGraph_t>(std::make_shared<const Graph>(std::move(capture->graph)));
  return cudaSuccess;
}

}  // namespace

// --------------------------------------------------------------------------------------- capture

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return api_call(Needs::device, [&](Lock&) {
    if (simt::is_default_stream(handle)) return cudaErrorStreamCaptureUnsupported;
    StreamQueue* stream = simt::stream_of(handle, "cudaStreamBeginCapture");
    return stream == nullptr ? cudaErrorInvalidResourceHandle : begin_capture(*stream, mode);
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return api_call(Needs::device, [&](Lock&) {
    StreamQueue* stream = simt::stream_of(handle, "cudaStreamEndCapture");
    return stream == nullptr ? cudaErrorInvalidResourceHandle : end_capture(*stream, graph);
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return api_call(Needs::device, [&](Lock&) {
    *status = cudaStreamCaptureStatusNone;
    if (simt::is_default_stream(handle)) return cudaSuccess;
    StreamQueue* stream = simt::stream_of(handle, "cudaStreamIsCapturing");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) {
      *status = stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    }
    return cudaSuccess;
  });
}

// ---------------------------------------------------------------------------------------- graphs

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* handle, cudaGraph_t graph, unsigned long long) {
  return api_call(Needs::device, [&](Lock&) {
    if (graph == nullptr) return cudaErrorInvalidValue;
    auto exec = std::make_shared<GraphExec>();
    exec->graph = *reinterpret_cast<GraphHandle*>(graph);
    for (size_t i = 0; i < exec->graph->num_branches; ++i) {
      exec->branch_ids.push_back(device_state().scheduler.new_stream_id());
    }
    *handle = make_handle<cudaGraphExec_t>(ExecHandle(std::move(exec)));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return api_call(Needs::device, [&](Lock&) {
    StreamQueue* stream = simt::stream_of(handle, "cudaGraphLaunch");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (exec == nullptr) return cudaErrorInvalidValue;
    if (stream->capture != nullptr) {
      return simt::wrong_call("cudaGraphLaunch into a capture is not emulated",
                              cudaErrorNotSupported);
    }
    const ExecHandle& launched = *reinterpret_cast<ExecHandle*>(exec);
    device_state().scheduler.push(*stream, {.graph = std::make_shared<simt::GraphRun>(launched)});
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* num_nodes) {
  return api_call(Needs::device, [&](Lock&) {
    if (graph == nullptr) return cudaErrorInvalidValue;
    if (nodes != nullptr) {
      return simt::wrong_call("cudaGraphGetNodes: only the count is emulated",
                              cudaErrorNotSupported);
    }
    *num_nodes = (*reinterpret_cast<GraphHandle*>(graph))->nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api_call(Needs::nothing, [&](Lock&) {
    if (graph == nullptr) return cudaErrorInvalidValue;
    delete_handle<GraphHandle>(graph);
    return cudaSuccess;
  });
}

// Launches that are queued keep what they need.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return api_call(Needs::nothing, [&](Lock&) {
    if (exec == nullptr) return cudaErrorInvalidValue;
    delete_handle<ExecHandle>(exec);
    return cudaSuccess;
  });
}
