// A GPU through the CUDA runtime. Every call is checked: what fails for want of memory at start-up
// is a status, anything else stops the process.
#pragma once

#include "dhisparse/device.h"

namespace dhs {

// What opening found out about the GPU.
struct GpuProperties {
  int ordinal = 0;
  std::string name;
  int compute_capability = 0;  // 90: 9.0
  int num_sms = 0;
  int64_t total_bytes = 0;
};

class CudaDevice final : public Device {
 public:
  // Makes both streams and their scratch. RESOURCE_EXHAUSTED when there is no memory for it.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> create(GpuProperties properties,
                                                            int64_t scratch_bytes);
  ~CudaDevice() override;

  BackendKind kind() const override { return BackendKind::kCuda; }
  std::string description() const override;
  void attach_thread() override;
  absl::StatusOr<MemoryRange> allocate(int64_t bytes) override;
  absl::StatusOr<MemoryRange> allocate_host(int64_t bytes) override;
  Stream stream() override { return stream_; }
  Stream copy_stream() override { return copy_stream_; }
  std::unique_ptr<Event> make_event() override;
  void copy(void* to, const void* from, int64_t bytes, Stream stream) override;
  void fill(void* to, std::byte value, int64_t bytes, Stream stream) override;
  void synchronize() override;
  bool has_graphs() const override { return true; }
  void begin_capture() override;
  std::unique_ptr<Graph> end_capture() override;
  void launch(const Graph& graph) override;

 private:
  explicit CudaDevice(GpuProperties properties);
  Stream make_stream() const;

  const GpuProperties properties_;
  Stream stream_;
  Stream copy_stream_;
  MemoryRange scratch_;  // of both streams
};

}  // namespace dhs
