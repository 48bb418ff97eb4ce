// The emulator's interface: options and report for tests, services for the intrinsics.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "simt/emu/keywords.h"

// The last parameter of every function that can be part of a diagnosis: the caller's own line.
#define DHS_SIMT_HERE std::source_location where = std::source_location::current()

namespace simt {

// ------------------------------------------------------------------------------------ for tests

struct Options {
  // OS threads that run blocks side by side.
  unsigned workers = 2;
  // 0: lowest warp and lane first. Otherwise warps and lanes run in a random order.
  uint64_t seed = 0;
  // A thread that has exited is an error for the others' __syncthreads(). Hardware is lenient.
  bool strict_exit = true;
  size_t stack_bytes = 64 << 10;
  // __nanosleep() calls in one block before it is reported as a livelock.
  uint64_t max_yields = 20'000'000;
  // Both need the checked build. Global races also need, and force, a single worker.
  bool shared_races = true;
  bool global_races = false;
  // Reads of shared memory that no thread of the block has written. Needs shared_races.
  bool uninitialized_shared = true;

  // Streams: which one goes on next. 0: whose first item was queued first. Otherwise random.
  uint64_t stream_seed = 1;
  // Two items of different streams that touch the same bytes and that nothing orders. Copies are
  // always seen, kernels' accesses in the checked build.
  bool stream_races = true;

  // The emulated machine. driver_error: what every call answers when there is no usable driver,
  // such as cudaErrorInsufficientDriver.
  int device_count = 1;
  cudaError_t driver_error = cudaSuccess;
  size_t device_memory_bytes = size_t{1} << 30;
  int compute_capability = 90;
  int num_sms = 4;
  // A process that ends with memory, streams, events or graphs that it never gave back always says
  // so; with this it fails.
  bool leaks_fail = false;
};

struct Report {
  std::vector<std::string> errors;
  uint64_t threads = 0;
  uint64_t switches = 0;
  uint64_t barriers = 0;
  uint64_t collectives = 0;

  bool clean() const { return errors.empty(); }
};

Options& options();
const Report& last_report();

// Everything that queued work and the runtime's functions reported since the last call: kernels'
// faults, races between streams, copies outside an allocation, wrong handles. Taking the errors
// mends the context. A process that ends with errors that nobody took fails.
std::vector<std::string> take_errors();

// True in an executable whose kernels were compiled for access checks.
bool accesses_are_checked();

// Memory that kernels may touch. The checked build reports every access outside these buffers.
// Buffers must not come or go while a launch runs.
class ScopedBuffer {
 public:
  ScopedBuffer(const void* begin, size_t bytes, std::string name);
  ~ScopedBuffer();
  ScopedBuffer(const ScopedBuffer&) = delete;
  ScopedBuffer& operator=(const ScopedBuffer&) = delete;

  template <class Container>
  ScopedBuffer(const Container& container, std::string name)
      : ScopedBuffer(container.data(), container.size() * sizeof(*container.data()),
                     std::move(name)) {}

 private:
  const void* begin_;
};

// ------------------------------------------------------------------------------ for intrinsics

inline constexpr int kWarpSize = 32;

// What kernel code can know about the CUDA thread that it runs on.
struct ThreadContext {
  uint3 thread_index{};
  uint3 block_index{};
  dim3 block_dim;
  dim3 grid_dim;
  unsigned linear_index = 0;
  int lane = 0;
  std::byte* dynamic_shared = nullptr;
  // The arguments this lane brought to the collective it waits in.
  void* collective_data = nullptr;
  // Race detector: grows at each __syncwarp() that this lane takes part in.
  uint32_t warp_epoch = 0;
  // Race detector: what happened before this epoch this thread has waited for, at an mbarrier.
  uint32_t acquired_epoch = 0;
};

// The CUDA thread whose kernel code runs on this OS thread. Null while the emulator itself runs,
// which is what silences the access checks. (constinit avoids a wrapper call on each use.)
extern constinit thread_local ThreadContext* current_thread;

// The lanes that take part in one warp collective.
class WarpLanes {
 public:
  class Iterator {
   public:
    explicit Iterator(unsigned rest) : rest_(rest) {}
    int operator*() const { return std::countr_zero(rest_); }
    bool operator!=(const Iterator& other) const { return rest_ != other.rest_; }
    Iterator& operator++() {
      rest_ &= rest_ - 1;
      return *this;
    }

