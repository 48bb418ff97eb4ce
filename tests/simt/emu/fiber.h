// Stackful fibers: a thin layer over Boost.Context that also tells AddressSanitizer about switches.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define DHS_SIMT_ASAN 1
#else
#define DHS_SIMT_ASAN 0
#endif

namespace simt {

struct AddressRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  bool contains(uintptr_t address) const { return address >= begin && address < end; }
  bool contains(uintptr_t address, size_t bytes) const {
    return address >= begin && address + bytes <= end;
  }
};

// Equal stacks for many fibers in one mapping, each above a guard page. Only touched pages cost
// memory, so a generous stack size is free.
class StackArena {
 public:
  StackArena() = default;
  ~StackArena();
  StackArena(const StackArena&) = delete;
  StackArena& operator=(const StackArena&) = delete;

  void reserve(unsigned count, size_t stack_bytes);
  AddressRange stack(unsigned index) const;

  // Fibers that were abandoned in mid-function leave their ASan poison behind.
  void unpoison() const;

 private:
  void release();

  std::byte* base_ = nullptr;
  unsigned count_ = 0;
  size_t stack_bytes_ = 0;
};

// One suspended computation.
struct Fiber {
  AddressRange stack;
  boost::context::detail::fcontext_t context = nullptr;
  void* asan_fake_stack = nullptr;
};

// Switches between an OS thread's own stack (the scheduler) and its fibers.
//
// ASan must hear of every switch twice: before the jump, with the stack that is jumped to, and
// after it, on the new stack. What the fiber learns about the scheduler's stack on arrival is what
// it needs to announce the way back.
class FiberSwitch {
 public:
  using Transfer = boost::context::detail::transfer_t;
  using Entry = void (*)(Transfer);

  static void prepare(Fiber& fiber, AddressRange stack, Entry entry) {
    fiber.stack = stack;
    fiber.asan_fake_stack = nullptr;
    fiber.context = boost::context::detail::make_fcontext(reinterpret_cast<void*>(stack.end),
                                                          stack.end - stack.begin, entry);
  }

  // On the scheduler's stack. Returns when the fiber suspends or finishes.
  void resume(Fiber& fiber, void* argument) {
#if DHS_SIMT_ASAN
    void* own_fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&own_fake_stack, reinterpret_cast<void*>(fiber.stack.begin),
                                   fiber.stack.end - fiber.stack.begin);
#endif
    fiber.context = boost::context::detail::jump_fcontext(fiber.context, argument).fctx;
#if DHS_SIMT_ASAN
    __sanitizer_finish_switch_fiber(own_fake_stack, nullptr, nullptr);
#endif
  }

  // First thing on a new fiber's stack.
  void enter(Transfer transfer) {
    scheduler_ = transfer.fctx;
#if DHS_SIMT_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
  }

  // On the fiber's stack. Returns when the scheduler resumes the fiber.
  void suspend([[maybe_unused]] Fiber& fiber) {
#if DHS_SIMT_ASAN
    __sanitizer_start_switch_fiber(&fiber.asan_fake_stack, scheduler_stack_,
                                   scheduler_stack_bytes_);
#endif
    scheduler_ = boost::context::detail::jump_fcontext(scheduler_, nullptr).fctx;
#if DHS_SIMT_ASAN
    __sanitizer_finish_switch_fiber(fiber.asan_fake_stack, &scheduler_stack_,
                                    &scheduler_stack_bytes_);
#endif
  }

  // Last thing on the fiber's stack: no fake stack to keep.
  [[noreturn]] void finish() {
#if DHS_SIMT_ASAN
    __sanitizer_start_switch_fiber(nullptr, scheduler_stack_, scheduler_stack_bytes_);
#endif
    boost::context::detail::jump_fcontext(scheduler_, nullptr);
    __builtin_unreachable();
  }

 private:
  boost::context::detail::fcontext_t scheduler_ = nullptr;
#if DHS_SIMT_ASAN
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
#endif
};

}  // namespace simt
