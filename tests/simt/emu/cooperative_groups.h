// The small part of cooperative_groups that kernels use: the block and tiles within a warp.
#pragma once

#include "simt/emu/intrinsics.h"

namespace cooperative_groups {

class thread_block {
 public:
  static void sync(DHS_SIMT_HERE) { simt::block_barrier(simt::BarrierOp::sync, false, where); }
  static unsigned thread_rank() { return simt::linear_thread_index(); }
  static unsigned size() {
    const dim3 dim = simt::block_dim();
    return dim.x * dim.y * dim.z;
  }
};

inline thread_block this_thread_block() { return {}; }

template <unsigned Size>
class thread_block_tile {
  static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0);

 public:
  static constexpr unsigned size() { return Size; }
  static unsigned thread_rank() { return simt::lane_index() & (Size - 1); }
  static unsigned meta_group_rank() { return simt::linear_thread_index() / Size; }

  static void sync(DHS_SIMT_HERE) { __syncwarp(mask(), where); }

  template <class T>
  static T shfl(T value, int source, DHS_SIMT_HERE) {
    return __shfl_sync(mask(), value, source, Size, where);
  }

  template <class T>
  static T shfl_down(T value, unsigned delta, DHS_SIMT_HERE) {
    return __shfl_down_sync(mask(), value, delta, Size, where);
  }

  template <class T>
  static T shfl_xor(T value, unsigned bits, DHS_SIMT_HERE) {
    return __shfl_xor_sync(mask(), value, bits, Size, where);
  }

  static unsigned ballot(int predicate, DHS_SIMT_HERE) {
    return __ballot_sync(mask(), predicate, where) >> first_lane();
  }

 private:
  static unsigned first_lane() { return simt::lane_index() & ~(Size - 1); }
  static unsigned mask() { return (0xffffffffu >> (32 - Size)) << first_lane(); }
};

template <unsigned Size>
thread_block_tile<Size> tiled_partition(thread_block) {
  return {};
}

}  // namespace cooperative_groups