   private:
    unsigned rest_;
  };

  WarpLanes(ThreadContext* const* threads, unsigned mask) : threads_(threads), mask_(mask) {}

  unsigned mask() const { return mask_; }
  int first() const { return std::countr_zero(mask_); }
  bool contains(int lane) const { return lane >= 0 && lane < kWarpSize && (mask_ >> lane & 1); }
  ThreadContext& thread(int lane) const { return *threads_[lane]; }
  Iterator begin() const { return Iterator(mask_); }
  Iterator end() const { return Iterator(0); }

  template <class T>
  T& data(int lane) const {
    return *static_cast<T*>(threads_[lane]->collective_data);
  }

 private:
  ThreadContext* const* threads_;
  unsigned mask_;
};

// Reads every lane's arguments and writes every lane's result. Runs once, on one of the lanes; no
// thread is current meanwhile. The function is also the collective's identity: lanes that meet with
// different functions are reported.
using CollectiveFn = void (*)(const WarpLanes& lanes);

// Returns when all lanes in `mask` have called it and `fn` has run over their `data`.
void warp_collective(unsigned mask, void* data, CollectiveFn fn, std::source_location where);

// __syncwarp(): a collective that also orders memory, as the other collectives do not.
void warp_sync(unsigned mask, std::source_location where);

enum class BarrierOp : uint8_t { sync, all, any, count };

// __syncthreads() and its voting forms.
int block_barrier(BarrierOp op, bool predicate, std::source_location where);

// __trap(): reports the place and ends the block.
void trap(std::source_location where);

// Lets all other threads of the block run before this one goes on.
void yield_thread();

enum class AccessKind : uint8_t { read, write, atomic };

// Tells the access checks about an access that the emulator is about to make for this thread.
void note_access(const void* address, size_t bytes, AccessKind kind, std::source_location where);

// cp.async: the copy is made when its group is waited for, never earlier. Bytes beyond the valid
// ones become zeros.
struct CopyBytes {
  unsigned total = 0;
  unsigned valid = 0;
};
void async_copy(void* shared, const void* global, CopyBytes bytes, std::source_location where);
void async_commit();
void async_wait(unsigned groups_left_pending);

// mbarrier and cp.async.bulk: the copies are made when a wait observes their phase.
void async_barrier_init(uint64_t* barrier, unsigned count, std::source_location where);
void async_barrier_arrive(uint64_t* barrier, unsigned announced_bytes, std::source_location where);
bool async_barrier_try_wait(uint64_t* barrier, unsigned parity, std::source_location where);
void bulk_async_copy(void* shared, const void* global, unsigned bytes, uint64_t* barrier,
                     std::source_location where);

// wgmma: a product of matrices by four neighbouring warps. Each warp's part is computed at its own
// wait. Descriptors hold addresses as shared_address() gives them.
struct WarpgroupProduct {
  float* d = nullptr;  // this thread's n / 2 sums
  uint64_t a = 0;
  uint64_t b = 0;
  int n = 0;
  bool b_lines_hold_n = false;
  bool accumulates = false;
};
void warpgroup_product(const WarpgroupProduct& product, std::source_location where);
void warpgroup_fence(std::source_location where);
void warpgroup_commit(std::source_location where);
void warpgroup_wait(std::source_location where);
// fence.proxy.async: the checked build knows which writes wgmma may not see without it.
void async_proxy_fence();
// Of dynamic shared memory: what __cvta_generic_to_shared() gives.
uint32_t shared_address(const void* pointer);

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  const void* kernel = nullptr;
};

// Runs `body(context)` once per thread of the grid and fills last_report(). At once, whatever is
// queued on streams.
using KernelBody = void (*)(const void* context);
cudaError_t run_grid(const LaunchShape& shape, KernelBody body, const void* context);

// The same as an item of a stream; `context` is the launch's own copy of the arguments.
cudaError_t queue_grid(const LaunchShape& shape, KernelBody body,
                       std::shared_ptr<const void> context, cudaStream_t stream);

// "kernels/faulty.cu:31", or the bare offset when addr2line or debug information is missing.
std::string locate_code(const void* pc);

// Entry point of the __tsan_* hooks.
void on_kernel_access(const void* address, size_t bytes, AccessKind kind, bool aligned,
                      const void* pc);
void enable_access_checks();

}  // namespace simt
