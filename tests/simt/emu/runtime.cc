#include "simt/emu/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "simt/emu/block_runner.h"
#include "simt/emu/device_state.h"

extern "C" char __executable_start;

namespace simt {
namespace {

constexpr unsigned kMaxThreadsPerBlock = 1024;
constexpr unsigned kMaxBlockZ = 64;
constexpr unsigned kMaxGridX = 0x7fffffff;
constexpr unsigned kMaxGridYz = 65535;

Options global_options;
Report global_report;
// Set by static constructors, so it must not have one itself.
constinit bool checks_enabled = false;
// Only one launch at a time: it owns the report, the buffers' shadows and the epoch counter.
std::mutex launch_mutex;
uint32_t next_epoch = 1;

// Keeps its stacks and shadows from launch to launch.
BlockRunner& runner_of_this_os_thread() {
  static thread_local std::unique_ptr<BlockRunner> runner = std::make_unique<BlockRunner>();
  return *runner;
}

cudaError_t shape_error(const LaunchShape& shape) {
  const dim3 grid = shape.grid;
  const dim3 block = shape.block;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool has_blocks = grid.x > 0 && grid.y > 0 && grid.z > 0;
  const bool fits = grid.x <= kMaxGridX && grid.y <= kMaxGridYz && grid.z <= kMaxGridYz;
  if (threads == 0 || threads > kMaxThreadsPerBlock || block.z > kMaxBlockZ || !has_blocks ||
      !fits) {
    return cudaErrorInvalidConfiguration;
  }
  // More than the default must have been asked for with cudaFuncSetAttribute.
  const bool is_allowed = shape.shared_bytes <= device_state().max_shared_bytes(shape.kernel);
  return is_allowed ? cudaSuccess : cudaErrorInvalidValue;
}

uint3 block_at(uint64_t index, dim3 grid) {
  uint3 block;
  block.x = unsigned(index % grid.x);
  block.y = unsigned(index / grid.x % grid.y);
  block.z = unsigned(index / (uint64_t{grid.x} * grid.y));
  return block;
}

std::string to_text(const Fault& fault) {
  const CodePlace& place = fault.place;
  if (place.pc != nullptr) {
    return fault.text + " at " + locate_code(place.pc);
  }
  if (place.where.line() != 0) {
    return fault.text + " at " + place.where.file_name() + ":" + std::to_string(place.where.line());
  }
  return fault.text;
}

// Runs all blocks of a launch on `worker_count` OS threads, this one among them.
class GridRun {
 public:
  // Adds what checked kernels touched to the log, if there is one.
  GridRun(Launch launch, AccessLog* touched) : launch_(std::move(launch)), touched_(touched) {
    launch_.log_accesses = touched != nullptr && launch_.options.stream_races;
    const dim3 grid = launch_.shape.grid;
    block_count_ = uint64_t{grid.x} * grid.y * grid.z;
  }

  Report run(unsigned worker_count) {
    std::vector<std::thread> others;
    for (unsigned i = 1; i < worker_count; ++i) {
      others.emplace_back([this, i] { work(i); });
    }
    work(0);
    for (std::thread& other : others) {
      other.join();
    }
    report_.threads = block_count_ * launch_.threads_per_block();
    for (const Fault& fault : faults_) {
      report_.errors.push_back(to_text(fault));
    }
    return std::move(report_);
  }

  uint64_t block_count() const { return block_count_; }
  uint32_t last_epoch() const { return last_epoch_; }

 private:
  void work(unsigned worker_index) {
    BlockRunner& runner = runner_of_this_os_thread();
    runner.begin_launch(launch_, worker_index);
    for (uint64_t block = next_block_++; block < block_count_; block = next_block_++) {
      runner.run(block_at(block, launch_.shape.grid));
    }
    const std::lock_guard lock(mutex_);
    last_epoch_ = std::max(last_epoch_, runner.epoch());
    if (launch_.check_accesses && touched_ != nullptr) touched_->add(runner.touched());
    runner.end_launch(report_, faults_);
  }

