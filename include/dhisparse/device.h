// device: memory, streams and threads behind one interface. No CUDA type is visible above it.
//
// Memory of both tiers is reserved at start-up and pre-touched; nothing reserves inside a step.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dhisparse/base.h"
#include "dhisparse/config.h"
#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

// Owns one reserved range, freed by the destructor. Zero-filled; aligned to 4 KiB, in CUDA device
// memory to 256 bytes.
class MemoryRange {
 public:
  MemoryRange() = default;
  MemoryRange(std::byte* data, int64_t bytes, std::function<void(std::byte*, int64_t)> release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  MemoryRange(MemoryRange&& other) noexcept { swap(other); }
  MemoryRange& operator=(MemoryRange&& other) noexcept {
    swap(other);
    return *this;
  }
  ~MemoryRange() {
    if (data_ != nullptr) release_(data_, bytes_);
  }
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(MemoryRange& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
  }
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  std::function<void(std::byte*, int64_t)> release_;
};

// A point in a stream's work. On the CPU, where work is done when a launch returns, always passed.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream stream) = 0;
  // Work launched on `stream` from now on starts after the latest record.
  virtual void block(Stream stream) = 0;
  virtual bool is_done() const = 0;
  // Returns when the latest record has been passed; at once when there is none.
  virtual void synchronize() = 0;
};

// Work captured once and launched many times.
class Graph {
 public:
  virtual ~Graph() = default;
};

// One accelerator, or the CPU acting as one. Used by one thread at a time. What it handed out
// (memory, events, graphs) is given back before it is destroyed.
class Device {
 public:
  virtual ~Device() = default;

  virtual BackendKind kind() const = 0;
  // "cpu (2 threads, avx512bf16)": for the log and the state report.
  virtual std::string description() const = 0;
  // Makes the calling thread's kernel launches go to this device. The thread that opened it has
  // done so; every other thread that launches on its streams calls this once before.
  virtual void attach_thread() {}

  // Device memory. RESOURCE_EXHAUSTED names what was asked for and what the machine has.
  virtual absl::StatusOr<MemoryRange> allocate(int64_t bytes) = 0;
  // Host memory that the device can read directly: pinned for CUDA, ordinary for the CPU.
  virtual absl::StatusOr<MemoryRange> allocate_host(int64_t bytes) = 0;

  // The queue of all computation.
  virtual Stream stream() = 0;
  // A second queue, for fetches and bulk copies beside it. The same as stream() on the CPU.
  virtual Stream copy_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  // Queued; both ends may be of either tier, host memory allocate_host's.
  virtual void copy(void* to, const void* from, int64_t bytes, Stream stream) = 0;
  virtual void fill(void* to, std::byte value, int64_t bytes, Stream stream) = 0;
  // Returns when all work launched so far, on any stream, is done.
  virtual void synchronize() = 0;

  // Called behind work on `stream` that brought `num_items` (device memory) from the host: where
  // the link is emulated, passes the time that it takes. Nothing elsewhere.
  virtual void cross_link(const int32_t*, int64_t /*item_bytes*/, Stream) {}
  // The time passed so; nullopt where the link is real.
  virtual std::optional<absl::Duration> emulated_link_time() const { return std::nullopt; }

  // Whether launches can be captured. Between the two calls launches on stream(), and on streams
  // that wait for its events and are joined again, are recorded and not run; nothing may
  // synchronize or allocate.
  virtual bool has_graphs() const = 0;
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Graph> end_capture() = 0;
  virtual void launch(const Graph& graph) = 0;  // on stream()
};

// A named span of host time, seen by profilers; free when none listens.
class TraceRange {
 public:
  explicit TraceRange(const char* name);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

// Picks and opens the backend `config` asks for. `auto` takes CUDA when a usable GPU is found and
// the CPU otherwise, and logs why (no driver, driver too old, no device, no memory, no CUDA in this
// program); asking for a backend that is not usable is FAILED_PRECONDITION with the same words.
absl::StatusOr<std::unique_ptr<Device>> open_device(const DeviceConfig& config);

// A function of a library that is loaded on first use and stays loaded; null when either is
// missing.
void* load_library_symbol(const char* library, const char* symbol);

// Lays several arrays out in one reservation: run the same layout once to measure, once to place.
class ArenaCarver {
 public:
  explicit ArenaCarver(std::byte* base) : base_(base) {}

  // The next array of `count` T; null data while measuring.
  template <class T>
  TensorView<T, 1> take(int64_t count) {
    T* data = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += round_up(count * static_cast<int64_t>(sizeof(T)), kAlignment);
    return view(data, count);
  }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int64_t kAlignment = 64;
  std::byte* base_;
  int64_t bytes_ = 0;
};

// Calls layout(carver) twice; the arrays of the second call lie in the returned range.
template <class Layout>
absl::StatusOr<MemoryRange> carve(Device& device, const Layout& layout) {
  ArenaCarver measure(nullptr);
  layout(measure);
  DHS_ASSIGN_OR_RETURN(MemoryRange range, device.allocate(measure.bytes()));
  ArenaCarver place(range.data());
  layout(place);
  return range;
}

// ---- Threads of the CPU backend -----------------------------------------------------------------

// Sets how many threads parallel_for uses from now on (0: all cores of this process). Called once,
// by the CPU device; kernels never call it.
void set_num_kernel_threads(int num_threads);
int num_kernel_threads();

// Calls body(begin, end) over pieces of [0, count), at most `grain` items each, on several threads,
// and returns when all are done. The pieces do not depend on the number of threads, so a body whose
// pieces are independent gives the same bits on any machine. Nested calls run on the caller.
void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& body);

// Instruction sets the CPU kernels are compiled for, in rising order.
enum class CpuIsa { kBase, kAvx2, kAvx512, kAvx512Bf16 };
// The best one this machine runs; DHS_CPU_ISA (base | avx2 | avx512 | avx512bf16) caps it.
CpuIsa cpu_isa();
bool cpu_supports(CpuIsa isa);
const char* cpu_isa_name(CpuIsa isa);

}  // namespace dhs
