#include "kernels/cuda/wgmma.h"
#include "simt/kernels/warpgroups.cuh"

namespace simt::warpgroups {
namespace {

struct alignas(kSwizzledAtomBytes) Atom {
  std::byte bytes[kSwizzledAtomBytes];
};

// Where element (line, column) of a row-major matrix lies, in blocks of 64 columns.
__device__ __nv_bfloat16* element(std::byte* matrix, int line, int column, Strides strides) {
  std::byte* atom = matrix + column / 64 * strides.columns_bytes + line / 8 * strides.lines_bytes;
  return reinterpret_cast<__nv_bfloat16*>(atom + swizzled_offset(line % 8, column % 64 / 8)) +
         column % 8;
}

__device__ void stage(std::byte* smem, const __nv_bfloat16* matrix, int2 shape, Strides strides) {
  for (int i = threadIdx.x; i < shape.x * shape.y; i += kWarpgroupThreads) {
    *element(smem, i / shape.y, i % shape.y, strides) = matrix[i];
  }
}

// D as a product leaves it, to a row-major [64, 2 * Count] matrix.
template <int Count>
__device__ void store(float* c, const float (&d)[Count]) {
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  for (int i = 0; i < Count; ++i) {
    const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    c[(row + i / 2 % 2 * 8) * 2 * Count + column] = d[i];
  }
}

__device__ unsigned matrix_bytes(int2 shape, Strides strides) {
  return (shape.y / 64 - 1) * strides.columns_bytes + shape.x / 8 * strides.lines_bytes;
}

template <int kN, OperandLines kB>
__device__ void multiply(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c,
                         Strides strides) {
  DHS_DYN_SHARED(Atom, smem);
  std::byte* smem_a = smem->bytes;
  const int2 a_shape = make_int2(kM, kK);
  const int2 b_shape = kB == OperandLines::k ? make_int2(kN, kK) : make_int2(kK, kN);
  std::byte* smem_b = smem_a + matrix_bytes(a_shape, strides);
  stage(smem_a, a, a_shape, strides);
  stage(smem_b, b, b_shape, strides);
  fence_before_wgmma();
  __syncthreads();
  const OperandDescriptor a_operand = operand_descriptor(smem_a, strides.lines_bytes);
  const OperandDescriptor b_operand =
      operand_descriptor(smem_b, strides.lines_bytes, strides.columns_bytes);
  float d[kN / 2];
  wgmma_fence(d);
  for (int step = 0; step < kK / 16; ++step) {
    const unsigned of_k_lines = step / 4 * strides.columns_bytes + step % 4 * 32;
    const unsigned of_n_lines = step * 2 * strides.lines_bytes;
    wgmma_bf16<kB>(d, advance(a_operand, of_k_lines),
                   advance(b_operand, kB == OperandLines::k ? of_k_lines : of_n_lines), step != 0);
  }
  wgmma_commit_group();
  wgmma_wait(d);
  store(c, d);
}

}  // namespace

template <int kN>
__global__ void multiply_k_lines(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c,
                                 Strides strides) {
  multiply<kN, OperandLines::k>(a, b, c, strides);
}

template <int kN>
__global__ void multiply_n_lines(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c,
                                 Strides strides) {
  multiply<kN, OperandLines::n>(a, b, c, strides);
}

template __global__ void multiply_k_lines<64>(const __nv_bfloat16*, const __nv_bfloat16*, float*,
                                              Strides);
template __global__ void multiply_k_lines<256>(const __nv_bfloat16*, const __nv_bfloat16*, float*,
                                               Strides);
template __global__ void multiply_n_lines<64>(const __nv_bfloat16*, const __nv_bfloat16*, float*,
                                              Strides);
template __global__ void multiply_n_lines<256>(const __nv_bfloat16*, const __nv_bfloat16*, float*,
                                               Strides);

namespace {

constexpr Strides kDense = {kSwizzledAtomBytes, 64 * kSwizzledLineBytes};

__device__ void stage_in_order(std::byte* smem, const __nv_bfloat16* matrix) {
  for (int i = threadIdx.x; i < 64 * 64; i += kWarpgroupThreads) {
    reinterpret_cast<__nv_bfloat16*>(smem)[i] = matrix[i];
  }
}

__device__ void issue(float (&d)[32], OperandDescriptor a, OperandDescriptor b, Fault fault) {
  if (fault == Fault::absent_warps && threadIdx.x >= 64) return;
  if (fault == Fault::disagreeing_warps && threadIdx.x >= 96) b = a;
  if (fault != Fault::missing_fence) wgmma_fence(d);
  for (int step = 0; step < 4; ++step) {
    wgmma_bf16<OperandLines::k>(d, advance(a, step * 32), advance(b, step * 32), step != 0);
  }
  if (fault != Fault::missing_commit) wgmma_commit_group();
}

}  // namespace

__global__ void product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, Fault fault) {
  DHS_DYN_SHARED(Atom, smem);
  std::byte* smem_b = smem[8].bytes;
  if (fault == Fault::unswizzled) {
    stage_in_order(smem->bytes, a);
  } else {
    stage(smem->bytes, a, make_int2(64, 64), kDense);
  }
  stage(smem_b, b, make_int2(64, 64), kDense);
  if (fault != Fault::missing_proxy_fence) fence_before_wgmma();
  __syncthreads();
  float d[32] = {};
  const int b_atom = fault == Fault::outside_of_shared ? 9 : 8;
  issue(d, operand_descriptor(smem->bytes, 1024), operand_descriptor(smem[b_atom].bytes, 1024),
        fault);
  if (fault == Fault::late_wait) store(c, d);
  if (fault != Fault::missing_wait) wgmma_wait(d);
  if (fault == Fault::operand_in_use) {
    *reinterpret_cast<uint4*>(smem_b + threadIdx.x * 64) = make_uint4(0, 0, 0, 0);
  }
  if (fault != Fault::late_wait) store(c, d);
}

}  // namespace simt::warpgroups