  Launch launch_;
  AccessLog* touched_;
  uint64_t block_count_ = 0;
  std::atomic<uint64_t> next_block_ = 0;
  std::mutex mutex_;
  Report report_;
  std::vector<Fault> faults_;
  uint32_t last_epoch_ = 0;
};

}  // namespace

// The path from the root folder on, as source locations give it.
static std::string within_project(const std::string& path) {
  for (const char* folder : {"/tests/", "/kernels/"}) {
    const size_t at = path.find(folder);
    if (at != std::string::npos) return path.substr(at + 1);
  }
  return path;
}

// Inlined frames come innermost first: the kernel's own is the first that is not a device function.
static std::string first_kernel_frame(FILE* frames) {
  std::string first;
  char line[512] = "";
  while (std::fgets(line, sizeof line, frames) != nullptr) {
    std::string frame(line);
    frame.erase(std::min(frame.find_first_of(" \n"), frame.size()));
    frame = within_project(frame);
    if (first.empty()) first = frame;
    const bool is_ours = frame.find("simt/emu/") != std::string::npos ||
                         frame.find("kernels/cuda/") != std::string::npos;
    if (!is_ours) return frame;
  }
  return first;
}

std::string locate_code(const void* pc) {
  // A return address is one past the call, which can already be the next line.
  const auto offset =
      reinterpret_cast<uintptr_t>(pc) - reinterpret_cast<uintptr_t>(&__executable_start) - 1;
  char command[96];
  std::snprintf(command, sizeof command, "addr2line -i -e /proc/%d/exe 0x%zx 2>/dev/null", getpid(),
                offset);
  std::string location;
  if (FILE* frames = popen(command, "r")) {
    location = first_kernel_frame(frames);
    pclose(frames);
  }
  if (!location.empty() && location[0] != '?') return location;
  char text[64];
  std::snprintf(text, sizeof text, "code offset 0x%zx", offset);
  return text;
}

// ------------------------------------------------------------------------------------ for tests

Options& options() { return global_options; }

const Report& last_report() { return global_report; }

bool accesses_are_checked() { return checks_enabled; }

void enable_access_checks() { checks_enabled = true; }

ScopedBuffer::ScopedBuffer(const void* begin, size_t bytes, std::string name) : begin_(begin) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  buffers().add({address, address + bytes}, std::move(name));
}

ScopedBuffer::~ScopedBuffer() { buffers().remove(reinterpret_cast<uintptr_t>(begin_)); }

// --------------------------------------------------------------------------------------- launch

namespace {

Launch prepare(const LaunchShape& shape, KernelBody body, const void* context) {
  Launch launch;
  launch.shape = shape;
  launch.body = body;
  launch.context = context;
  launch.options = global_options;
  launch.buffers = &buffers();
  launch.check_accesses = checks_enabled;
  launch.first_epoch = next_epoch;
  launch.options.global_races &= checks_enabled;
  return launch;
}

// The faults are in last_report().
cudaError_t run_launch(Launch launch, AccessLog* touched) {
  const std::lock_guard lock(launch_mutex);
  launch.first_epoch = next_epoch;
  unsigned workers = std::max(1u, launch.options.workers);
  if (launch.options.global_races) {
    buffers().reserve_shadows();
    // Epochs of different OS threads cannot be compared.
    workers = 1;
  }
  GridRun run(launch, touched);
  global_report = run.run(unsigned(std::min<uint64_t>(workers, run.block_count())));
  next_epoch = run.last_epoch() + 1;
  return global_report.clean() ? cudaSuccess : cudaErrorLaunchFailure;
}

cudaError_t run_queued(const Launch& launch, AccessLog& touched) {
  const cudaError_t error = run_launch(launch, &touched);
  for (const std::string& text : global_report.errors) device_state().add_error(text);
  return error;
}

}  // namespace

cudaError_t run_grid(const LaunchShape& shape, KernelBody body, const void* context) {
  return api_call(Needs::nothing, [&](Lock&) {
    const cudaError_t error = shape_error(shape);
    if (error != cudaSuccess) return error;
    if (unsafe_call_breaks_capture()) return cudaErrorStreamCaptureImplicit;
    return run_launch(prepare(shape, body, context), nullptr);
  });
}

