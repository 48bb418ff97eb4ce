// CUDA's atomics: real host atomics, because blocks run on several OS threads.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "simt/emu/runtime.h"

namespace simt::detail {

template <size_t Bytes>
struct BitsOf;
template <>
struct BitsOf<2> {
  using type = uint16_t;
};
template <>
struct BitsOf<4> {
  using type = uint32_t;
};
template <>
struct BitsOf<8> {
  using type = uint64_t;
};

// Replaces *address by update(*address) and returns the old value.
template <class T, class Update>
DHS_SIMT_UNCHECKED T read_modify_write(T* address, Update update, std::source_location where) {
  using Bits = typename BitsOf<sizeof(T)>::type;
  note_access(address, sizeof(T), AccessKind::atomic, where);
  Bits* bits = reinterpret_cast<Bits*>(address);
  Bits old_bits = __atomic_load_n(bits, __ATOMIC_RELAXED);
  for (;;) {
    const T old_value = std::bit_cast<T>(old_bits);
    const Bits new_bits = std::bit_cast<Bits>(static_cast<T>(update(old_value)));
    if (__atomic_compare_exchange_n(bits, &old_bits, new_bits, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
      return old_value;
    }
  }
}

}  // namespace simt::detail

// The operand types are not deduced: atomicAdd(float*, 1) must convert, as it does in CUDA.
#define DHS_SIMT_VALUE std::type_identity_t<T>

// The forms of one operation by scope: they differ only in whom hardware lets see it in time.
#define DHS_SIMT_ATOMIC(name, expression)                                    \
  template <class T>                                                         \
  T name(T* address, DHS_SIMT_VALUE value, DHS_SIMT_HERE) {                  \
    return simt::detail::read_modify_write(                                  \
        address, [=]([[maybe_unused]] T old) { return expression; }, where); \
  }                                                                          \
  template <class T>                                                         \
  T name##_block(T* address, DHS_SIMT_VALUE value, DHS_SIMT_HERE) {          \
    return name(address, value, where);                                      \
  }                                                                          \
  template <class T>                                                         \
  T name##_system(T* address, DHS_SIMT_VALUE value, DHS_SIMT_HERE) {         \
    return name(address, value, where);                                      \
  }

DHS_SIMT_ATOMIC(atomicAdd, old + value)
DHS_SIMT_ATOMIC(atomicSub, old - value)
DHS_SIMT_ATOMIC(atomicMin, value < old ? value : old)
DHS_SIMT_ATOMIC(atomicMax, old < value ? value : old)
DHS_SIMT_ATOMIC(atomicOr, old | value)
DHS_SIMT_ATOMIC(atomicAnd, old& value)
DHS_SIMT_ATOMIC(atomicXor, old ^ value)
DHS_SIMT_ATOMIC(atomicExch, value)

template <class T>
T atomicCAS(T* address, DHS_SIMT_VALUE expected, DHS_SIMT_VALUE desired, DHS_SIMT_HERE) {
  return simt::detail::read_modify_write(
      address, [=](T old) { return old == expected ? desired : old; }, where);
}
template <class T>
T atomicCAS_block(T* address, DHS_SIMT_VALUE expected, DHS_SIMT_VALUE desired, DHS_SIMT_HERE) {
  return atomicCAS(address, expected, desired, where);
}
template <class T>
T atomicCAS_system(T* address, DHS_SIMT_VALUE expected, DHS_SIMT_VALUE desired, DHS_SIMT_HERE) {
  return atomicCAS(address, expected, desired, where);
}

#undef DHS_SIMT_ATOMIC
#undef DHS_SIMT_VALUE
