#include "simt/emu/block_runner.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "simt/emu/block_runner_internal.h"

namespace simt {

constinit thread_local ThreadContext* current_thread = nullptr;

namespace {

constexpr size_t kMaxFaultsPerWorker = 20;
constexpr unsigned kStuckThreadsShown = 3;

constinit thread_local BlockRunner* active_runner = nullptr;

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::strcmp(a.file_name(), b.file_name()) == 0;
}

}  // namespace

// --------------------------------------------------------------------------------------- launch

BlockRunner* BlockRunner::active() { return active_runner; }

void BlockRunner::begin_launch(const Launch& launch, unsigned worker_index) {
  launch_ = &launch;
  const unsigned threads = launch.threads_per_block();
  stacks_.reserve(threads, launch.options.stack_bytes);
  threads_.resize(threads);
  warps_.resize((threads + kWarpSize - 1) / kWarpSize);
  dynamic_shared_.resize(launch.shape.shared_bytes);
  random_ = Random(launch.options.seed, worker_index);
  epoch_ = launch.first_epoch;
  if (launch.check_accesses) {
    checker_.begin_launch(*launch.buffers, dynamic_shared_.range(), launch.options);
    checker_.log_accesses(launch.log_accesses);
  }
  active_runner = this;
}

void BlockRunner::end_launch(Report& report, std::vector<Fault>& faults) {
  report.switches += std::exchange(counters_.switches, 0);
  report.barriers += std::exchange(counters_.barriers, 0);
  report.collectives += std::exchange(counters_.collectives, 0);
  std::move(faults_.begin(), faults_.end(), std::back_inserter(faults));
  faults_.clear();
  active_runner = nullptr;
  launch_ = nullptr;
}

// ---------------------------------------------------------------------------------------- block

void BlockRunner::begin_block(uint3 block_index) {
  barrier_ = Barrier{};
  exited_ = 0;
  failed_ = false;
  yields_ = 0;
  block_begin_epoch_ = ++epoch_;
  last_barrier_epoch_ = epoch_;
  async_barriers_.clear();
  products_.begin_block(static_cast<unsigned>(warps_.size()));
  proxy_fences_.assign(threads_.size(), 0);
  dynamic_shared_.fill_with_garbage();
  if (stacks_are_dirty_) {
    stacks_.unpoison();
    stacks_are_dirty_ = false;
  }
  std::fill(warps_.begin(), warps_.end(), Warp{});
  for (unsigned i = 0; i < threads_.size(); ++i) {
    begin_thread(threads_[i], i, block_index);
  }
}

void BlockRunner::begin_thread(ThreadState& thread, unsigned linear_index, uint3 block_index) {
  const dim3 dim = launch_->shape.block;
  thread.thread_index.x = linear_index % dim.x;
  thread.thread_index.y = linear_index / dim.x % dim.y;
  thread.thread_index.z = linear_index / (dim.x * dim.y);
  thread.block_index = block_index;
  thread.block_dim = dim;
  thread.grid_dim = launch_->shape.grid;
  thread.linear_index = linear_index;
  thread.lane = linear_index % kWarpSize;
  thread.dynamic_shared = dynamic_shared_.data();
  thread.warp_epoch = 1;
  thread.acquired_epoch = 0;
  thread.async_copies.clear();
  thread.async_groups = 0;
  FiberSwitch::prepare(thread.fiber, stacks_.stack(linear_index), &fiber_main);

  Warp& warp = warp_of(thread);
  warp.lanes[thread.lane] = &thread;
  warp.existing |= 1u << thread.lane;
  warp.ready |= 1u << thread.lane;
}

void BlockRunner::run(uint3 block_index) {
  begin_block(block_index);
  while (exited_ < threads_.size() && !failed_) {
    if (!run_ready_fibers()) {
      report_stuck();
      break;
    }
  }
  const char* unfinished = exited_ == threads_.size() ? products_.unfinished() : nullptr;
  if (unfinished != nullptr) add_fault(unfinished, CodePlace{});
  // The fibers that remain are abandoned: their stacks are reused and no destructor runs.
  stacks_are_dirty_ = exited_ < threads_.size();
}

// Returns false when no thread could run.
bool BlockRunner::run_ready_fibers() {
  const unsigned warp_count = warps_.size();
  const unsigned first = random_.below(warp_count);
  bool ran = false;
  for (unsigned i = 0; i < warp_count; ++i) {
    Warp& warp = warps_[(first + i) % warp_count];
    while (warp.ready != 0 && !failed_) {
      run_lane(warp, pick_lane(warp.ready));
      ran = true;
    }
    // Only now, after the block's other warps had their turn or will have it: a spinning warp must
    // not starve the one it waits for.
    warp.ready |= warp.yielded;
    warp.yielded = 0;
  }
  return ran;
}