cudaError_t queue_grid(const LaunchShape& shape, KernelBody body,
                       std::shared_ptr<const void> context, cudaStream_t handle) {
  return api_call(Needs::device, [&](Lock&) {
    const cudaError_t error = shape_error(shape);
    if (error != cudaSuccess) return error;
    StreamQueue* stream = stream_of(handle, "launch");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const auto run = [shape, body, context = std::move(context)](AccessLog& touched) {
      return run_queued(prepare(shape, body, context.get()), touched);
    };
    return submit(*stream, {.name = {"kernel", shape.kernel}, .run = run});
  });
}

// ------------------------------------------------------------------------------ for intrinsics

void warp_collective(unsigned mask, void* data, CollectiveFn fn, std::source_location where) {
  BlockRunner::active()->warp_collective(mask, data, fn, where);
}

// The lanes may have synchronized in smaller groups before, so their epochs can differ. The common
// maximum plus one is later than everything any of them did.
static void advance_warp_epoch(const WarpLanes& lanes) {
  uint32_t latest = 0;
  uint32_t acquired = 0;
  for (int lane : lanes) {
    latest = std::max(latest, lanes.thread(lane).warp_epoch);
    acquired = std::max(acquired, lanes.thread(lane).acquired_epoch);
  }
  for (int lane : lanes) {
    lanes.thread(lane).warp_epoch = latest + 1;
    lanes.thread(lane).acquired_epoch = acquired;
  }
}

void warp_sync(unsigned mask, std::source_location where) {
  BlockRunner::active()->warp_collective(mask, nullptr, &advance_warp_epoch, where);
}

int block_barrier(BarrierOp op, bool predicate, std::source_location where) {
  return BlockRunner::active()->block_barrier(op, predicate, where);
}

void trap(std::source_location where) { BlockRunner::active()->trap(where); }

void yield_thread() { BlockRunner::active()->yield(); }

void note_access(const void* address, size_t bytes, AccessKind kind, std::source_location where) {
  BlockRunner::active()->note_access(address, bytes, kind, where);
}

void async_copy(void* shared, const void* global, CopyBytes bytes, std::source_location where) {
  BlockRunner::active()->async_copy(shared, global, bytes, where);
}

void async_commit() { BlockRunner::active()->async_commit(); }

void async_wait(unsigned groups_left_pending) {
  BlockRunner::active()->async_wait(groups_left_pending);
}

void async_barrier_init(uint64_t* barrier, unsigned count, std::source_location where) {
  BlockRunner::active()->barrier_init(barrier, count, where);
}

void async_barrier_arrive(uint64_t* barrier, unsigned announced_bytes, std::source_location where) {
  BlockRunner::active()->barrier_arrive(barrier, announced_bytes, where);
}

bool async_barrier_try_wait(uint64_t* barrier, unsigned parity, std::source_location where) {
  return BlockRunner::active()->barrier_try_wait(barrier, parity, where);
}

void bulk_async_copy(void* shared, const void* global, unsigned bytes, uint64_t* barrier,
                     std::source_location where) {
  BlockRunner::active()->bulk_copy({shared, global, bytes, bytes, 0, where, true}, barrier);
}

void warpgroup_product(const WarpgroupProduct& product, std::source_location where) {
  BlockRunner::active()->warpgroup_product(product, where);
}

void warpgroup_fence(std::source_location where) { BlockRunner::active()->warpgroup_fence(where); }

void warpgroup_commit(std::source_location where) {
  BlockRunner::active()->warpgroup_commit(where);
}

void warpgroup_wait(std::source_location where) { BlockRunner::active()->warpgroup_wait(where); }

void async_proxy_fence() { BlockRunner::active()->async_proxy_fence(); }

uint32_t shared_address(const void* pointer) {
  const auto* byte = static_cast<const std::byte*>(pointer);
  return static_cast<uint32_t>(byte - current_thread->dynamic_shared);
}

void on_kernel_access(const void* address, size_t bytes, AccessKind kind, bool aligned,
                      const void* pc) {
  const bool kernel_code_runs = current_thread != nullptr;
  if (kernel_code_runs) {
    BlockRunner::active()->check_access(address, bytes, kind, aligned, pc);
  }
}

}  // namespace simt
