// Shuffles, votes and reductions within a warp.
#pragma once

#include <functional>

#include "simt/emu/builtins.h"

namespace simt::detail {

template <class T>
struct Shuffle {
  T value;
  int source;
  T result;
};

template <class T>
DHS_SIMT_UNCHECKED void shuffle_lanes(const WarpLanes& lanes) {
  for (int lane : lanes) {
    auto& args = lanes.data<Shuffle<T>>(lane);
    // Hardware leaves a read from an absent lane undefined; here it returns the lane's own value.
    const int source = lanes.contains(args.source) ? args.source : lane;
    args.result = lanes.data<Shuffle<T>>(source).value;
  }
}

template <class T>
DHS_SIMT_UNCHECKED T shuffle(unsigned mask, T value, int source, std::source_location where) {
  Shuffle<T> args{value, source, value};
  warp_collective(mask, &args, &shuffle_lanes<T>, where);
  return args.result;
}

// A warp splits into segments of `width` lanes (a power of two).
DHS_SIMT_UNCHECKED inline int segment_begin(int lane, int width) { return lane & ~(width - 1); }
DHS_SIMT_UNCHECKED inline int segment_last(int lane, int width) { return lane | (width - 1); }

struct Vote {
  bool predicate;
  unsigned ballot;
  unsigned voters;
};

DHS_SIMT_UNCHECKED inline void count_votes(const WarpLanes& lanes) {
  unsigned ballot = 0;
  for (int lane : lanes) {
    ballot |= unsigned(lanes.data<Vote>(lane).predicate) << lane;
  }
  for (int lane : lanes) {
    auto& vote = lanes.data<Vote>(lane);
    vote.ballot = ballot;
    vote.voters = lanes.mask();
  }
}

DHS_SIMT_UNCHECKED inline Vote vote(unsigned mask, int predicate, std::source_location where) {
  Vote args{predicate != 0, 0, 0};
  warp_collective(mask, &args, &count_votes, where);
  return args;
}

struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

template <class T, class Op>
DHS_SIMT_UNCHECKED void reduce_lanes(const WarpLanes& lanes) {
  T total = lanes.data<T>(lanes.first());
  for (int lane : lanes) {
    if (lane != lanes.first()) {
      total = Op{}(total, lanes.data<T>(lane));
    }
  }
  for (int lane : lanes) {
    lanes.data<T>(lane) = total;
  }
}

template <class Op, class T>
DHS_SIMT_UNCHECKED T reduce(unsigned mask, T value, std::source_location where) {
  warp_collective(mask, &value, &reduce_lanes<T, Op>, where);
  return value;
}

}  // namespace simt::detail

template <class T>
DHS_SIMT_UNCHECKED T __shfl_sync(unsigned mask, T value, int source, int width = 32,
                                 DHS_SIMT_HERE) {
  const int begin = simt::detail::segment_begin(simt::lane_index(), width);
  return simt::detail::shuffle(mask, value, begin + (source & (width - 1)), where);
}

template <class T>
DHS_SIMT_UNCHECKED T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                                     DHS_SIMT_HERE) {
  const int lane = simt::lane_index();
  const int other = lane ^ bits;
  // A lane may read from its own segment and from those below it, not from those above.
  const bool above = other > simt::detail::segment_last(lane, width);
  return simt::detail::shuffle(mask, value, above ? lane : other, where);
}

template <class T>
DHS_SIMT_UNCHECKED T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                    DHS_SIMT_HERE) {
  const int lane = simt::lane_index();
  const int other = lane - int(delta);
  const bool outside = other < simt::detail::segment_begin(lane, width);
  return simt::detail::shuffle(mask, value, outside ? lane : other, where);
}

template <class T>
DHS_SIMT_UNCHECKED T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                      DHS_SIMT_HERE) {
  const int lane = simt::lane_index();
  const int other = lane + int(delta);
  const bool outside = other > simt::detail::segment_last(lane, width);
  return simt::detail::shuffle(mask, value, outside ? lane : other, where);
}

inline void __syncwarp(unsigned mask = 0xffffffffu, DHS_SIMT_HERE) { simt::warp_sync(mask, where); }

inline unsigned __ballot_sync(unsigned mask, int predicate, DHS_SIMT_HERE) {
  return simt::detail::vote(mask, predicate, where).ballot;
}

inline int __any_sync(unsigned mask, int predicate, DHS_SIMT_HERE) {
  return simt::detail::vote(mask, predicate, where).ballot != 0;
}

inline int __all_sync(unsigned mask, int predicate, DHS_SIMT_HERE) {
  const simt::detail::Vote vote = simt::detail::vote(mask, predicate, where);
  return vote.ballot == vote.voters;
}

inline unsigned __reduce_add_sync(unsigned mask, unsigned value, DHS_SIMT_HERE) {
  return simt::detail::reduce<std::plus<unsigned>>(mask, value, where);
}

inline int __reduce_add_sync(unsigned mask, int value, DHS_SIMT_HERE) {
  return simt::detail::reduce<std::plus<int>>(mask, value, where);
}

inline unsigned __reduce_min_sync(unsigned mask, unsigned value, DHS_SIMT_HERE) {
  return simt::detail::reduce<simt::detail::Min>(mask, value, where);
}

inline int __reduce_min_sync(unsigned mask, int value, DHS_SIMT_HERE) {
  return simt::detail::reduce<simt::detail::Min>(mask, value, where);
}

inline unsigned __reduce_max_sync(unsigned mask, unsigned value, DHS_SIMT_HERE) {
  return simt::detail::reduce<simt::detail::Max>(mask, value, where);
}

inline int __reduce_max_sync(unsigned mask, int value, DHS_SIMT_HERE) {
  return simt::detail::reduce<simt::detail::Max>(mask, value, where);
}

inline unsigned __reduce_and_sync(unsigned mask, unsigned value, DHS_SIMT_HERE) {
  return simt::detail::reduce<std::bit_and<unsigned>>(mask, value, where);
}

inline unsigned __reduce_or_sync(unsigned mask, unsigned value, DHS_SIMT_HERE) {
  return simt::detail::reduce<std::bit_or<unsigned>>(mask, value, where);
}

inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, DHS_SIMT_HERE) {
  return simt::detail::reduce<std::bit_xor<unsigned>>(mask, value, where);
}

namespace simt::detail {

template <class T>
struct Match {
  T value;
  unsigned same = 0;
};

template <class T>
DHS_SIMT_UNCHECKED void match_lanes(const WarpLanes& lanes) {
  for (int lane : lanes) {
    auto& own = lanes.data<Match<T>>(lane);
    for (int other : lanes) {
      own.same |= unsigned(lanes.data<Match<T>>(other).value == own.value) << other;
    }
  }
}

}  // namespace simt::detail

// The lanes of the mask whose value is this lane's.
template <class T>
DHS_SIMT_UNCHECKED unsigned __match_any_sync(unsigned mask, T value, DHS_SIMT_HERE) {
  simt::detail::Match<T> args{value};
  simt::warp_collective(mask, &args, &simt::detail::match_lanes<T>, where);
  return args.same;
}

// Legal, and as pessimistic as the standard allows. Kernels should not call it at all.
inline unsigned __activemask() { return 1u << simt::lane_index(); }
