// Runs the threads of one block at a time, as fibers of the calling OS thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <vector>

#include "simt/emu/access_checker.h"
#include "simt/emu/dynamic_shared.h"
#include "simt/emu/fiber.h"
#include "simt/emu/random.h"
#include "simt/emu/runtime.h"
#include "simt/emu/warpgroup_products.h"

namespace simt {

struct Launch {
  LaunchShape shape;
  KernelBody body = nullptr;
  const void* context = nullptr;
  Options options;
  BufferMap* buffers = nullptr;
  bool check_accesses = false;
  bool log_accesses = false;
  uint32_t first_epoch = 1;

  unsigned threads_per_block() const { return shape.block.x * shape.block.y * shape.block.z; }
};

// A place in a kernel: a code address if the access hooks found it, else a source location.
struct CodePlace {
  const void* pc = nullptr;
  std::source_location where;

  bool operator==(const CodePlace& other) const {
    return pc == other.pc && where.line() == other.where.line();
  }
};

// An error found in a kernel. Code addresses become lines afterwards, off the small fiber stacks.
struct Fault {
  std::string text;
  CodePlace place;
};

class BlockRunner {
 public:
  // The runner whose fibers run on this OS thread.
  static BlockRunner* active();

  void begin_launch(const Launch& launch, unsigned worker_index);
  void run(uint3 block_index);
  void end_launch(Report& report, std::vector<Fault>& faults);
  uint32_t epoch() const { return epoch_; }
  const AccessLog& touched() const { return checker_.touched(); }

  // The rest is called on a fiber, by kernel code.
  int block_barrier(BarrierOp op, bool predicate, std::source_location where);
  void warp_collective(unsigned mask, void* data, CollectiveFn fn, std::source_location where);
  void yield();
  void trap(std::source_location where);
  struct AsyncCopy {
    void* to;
    const void* from;
    unsigned bytes;
    unsigned valid_bytes;
    unsigned group;
    std::source_location where;
    bool by_async_proxy = false;
  };
  void async_copy(void* to, const void* from, CopyBytes bytes, std::source_location where);
  void async_commit();
  void async_wait(unsigned groups_left_pending);
  void barrier_init(uint64_t* address, unsigned count, std::source_location where);
  void barrier_arrive(uint64_t* address, unsigned announced_bytes, std::source_location where);
  bool barrier_try_wait(uint64_t* address, unsigned parity, std::source_location where);
  void bulk_copy(AsyncCopy copy, uint64_t* barrier);
  void warpgroup_product(const WarpgroupProduct& product, std::source_location where);
  void warpgroup_fence(std::source_location where);
  void warpgroup_commit(std::source_location where);
  void warpgroup_wait(std::source_location where);
  void async_proxy_fence();
  void note_access(const void* address, size_t bytes, AccessKind kind, std::source_location where);
  void check_access(const void* address, size_t bytes, AccessKind kind, bool aligned,
                    const void* pc);

 private:
  struct ThreadState : ThreadContext {
    Fiber fiber;
    // The barrier or collective that the thread entered last.
    std::source_location where;
    std::vector<AsyncCopy> async_copies;
    unsigned async_groups = 0;
  };

  // Where the lanes of one collective meet.
  struct Rendezvous {
    unsigned mask = 0;
    unsigned arrived = 0;
    CollectiveFn fn = nullptr;
  };

  // Lane masks: every existing lane that has not exited is ready, has yielded, waits at the block
  // barrier, or waits in a collective (which is the remaining case and has no mask of its own).
  struct Warp {
    unsigned existing = 0;
    unsigned ready = 0;
    unsigned yielded = 0;
    unsigned at_barrier = 0;
    unsigned exited = 0;
    std::array<ThreadContext*, kWarpSize> lanes{};
    // Indexed by the lowest lane of the mask: disjoint groups of one warp can meet side by side.
    std::array<Rendezvous, kWarpSize> rendezvous{};
  };

  struct Barrier {
    unsigned arrived = 0;
    unsigned predicates_true = 0;
    BarrierOp op = BarrierOp::sync;
    std::source_location where;
  };

  // An mbarrier: what the 8 bytes in shared memory stand for.
  struct AsyncBarrier {
    unsigned count = 0;
    unsigned missing_arrivals = 0;
    uint64_t announced_bytes = 0;
    unsigned parity = 0;  // of the phase that is not complete
    uint32_t completed_epoch = 0;
    // This phase's copies, with who issued them.
    struct Issued {
      AsyncCopy copy;
      ThreadState* thread;
    };
    std::vector<Issued> copies;
  };

  static void fiber_main(FiberSwitch::Transfer transfer);

  ThreadState& current() { return static_cast<ThreadState&>(*current_thread); }
  ThreadState& thread_of(const Warp& warp, int lane) {
    return static_cast<ThreadState&>(*warp.lanes[lane]);
  }
  Warp& warp_of(const ThreadState& thread) { return warps_[thread.linear_index / kWarpSize]; }

  void begin_block(uint3 block_index);
  void begin_thread(ThreadState& thread, unsigned linear_index, uint3 block_index);
  bool run_ready_fibers();
  void run_lane(Warp& warp, int lane);
  int pick_lane(unsigned ready);
  void suspend(ThreadState& thread);
  void thread_exits(ThreadState& thread);

  unsigned expected_at_barrier() const;
  void release_barrier();

  struct Access {
    const void* address;
    size_t bytes;
    AccessKind kind;
    bool aligned;
    bool by_async_proxy = false;
  };
  bool is_allowed(const ThreadState& thread, const Access& access, const CodePlace& place);
  void check(ThreadState& thread, const Access& access, const CodePlace& place);
  void check_copy(ThreadState& thread, const AsyncCopy& copy);
  static void make(const AsyncCopy& copy);
  AsyncBarrier& barrier_at(uint64_t* address, std::source_location where);
  static bool can_complete(const AsyncBarrier& barrier);
  void complete(AsyncBarrier& barrier);

  void issue_product(const WarpLanes& lanes);
  void compute_products(const WarpLanes& lanes);
  void check_operands(ThreadState& thread, const IssuedProduct& product);

  template <class MakeText>
  [[noreturn]] void fail(ThreadState& thread, MakeText make_text);
  [[noreturn]] void park(ThreadState& thread);
  void add_fault(std::string text, const CodePlace& place);
  void report_stuck();

  const Launch* launch_ = nullptr;
  StackArena stacks_;
  FiberSwitch fibers_;
  DynamicShared dynamic_shared_;
  AccessChecker checker_;
  std::vector<ThreadState> threads_;
  std::vector<Warp> warps_;
  Random random_;
  ThreadState* running_ = nullptr;

  Barrier barrier_;
  int barrier_result_ = 0;
  std::map<const uint64_t*, AsyncBarrier> async_barriers_;
  WarpgroupProducts products_;
  std::vector<uint32_t> operand_vectors_;  // of the product that is being checked
  std::vector<uint32_t> proxy_fences_;     // of each thread so far
  unsigned exited_ = 0;
  bool failed_ = false;
  bool stacks_are_dirty_ = false;
  uint64_t yields_ = 0;

  // See race_detector.h.
  uint32_t epoch_ = 0;
  uint32_t block_begin_epoch_ = 0;
  uint32_t last_barrier_epoch_ = 0;

  Report counters_;
  std::vector<Fault> faults_;
};

}  // namespace simt
