// Warpgroup products (sm_90a alone): D (64 x n, f32) = A (64 x 16, bf16) * B (16 x n, bf16) + D,
// computed by four neighbouring warps while they go on. Code for other devices must not reach these
// functions: they trap there.
//
// A and B lie in shared memory, D in registers: of thread t of the warpgroup, d[4j + i] is row
// t / 32 * 16 + t % 32 / 4 + i / 2 * 8, column 8j + t % 4 * 2 + i % 2.
//
// Operands are made of atoms: 8 lines of 128 bytes, at a multiple of 1024. The 16-byte vector v of
// line l lies at v ^ (l % 8): see swizzled_offset(). Two layouts, by what a line holds:
//   k       64 values of k of one row of A, or of one column of B. An operand is 16 of them: its
//           descriptor starts at a multiple of 32 bytes in the first line. The next 8 lines are
//           `lines_bytes` further.
//   n       B only: 64 columns of one k. The next 8 values of k are `lines_bytes` further, the next
//           64 columns `columns_bytes`.
// (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".)
//
// In order: write the operands; fence_before_wgmma(); a barrier; wgmma_fence(d); products;
// wgmma_commit_group(); wgmma_wait(d). Until then nobody may touch d or write the operands. All 128
// threads make the same calls.
//
// The emulator computes the products when they are waited for, from what is in shared memory then.
#pragma once

#include "kernels/cuda/cuda.h"

#if defined(__CUDACC__)
#define DHS_SIMT_WHERE
#define DHS_SIMT_ONLY_WHERE
#else
#define DHS_SIMT_WHERE , DHS_SIMT_HERE
#define DHS_SIMT_ONLY_WHERE DHS_SIMT_HERE
#endif

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define DHS_SIMT_TRAPS 1
#else
#define DHS_SIMT_TRAPS 0
#endif

namespace simt {

inline constexpr unsigned kWarpgroupThreads = 128;
inline constexpr unsigned kSwizzledLineBytes = 128;
inline constexpr unsigned kSwizzledAtomBytes = 8 * kSwizzledLineBytes;

// Where the 16-byte vector `vector` (0 to 7) of line `line` lies, from the first line's start.
__host__ __device__ constexpr unsigned swizzled_offset(unsigned line, unsigned vector) {
  return line * kSwizzledLineBytes + (vector ^ line % 8) * 16;
}

enum class OperandLines { k, n };

// What a product's instruction needs to know of A or B. Plain bits.
using OperandDescriptor = uint64_t;

// `shared` is where the operand's first line starts, or a multiple of 32 bytes in it.
__device__ __forceinline__ OperandDescriptor operand_descriptor(const void* shared,
                                                                unsigned lines_bytes,
                                                                unsigned columns_bytes = 0) {
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
#else
  const unsigned address = shared_address(shared);
#endif
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return kSwizzle128 | uint64_t{lines_bytes >> 4} << 32 | uint64_t{columns_bytes >> 4} << 16 |
         (address & 0x3ffffu) >> 4;
}

// The same operand, `bytes` further.
__device__ __forceinline__ OperandDescriptor advance(OperandDescriptor operand, unsigned bytes) {
  return operand + (bytes >> 4);
}

// Makes this thread's earlier writes to shared memory, its finished cp.async copies among them,
// visible to products that come after the next barrier.
__device__ __forceinline__ void fence_before_wgmma() {
#if !defined(__CUDACC__)
  async_proxy_fence();
#elif DHS_SIMT_TRAPS
  __trap();
#else
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
#endif
}

namespace detail {

// The compiler may not move uses of d across this.
template <int Count>
__device__ __forceinline__ void pin(float (&d)[Count]) {
#if defined(__CUDACC__)
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
#else
  static_cast<void>(d);
#endif
}

}  // namespace detail

// Before products that use d, or that come after a wait.
template <int Count>
__device__ __forceinline__ void wgmma_fence(float (&d)[Count] DHS_SIMT_WHERE) {
  detail::pin(d);
#if !defined(__CUDACC__)
  warpgroup_fence(where);
#elif DHS_SIMT_TRAPS
  __trap();
#else
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#endif
}

__device__ __forceinline__ void wgmma_commit_group(DHS_SIMT_ONLY_WHERE) {
#if !defined(__CUDACC__)
  warpgroup_commit(where);
#elif DHS_SIMT_TRAPS
  __trap();
#else
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
#endif
}

// Returns when all committed products are done; d may be used then. Another warp's part of a
// product may still read its operands: they are free after a barrier.
template <int Count>
__device__ __forceinline__ void wgmma_wait(float (&d)[Count] DHS_SIMT_WHERE) {
#if !defined(__CUDACC__)
  warpgroup_wait(where);
#elif DHS_SIMT_TRAPS
  __trap();
#else
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
#endif
  detail::pin(d);
}

#if defined(__CUDACC__) && !DHS_SIMT_TRAPS

namespace detail {

// Operands of inline PTX.
#define DHS_SIMT_D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define DHS_SIMT_D16(i) \
  DHS_SIMT_D4(i), DHS_SIMT_D4((i) + 4), DHS_SIMT_D4((i) + 8), DHS_SIMT_D4((i) + 12)
#define DHS_SIMT_D64(i) \
  DHS_SIMT_D16(i), DHS_SIMT_D16((i) + 16), DHS_SIMT_D16((i) + 32), DHS_SIMT_D16((i) + 48)
// Their names, 32 at a time.
#define DHS_SIMT_NAMES_0                                                   \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19," \
  "%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define DHS_SIMT_NAMES_32                                            \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define DHS_SIMT_NAMES_64                                            \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define DHS_SIMT_NAMES_96                                                        \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
  "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

template <OperandLines kB>
__device__ __forceinline__ void wgmma_n64(float (&d)[32], OperandDescriptor a, OperandDescriptor b,
                                          int accumulates) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" DHS_SIMT_NAMES_0
      "}, %32, %33, p, 1, 1, 0, %35;\n}\n"
      : DHS_SIMT_D16(0), DHS_SIMT_D16(16)
      : "l"(a), "l"(b), "r"(accumulates), "n"(kB == OperandLines::n));
}

