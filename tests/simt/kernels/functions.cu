#include "kernels/cuda/dependent_launch.h"
#include "kernels/cuda/memory.h"
#include "simt/kernels/functions.cuh"

namespace simt::functions {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

}  // namespace

__global__ void integers(unsigned a, unsigned b, uint64_t* results) {
  const unsigned long long wide = static_cast<unsigned long long>(a) << 32 | b;
  int i = 0;
  results[i++] = __popc(a);
  results[i++] = __popcll(wide);
  results[i++] = __clz(int(a));
  results[i++] = __clzll(static_cast<long long>(wide));
  results[i++] = __ffs(int(a));
  results[i++] = __ffsll(static_cast<long long>(wide));
  results[i++] = __brev(a);
  results[i++] = __umulhi(a, b);
  results[i++] = unsigned(__mulhi(int(a), int(b)));
  results[i++] = __umul64hi(wide, wide);
  results[i++] = __byte_perm(a, b, 0x7531);
  results[i++] = __byte_perm(a, b, 0x3210);
  results[i++] = __byte_perm(a, b, 0x888f);
  results[i++] = __funnelshift_l(a, b, 8);
  results[i++] = __funnelshift_r(a, b, 40);
  results[i++] = __funnelshift_lc(a, b, 40);
  results[i++] = __funnelshift_rc(a, b, 40);
  results[i++] = unsigned(__dp4a(int(a), int(b), 7));
  results[i++] = unsigned(__float2int_rn(2.5f));
  results[i++] = unsigned(__float2int_rz(-2.9f));
  results[i++] = unsigned(__float2int_rd(-2.1f));
  results[i++] = unsigned(__float2int_ru(2.1f));
  results[i++] = unsigned(__float2int_rn(1e20f));
  results[i++] = unsigned(min(int(a), int(b)));
}

__global__ void floats(float a, float b, float* results) {
  int i = 0;
  results[i++] = __fadd_rn(a, b);
  results[i++] = __fsub_rn(a, b);
  results[i++] = __fmul_rn(a, b);
  results[i++] = __fdiv_rn(a, b);
  results[i++] = __fmaf_rn(a, b, -(a * b));
  results[i++] = __frcp_rn(a);
  results[i++] = __fsqrt_rn(a);
  results[i++] = __frsqrt_rn(a);
  results[i++] = exp2f(a);
  results[i++] = log2f(a);
  results[i++] = max(a, nanf(""));
  results[i++] = __bfloat162float(
      __hfma(__float2bfloat16_rn(a), __float2bfloat16_rn(b), __float2bfloat16_rn(1.0f)));
}

__global__ void collectives(WarpResults* results) {
  const int lane = threadIdx.x;
  WarpResults& own = results[lane];
  const int value = lane * 3 - 40;
  own.from_lane_3 = __shfl_sync(kAllLanes, value, 3);
  own.up_1 = __shfl_up_sync(kAllLanes, float(lane), 1);
  own.down_1 = __shfl_down_sync(kAllLanes, double(lane), 1);
  own.xor_1 = __shfl_xor_sync(kAllLanes, static_cast<long long>(lane) << 40, 1);
  const __nv_bfloat162 pair = __floats2bfloat162_rn(float(lane), float(2 * lane));
  const __nv_bfloat162 shuffled = __shfl_sync(kAllLanes, pair, 5);
  own.both_of_bf16 = unsigned(__low2float(shuffled)) * 100 + unsigned(__high2float(shuffled));
  own.min_signed = __reduce_min_sync(kAllLanes, value);
  own.max_signed = __reduce_max_sync(kAllLanes, value);
  own.min_unsigned = __reduce_min_sync(kAllLanes, unsigned(value));
  own.max_unsigned = __reduce_max_sync(kAllLanes, unsigned(value));
  own.all_and = __reduce_and_sync(kAllLanes, 0xf0u | unsigned(lane));
  own.all_or = __reduce_or_sync(kAllLanes, 1u << lane / 2);
  own.all_xor = __reduce_xor_sync(kAllLanes, unsigned(lane) + 1);
  own.same_modulo_5 = __match_any_sync(kAllLanes, lane % 5);
  // Disjoint groups of one warp, each with a mask of its own.
  own.segment_sum = __reduce_add_sync(0xffu << (lane & ~7), lane);
}

__global__ void atomics(Counters* counters) {
  const int index = int(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&counters->sum, -index);
  atomicAdd_system(&counters->wrapping_sum, unsigned(-index));
  atomicAdd(&counters->wide_sum, 1ull << 33);
  atomicAdd(&counters->float_sum, 0.5f);
  atomicMin(&counters->least, -index);
  atomicMax_block(&counters->greatest, index);
  atomicOr(&counters->bits, 1u << index % 32);
  atomicAnd(&counters->common_bits, ~(1u << index % 7));
  atomicXor(&counters->parity, 1u);
  atomicExch(&counters->last, index);
  int seen = 0;
  for (;;) {
    const int expected = seen;
    seen = atomicCAS(&counters->by_swapping, expected, expected + 1);
    if (seen == expected) break;
  }
}

__global__ void hinted_copy(const uint4* x, uint4* y) {
  grid_dependency_wait();
  const unsigned i = threadIdx.x;
  switch (i % 4) {
    case 0:
      store_16(y + i, load_streaming_16(x + i));
      break;
    case 1:
      store_streaming_16(y + i, __ldg(x + i));
      break;
    case 2:
      __stcg(y + i, __ldcv(x + i));
      break;
    default:
      __stwt(y + i, __ldcs(x + i));
      break;
  }
  grid_dependency_launch();
}

}  // namespace simt::functions
