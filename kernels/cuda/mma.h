// Tensor core instructions: inline PTX for nvcc, a warp collective for the emulator. Hardware may
// add the products of one instruction in another order: results agree but for rounding.
#pragma once

#include "kernels/cuda/cuda.h"

namespace simt {

#if !defined(__CUDACC__)

namespace detail {

// What one lane holds of the three matrices. Each 32-bit register has two bf16, the lower column
// (A) or row (B) in its low half.
struct MmaFragments {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

inline float low_bf16(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
inline float high_bf16(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

// The layouts are those of the PTX manual: lane = 4 * group + member, and a lane holds the columns
// (or rows) 2 * member and 2 * member + 1 of the rows (or columns) group and group + 8.
inline void mma_m16n8k16_bf16_lanes(const WarpLanes& lanes) {
  float a[16][16];
  float b[16][8];
  for (int lane : lanes) {
    const auto& own = lanes.data<MmaFragments>(lane);
    const int group = lane / 4;
    const int pair = (lane % 4) * 2;
    for (int i = 0; i < 4; ++i) {
      const int row = group + (i % 2) * 8;
      const int k = pair + (i / 2) * 8;
      a[row][k] = low_bf16(own.a[i]);
      a[row][k + 1] = high_bf16(own.a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      const int k = pair + i * 8;
      b[k][group] = low_bf16(own.b[i]);
      b[k + 1][group] = high_bf16(own.b[i]);
    }
  }
  for (int lane : lanes) {
    const auto& own = lanes.data<MmaFragments>(lane);
    const int group = lane / 4;
    const int pair = (lane % 4) * 2;
    for (int i = 0; i < 4; ++i) {
      const int row = group + (i / 2) * 8;
      const int column = pair + i % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k) {
        sum += a[row][k] * b[k][column];
      }
      own.d[i] += sum;
    }
  }
}

inline float e4m3_byte(uint32_t word, int byte) {
  const auto bits = static_cast<__nv_fp8_storage_t>(word >> (8 * byte));
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3)));
}

// As above with four bytes in a register: a lane holds the columns (or rows) 4 * member to
// 4 * member + 3, and those 16 further.
inline void mma_m16n8k32_e4m3_lanes(const WarpLanes& lanes) {
  float a[16][32];
  float b[32][8];
  for (int lane : lanes) {
    const auto& own = lanes.data<MmaFragments>(lane);
    const int group = lane / 4;
    const int first = (lane % 4) * 4;
    for (int i = 0; i < 16; ++i) {
      a[group + (i / 4 % 2) * 8][first + (i / 8) * 16 + i % 4] = e4m3_byte(own.a[i / 4], i % 4);
    }
    for (int i = 0; i < 8; ++i) {
      b[first + (i / 4) * 16 + i % 4][group] = e4m3_byte(own.b[i / 4], i % 4);
    }
  }
  for (int lane : lanes) {
    const auto& own = lanes.data<MmaFragments>(lane);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i / 2) * 8;
      const int column = (lane % 4) * 2 + i % 2;
      float sum = 0;
      for (int k = 0; k < 32; ++k) {
        sum += a[row][k] * b[k][column];
      }
      own.d[i] += sum;
    }
  }
}

}  // namespace detail

#endif

// D (16x8, f32) += A (16x16, bf16, row major) * B (16x8, bf16, column major). All 32 lanes.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  detail::MmaFragments fragments{d, a, b};
  warp_collective(0xffffffffu, &fragments, &detail::mma_m16n8k16_bf16_lanes,
                  std::source_location::current());
#endif
}

// D (16x8, f32) += A (16x32, e4m3, row major) * B (32x8, e4m3, column major). All 32 lanes; sm_89
// and later.
__device__ __forceinline__ void mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
#if !defined(__CUDACC__)
  detail::MmaFragments fragments{d, a, b};
  warp_collective(0xffffffffu, &fragments, &detail::mma_m16n8k32_e4m3_lanes,
                  std::source_location::current());
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  __trap();
#else
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

}  // namespace simt