void BlockRunner::run_lane(Warp& warp, int lane) {
  warp.ready &= ~(1u << lane);
  ThreadState& thread = thread_of(warp, lane);
  running_ = &thread;
  current_thread = &thread;
  fibers_.resume(thread.fiber, this);
  current_thread = nullptr;
}

int BlockRunner::pick_lane(unsigned ready) {
  for (unsigned skip = random_.below(std::popcount(ready)); skip > 0; --skip) {
    ready &= ready - 1;
  }
  return std::countr_zero(ready);
}

void BlockRunner::suspend(ThreadState& thread) {
  ++counters_.switches;
  fibers_.suspend(thread.fiber);
}

void BlockRunner::fiber_main(FiberSwitch::Transfer transfer) {
  // A block never leaves its OS thread, so the runner and the thread stay the same throughout.
  auto* runner = static_cast<BlockRunner*>(transfer.data);
  runner->fibers_.enter(transfer);
  ThreadState& thread = runner->current();
  runner->launch_->body(runner->launch_->context);
  runner->thread_exits(thread);
  runner->fibers_.finish();
}

void BlockRunner::thread_exits(ThreadState& thread) {
  ++counters_.switches;
  ++exited_;
  warp_of(thread).exited |= 1u << thread.lane;
  const bool others_wait = barrier_.arrived != 0;
  if (others_wait && barrier_.arrived == expected_at_barrier()) {
    release_barrier();
  }
}

void BlockRunner::trap(std::source_location where) {
  ThreadState& thread = current();
  fail(thread, [&] { return "trap: " + describe(thread) + " at " + describe(where); });
}

void BlockRunner::yield() {
  ThreadState& thread = current();
  if (++yields_ > launch_->options.max_yields) {
    fail(thread, [&] { return "livelock: too many __nanosleep() calls, " + describe(thread); });
  }
  warp_of(thread).yielded |= 1u << thread.lane;
  suspend(thread);
}

// -------------------------------------------------------------------------------- block barrier

// With lenient exits, threads that are gone are not waited for.
unsigned BlockRunner::expected_at_barrier() const {
  const unsigned all = threads_.size();
  return launch_->options.strict_exit ? all : all - exited_;
}

// The first arriver decides which barrier this is; the last one releases it and goes on without a
// switch.
int BlockRunner::block_barrier(BarrierOp op, bool predicate, std::source_location where) {
  ThreadState& thread = current();
  thread.where = where;
  if (barrier_.arrived == 0) {
    barrier_.op = op;
    barrier_.where = where;
  } else if (barrier_.op != op || !same_place(barrier_.where, where)) {
    fail(thread, [&] {
      return "divergent barrier: " + describe(thread) + " at " + describe(where) +
             " while others wait at " + describe(barrier_.where);
    });
  }
  ++barrier_.arrived;
  barrier_.predicates_true += predicate;
  if (barrier_.arrived == expected_at_barrier()) {
    release_barrier();
  } else {
    warp_of(thread).at_barrier |= 1u << thread.lane;
    suspend(thread);
  }
  // Still ours: the next barrier cannot complete before this thread has arrived there.
  return barrier_result_;
}

void BlockRunner::release_barrier() {
  switch (barrier_.op) {
    case BarrierOp::sync:
      barrier_result_ = 0;
      break;
    case BarrierOp::all:
      barrier_result_ = barrier_.predicates_true == barrier_.arrived;
      break;
    case BarrierOp::any:
      barrier_result_ = barrier_.predicates_true != 0;
      break;
    case BarrierOp::count:
      barrier_result_ = int(barrier_.predicates_true);
      break;
  }
  barrier_ = Barrier{};
  // All threads of the block stand at the barrier, so one epoch serves them all.
  last_barrier_epoch_ = ++epoch_;
  ++counters_.barriers;
  for (Warp& warp : warps_) {
    warp.ready |= warp.at_barrier;
    warp.at_barrier = 0;
  }
}

// ------------------------------------------------------------------------------ warp collectives