template <OperandLines kB>
__device__ __forceinline__ void wgmma_n256(float (&d)[128], OperandDescriptor a,
                                           OperandDescriptor b, int accumulates) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" DHS_SIMT_NAMES_0
      "," DHS_SIMT_NAMES_32 "," DHS_SIMT_NAMES_64 "," DHS_SIMT_NAMES_96
      "}, %128, %129, p, 1, 1, 0, %131;\n}\n"
      : DHS_SIMT_D64(0), DHS_SIMT_D64(64)
      : "l"(a), "l"(b), "r"(accumulates), "n"(kB == OperandLines::n));
}

#undef DHS_SIMT_D4
#undef DHS_SIMT_D16
#undef DHS_SIMT_D64
#undef DHS_SIMT_NAMES_0
#undef DHS_SIMT_NAMES_32
#undef DHS_SIMT_NAMES_64
#undef DHS_SIMT_NAMES_96

}  // namespace detail

#endif

// Starts D = A * B + D, or A * B when `accumulates` is false, with n = 2 * Count, 64 or 256. A's
// lines hold k, B's lines kB.
template <OperandLines kB, int Count>
__device__ __forceinline__ void wgmma_bf16(float (&d)[Count], OperandDescriptor a,
                                           OperandDescriptor b, bool accumulates DHS_SIMT_WHERE) {
  static_assert(Count == 32 || Count == 128);
#if !defined(__CUDACC__)
  const bool b_lines_hold_n = kB == OperandLines::n;
  warpgroup_product({d, a, b, 2 * Count, b_lines_hold_n, accumulates}, where);
#elif DHS_SIMT_TRAPS
  __trap();
#else
  if constexpr (Count == 32) {
    detail::wgmma_n64<kB>(d, a, b, accumulates ? 1 : 0);
  } else {
    detail::wgmma_n256<kB>(d, a, b, accumulates ? 1 : 0);
  }
#endif
}

}  // namespace simt

#undef DHS_SIMT_WHERE
#undef DHS_SIMT_ONLY_WHERE
#undef DHS_SIMT_TRAPS
