#include "simt/emu/fiber.h"

#include <sys/mman.h>

#include <new>

namespace simt {
namespace {

constexpr size_t kGuardBytes = 4096;

}  // namespace

StackArena::~StackArena() { release(); }

void StackArena::release() {
  if (base_ != nullptr) {
    unpoison();  // whoever maps this memory next must not inherit what was a stack
    munmap(base_, count_ * (kGuardBytes + stack_bytes_));
    base_ = nullptr;
  }
}

void StackArena::reserve(unsigned count, size_t stack_bytes) {
  if (count <= count_ && stack_bytes == stack_bytes_) {
    return;
  }
  release();
  count_ = count;
  stack_bytes_ = stack_bytes;
  const size_t slot_bytes = kGuardBytes + stack_bytes;
  void* mapping = mmap(nullptr, count * slot_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED) {
    throw std::bad_alloc();
  }
  base_ = static_cast<std::byte*>(mapping);
  for (unsigned i = 0; i < count; ++i) {
    // Each guard splits the mapping: the kernel's limit of 65,530 maps allows ~30 workers of 1,024.
    if (mprotect(base_ + i * slot_bytes, kGuardBytes, PROT_NONE) != 0) {
      throw std::bad_alloc();
    }
  }
  unpoison();  // the memory may have been an earlier arena's
}

AddressRange StackArena::stack(unsigned index) const {
  const size_t slot_bytes = kGuardBytes + stack_bytes_;
  const uintptr_t slot = reinterpret_cast<uintptr_t>(base_) + index * slot_bytes;
  return {slot + kGuardBytes, slot + slot_bytes};
}

void StackArena::unpoison() const {
#if DHS_SIMT_ASAN
  for (unsigned i = 0; i < count_; ++i) {
    const AddressRange range = stack(i);
    __asan_unpoison_memory_region(reinterpret_cast<void*>(range.begin), stack_bytes_);
  }
#endif
}

}  // namespace simt
