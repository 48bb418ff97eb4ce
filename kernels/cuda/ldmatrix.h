// Loads of 8x8 matrices of 16-bit elements from shared memory into the layout of mma's operands:
// inline PTX for nvcc, a warp collective for the emulator.
//
// Lane l names row l % 8 of matrix l / 8: 16 bytes at a multiple of 16. Of each matrix it receives
// the elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4, the lower one in the low half; the
// trans forms give those of column l / 4. All 32 lanes.
#pragma once

#include "kernels/cuda/cuda.h"

#if defined(__CUDACC__)
#define DHS_SIMT_WHERE
#else
#define DHS_SIMT_WHERE , DHS_SIMT_HERE
#endif

namespace simt {

#if !defined(__CUDACC__)

namespace detail {

struct MatrixRow {
  uint32_t* d;
  const void* row;
};

template <int Count, bool Trans>
void load_matrices(const WarpLanes& lanes) {
  for (int lane : lanes) {
    const int group = lane / 4;
    const int pair = (lane % 4) * 2;
    for (int i = 0; i < Count; ++i) {
      const auto element = [&](int row, int column) {
        const auto& owner = lanes.data<MatrixRow>(8 * i + row);
        return uint32_t{static_cast<const uint16_t*>(owner.row)[column]};
      };
      const uint32_t low = Trans ? element(pair, group) : element(group, pair);
      const uint32_t high = Trans ? element(pair + 1, group) : element(group, pair + 1);
      lanes.data<MatrixRow>(lane).d[i] = high << 16 | low;
    }
  }
}

template <int Count, bool Trans>
void ldmatrix(uint32_t* d, const void* row, std::source_location where) {
  // Rows beyond the matrices' are ignored, on hardware too.
  if (lane_index() < 8 * Count) note_access(row, 16, AccessKind::read, where);
  MatrixRow args{d, row};
  warp_collective(0xffffffffu, &args, &load_matrices<Count, Trans>, where);
}

}  // namespace detail

#endif

// Four matrices. For a 16x16 row-major tile and mma's A operand: lane l names row l % 16, column
// (l / 16) * 8.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&d)[4], const void* smem DHS_SIMT_WHERE) {
#if defined(__CUDACC__)
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(smem));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(from)
               : "memory");
#else
  detail::ldmatrix<4, false>(d, smem, where);
#endif
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&d)[4],
                                                  const void* smem DHS_SIMT_WHERE) {
#if defined(__CUDACC__)
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(smem));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(from)
               : "memory");
#else
  detail::ldmatrix<4, true>(d, smem, where);
#endif
}

// Two matrices; the rows that lanes 16 to 31 name are ignored.
__device__ __forceinline__ void ldmatrix_x2(uint32_t (&d)[2], const void* smem DHS_SIMT_WHERE) {
#if defined(__CUDACC__)
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(smem));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n"
               : "=r"(d[0]), "=r"(d[1])
               : "r"(from)
               : "memory");
#else
  detail::ldmatrix<2, false>(d, smem, where);
#endif
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&d)[2],
                                                  const void* smem DHS_SIMT_WHERE) {
#if defined(__CUDACC__)
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(smem));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];\n"
               : "=r"(d[0]), "=r"(d[1])
               : "r"(from)
               : "memory");
#else
  detail::ldmatrix<2, true>(d, smem, where);
#endif
}

}  // namespace simt

#undef DHS_SIMT_WHERE
