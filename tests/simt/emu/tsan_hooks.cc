// The entry points that `g++ -fsanitize=thread` calls before every load and store.
//
// Kernel files of the checked build are COMPILED with that flag but never LINKED with libtsan:
// these functions take its place. This file itself must be compiled without the flag.
//
// Atomics of kernel code do not come through here: emu/atomics.h reports them with note_access().
// The few __tsan_atomic* functions below serve std::atomic in instrumented code that is not a
// kernel.
#include <cstddef>
#include <cstdint>

#include "simt/emu/runtime.h"

namespace {

using simt::AccessKind;

}  // namespace

// The return address is the access itself, as the reports want it.
#define DHS_SIMT_HOOK(name, bytes, kind, aligned)                     \
  void name(void* address) {                                          \
    simt::on_kernel_access(address, bytes, AccessKind::kind, aligned, \
                           __builtin_return_address(0));              \
  }

#define DHS_SIMT_HOOKS(bytes)                                       \
  DHS_SIMT_HOOK(__tsan_read##bytes, bytes, read, true)              \
  DHS_SIMT_HOOK(__tsan_write##bytes, bytes, write, true)            \
  DHS_SIMT_HOOK(__tsan_unaligned_read##bytes, bytes, read, false)   \
  DHS_SIMT_HOOK(__tsan_unaligned_write##bytes, bytes, write, false) \
  DHS_SIMT_HOOK(__tsan_volatile_read##bytes, bytes, read, true)     \
  DHS_SIMT_HOOK(__tsan_volatile_write##bytes, bytes, write, true)

#define DHS_SIMT_ATOMICS(bits, T)                                                                 \
  T __tsan_atomic##bits##_load(const T* address, int) {                                           \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                            \
  }                                                                                               \
  void __tsan_atomic##bits##_store(T* address, T value, int) {                                    \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                           \
  }                                                                                               \
  T __tsan_atomic##bits##_exchange(T* address, T value, int) {                                    \
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                                 \
  }                                                                                               \
  T __tsan_atomic##bits##_fetch_add(T* address, T value, int) {                                   \
    return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);                                  \
  }                                                                                               \
  int __tsan_atomic##bits##_compare_exchange_strong(T* address, T* expected, T desired, int,      \
                                                    int) {                                        \
    return __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_SEQ_CST,       \
                                       __ATOMIC_SEQ_CST);                                         \
  }                                                                                               \
  int __tsan_atomic##bits##_compare_exchange_weak(T* address, T* expected, T desired, int, int) { \
    return __atomic_compare_exchange_n(address, expected, desired, true, __ATOMIC_SEQ_CST,        \
                                       __ATOMIC_SEQ_CST);                                         \
  }

extern "C" {

DHS_SIMT_HOOKS(1)
DHS_SIMT_HOOKS(2)
DHS_SIMT_HOOKS(4)
DHS_SIMT_HOOKS(8)
DHS_SIMT_HOOKS(16)

DHS_SIMT_ATOMICS(8, uint8_t)
DHS_SIMT_ATOMICS(16, uint16_t)
DHS_SIMT_ATOMICS(32, uint32_t)
DHS_SIMT_ATOMICS(64, uint64_t)

void __tsan_read_range(void* address, size_t bytes) {
  simt::on_kernel_access(address, bytes, AccessKind::read, false, __builtin_return_address(0));
}

void __tsan_write_range(void* address, size_t bytes) {
  simt::on_kernel_access(address, bytes, AccessKind::write, false, __builtin_return_address(0));
}

// Static constructors of instrumented files call this. It is how the runtime learns that kernel
// accesses are visible to it.
void __tsan_init() { simt::enable_access_checks(); }

void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
