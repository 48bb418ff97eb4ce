#include "cuda_device.h"

#include <cuda_runtime_api.h>

#include "cuda_backend.h"
#include "cuda_error.h"
#include "dhisparse/base.h"
#include "pinned_memory.h"

namespace dhs {
namespace {

constexpr int64_t kScratchAlignment = 256;

cudaStream_t handle_of(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

void queue_copy(void* to, const void* from, int64_t bytes, Stream stream) {
  for_each_part(to, from, bytes, kPinnedPieceBytes, [&](int64_t offset, int64_t part_bytes) {
    check_cuda(
        cudaMemcpyAsync(static_cast<std::byte*>(to) + offset,
                        static_cast<const std::byte*>(from) + offset,
                        static_cast<size_t>(part_bytes), cudaMemcpyDefault, handle_of(stream)),
        "copy");
  });
}

class CudaEvent final : public Event {
 public:
  CudaEvent() {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "create an event");
  }
  ~CudaEvent() override { check_cuda(cudaEventDestroy(event_), "destroy an event"); }

  void record(Stream stream) override {
    check_cuda(cudaEventRecord(event_, handle_of(stream)), "record an event");
  }
  void block(Stream stream) override {
    check_cuda(cudaStreamWaitEvent(handle_of(stream), event_, 0), "wait for an event");
  }
  bool is_done() const override {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) return false;
    check_cuda(error, "work before an event");
    return true;
  }
  void synchronize() override { check_cuda(cudaEventSynchronize(event_), "work before an event"); }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraph_t captured) {
    check_cuda(cudaGraphInstantiate(&graph_, captured, 0), "instantiate a graph");
    check_cuda(cudaGraphDestroy(captured), "destroy a captured graph");
  }
  ~CudaGraph() override { check_cuda(cudaGraphExecDestroy(graph_), "destroy a graph"); }
  cudaGraphExec_t get() const { return graph_; }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::create(GpuProperties properties,
                                                               int64_t scratch_bytes) {
  auto device = std::unique_ptr<CudaDevice>(new CudaDevice(std::move(properties)));
  const int64_t one = round_up(scratch_bytes, kScratchAlignment);
  DHS_ASSIGN_OR_RETURN(device->scratch_, device->allocate(2 * one));
  device->stream_.scratch = device->scratch_.data();
  device->copy_stream_.scratch = device->scratch_.data() + one;
  device->stream_.scratch_bytes = device->copy_stream_.scratch_bytes = one;
  return device;
}

CudaDevice::CudaDevice(GpuProperties properties) : properties_(std::move(properties)) {
  attach_thread();
  stream_ = make_stream();
  copy_stream_ = make_stream();
}

CudaDevice::~CudaDevice() {
  attach_thread();
  synchronize();
  for (const Stream& stream : {stream_, copy_stream_}) {
    check_cuda(cudaStreamDestroy(handle_of(stream)), "destroy a stream");
  }
}

Stream CudaDevice::make_stream() const {
  cudaStream_t handle = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "create a stream");
  return {.handle = handle,
          .num_sms = properties_.num_sms,
          .compute_capability = properties_.compute_capability};
}

std::string CudaDevice::description() const {
  return absl::StrCat("cuda (GPU ", properties_.ordinal, ": ", properties_.name, ", sm_",
                      properties_.compute_capability, ", ", properties_.num_sms, " SMs, ",
                      properties_.total_bytes >> 20, " MiB)");
}

void CudaDevice::attach_thread() {
  check_cuda(cudaSetDevice(properties_.ordinal), "choose the device");
}

absl::StatusOr<MemoryRange> CudaDevice::allocate(int64_t bytes) {
  DHS_CHECK(bytes >= 0, "device memory of ", bytes, " bytes");
  if (bytes == 0) return MemoryRange();
  attach_thread();
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it has been heard
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "ask for free device memory");
    return absl::ResourceExhaustedError(absl::StrCat(
        "device memory of ", bytes, " bytes asked for, ", free_bytes, " of ", total_bytes,
        " bytes free on GPU ", properties_.ordinal, "; lower device.memory, or free memory"));
  }
  check_cuda(error, "allocate device memory");
  MemoryRange range(static_cast<std::byte*>(data), bytes, [](std::byte* owned, int64_t) {
    check_cuda(cudaFree(owned), "free device memory");
  });
  fill(data, std::byte{0}, bytes, stream_);
  check_cuda(cudaStreamSynchronize(handle_of(stream_)), "clear device memory");
  return range;
}

absl::StatusOr<MemoryRange> CudaDevice::allocate_host(int64_t bytes) {
  attach_thread();
  return reserve_pinned_memory(bytes, properties_.ordinal);
}

std::unique_ptr<Event> CudaDevice::make_event() {
  attach_thread();
  return std::make_unique<CudaEvent>();
}

void CudaDevice::copy(void* to, const void* from, int64_t bytes, Stream stream) {
  queue_copy(to, from, bytes, stream);
}

void CudaDevice::fill(void* to, std::byte value, int64_t bytes, Stream stream) {
  for_each_part(to, to, bytes, kPinnedPieceBytes, [&](int64_t offset, int64_t part_bytes) {
    check_cuda(cudaMemsetAsync(static_cast<std::byte*>(to) + offset, static_cast<int>(value),
                               static_cast<size_t>(part_bytes), handle_of(stream)),
               "fill");
  });
}

void CudaDevice::synchronize() {
  attach_thread();
  check_cuda(cudaDeviceSynchronize(), "work launched before a synchronisation");
}

void CudaDevice::begin_capture() {
  check_cuda(cudaStreamBeginCapture(handle_of(stream_), cudaStreamCaptureModeThreadLocal),
             "begin a capture");
}

std::unique_ptr<Graph> CudaDevice::end_capture() {
  cudaGraph_t captured = nullptr;
  check_cuda(cudaStreamEndCapture(handle_of(stream_), &captured), "end a capture");
  return std::make_unique<CudaGraph>(captured);
}

void CudaDevice::launch(const Graph& graph) {
  check_cuda(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).get(), handle_of(stream_)),
             "launch a graph");
}

void copy_and_wait_cuda(void* to, const void* from, int64_t bytes, Stream stream) {
  queue_copy(to, from, bytes, stream);
  check_cuda(cudaStreamSynchronize(handle_of(stream)), "work before a copy");
}

}  // namespace dhs