// Each lane publishes a pointer to its arguments and sleeps; the last arriver runs the function
// over all lanes and wakes the others.
//
// The pointers stay valid: they point into the frames of lanes that are suspended in this function.
// Nor can results be overwritten before they are read: a lane's next collective needs new arguments
// of its own, and a rendezvous cannot complete again before all its lanes have returned to it. So
// nothing needs double buffering, and a full warp costs 31 switches.
void BlockRunner::warp_collective(unsigned mask, void* data, CollectiveFn fn,
                                  std::source_location where) {
  ThreadState& thread = current();
  Warp& warp = warp_of(thread);
  const unsigned self = 1u << thread.lane;
  ++counters_.collectives;
  thread.collective_data = data;
  thread.where = where;

  // A block's last warp may be partial, and "all lanes" means those that exist.
  mask &= warp.existing;
  const auto fail_here = [&](const char* problem) {
    fail(thread, [&] { return problem + (": " + describe(thread) + " at " + describe(where)); });
  };
  if ((mask & self) == 0) {
    fail_here("calling lane not in mask");
  }
  if ((mask & warp.exited) != 0) {
    fail_here("mask names an exited lane");
  }
  Rendezvous& rendezvous = warp.rendezvous[std::countr_zero(mask)];
  if (rendezvous.arrived == 0) {
    rendezvous.mask = mask;
    rendezvous.fn = fn;
  } else if (rendezvous.mask != mask || rendezvous.fn != fn) {
    fail_here("lanes disagree on mask or on the collective");
  }

  rendezvous.arrived |= self;
  if (rendezvous.arrived != mask) {
    suspend(thread);
    return;
  }
  rendezvous.arrived = 0;
  current_thread = nullptr;
  fn(WarpLanes(warp.lanes.data(), mask));
  current_thread = &thread;
  warp.ready |= mask & ~self;
}

// --------------------------------------------------------------------------------- access checks

void BlockRunner::note_access(const void* address, size_t bytes, AccessKind kind,
                              std::source_location where) {
  if (launch_->check_accesses) {
    ThreadState& thread = current();
    const ChecksOff checks_off;
    check(thread, {address, bytes, kind, true}, {nullptr, where});
  }
}

void BlockRunner::check_access(const void* address, size_t bytes, AccessKind kind, bool aligned,
                               const void* pc) {
  ThreadState& thread = current();
  const ChecksOff checks_off;
  check(thread, {address, bytes, kind, aligned}, {pc, {}});
}

void BlockRunner::check(ThreadState& thread, const Access& access, const CodePlace& place) {
  if (!is_allowed(thread, access, place)) {
    park(thread);
  }
}

// Reports what is wrong with the access. Returns false when it must not be made.
bool BlockRunner::is_allowed(const ThreadState& thread, const Access& access,
                             const CodePlace& place) {
  KernelAccess kernel_access;
  kernel_access.address = reinterpret_cast<uintptr_t>(access.address);
  kernel_access.bytes = access.bytes;
  kernel_access.kind = access.kind;
  kernel_access.aligned = access.aligned;
  kernel_access.own_stack = thread.fiber.stack;
  kernel_access.time.launch_begin = launch_->first_epoch;
  kernel_access.time.block_begin = block_begin_epoch_;
  kernel_access.time.epoch = epoch_;
  kernel_access.time.synced_epoch = std::max(last_barrier_epoch_, thread.acquired_epoch);
  kernel_access.time.warp_epoch = thread.warp_epoch;
  kernel_access.time.thread = uint16_t(thread.linear_index);
  kernel_access.time.proxy_fences =
      access.by_async_proxy ? kByAsyncProxy : proxy_fences_[thread.linear_index];
  if (access.by_async_proxy) kernel_access.proxy_fences = proxy_fences_.data();
  const std::optional<Finding> finding = checker_.check(kernel_access);
  if (!finding) {
    return true;
  }
  add_fault(finding->text + "; " + describe(thread), place);
  return !finding->fatal;
}

// --------------------------------------------------------------------------------------- faults

// Stops the thread for good, before it does harm, and thereby ends the block. The process survives.
// The thread's stack is abandoned, so nothing on it may own memory by now.
void BlockRunner::park(ThreadState& thread) {
  failed_ = true;
  suspend(thread);
  std::abort();  // a failed block is never resumed
}

// One line of a kernel usually fails in many threads: the first one is enough.
void BlockRunner::add_fault(std::string text, const CodePlace& place) {
  const bool has_place = !(place == CodePlace{});
  const auto is_same = [&](const Fault& fault) { return has_place && fault.place == place; };
  const bool known = std::any_of(faults_.begin(), faults_.end(), is_same);
  if (!known && faults_.size() < kMaxFaultsPerWorker) {
    faults_.push_back({std::move(text), place});
  }
}

void BlockRunner::report_stuck() {
  std::string text = "stuck: block (" + std::to_string(threads_[0].block_index.x) + "," +
                     std::to_string(threads_[0].block_index.y) + "," +
                     std::to_string(threads_[0].block_index.z) + "), " + std::to_string(exited_) +
                     " of " + std::to_string(threads_.size()) + " threads exited";
  unsigned shown = 0;
  for (const ThreadState& thread : threads_) {
    const Warp& warp = warp_of(thread);
    const unsigned self = 1u << thread.lane;
    if ((warp.exited & self) != 0 || shown == kStuckThreadsShown) {
      continue;
    }
    const char* place = (warp.at_barrier & self) != 0 ? " at barrier " : " at warp collective ";
    text += "; thread " + std::to_string(thread.linear_index) + place + describe(thread.where);
    ++shown;
  }
  add_fault(std::move(text), CodePlace{});
}

}  // namespace simt
