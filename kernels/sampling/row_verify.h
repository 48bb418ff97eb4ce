// row_verify: whether a row accepts its draft token, and the draw from what is left when it does
// not. One block, all threads together: every function here is called by all of them with the same
// arguments, and returns the same to all of them, unless it says otherwise.
//
// Masses are the integers of row_order, those of a proposal too: q(token) * the kept mass, rounded
// down. Sums need no order, so a residual draw does not depend on the number of threads.
#pragma once

#include "kernels/sampling/philox.h"
#include "kernels/sampling/row_walk.h"
#include "kernels/sampling/sampling.h"

namespace dhs {

// What a sum must reach to be at least part * mass.
__device__ inline uint64_t reach(double part, uint64_t mass) {
  const double target = ceil(part * static_cast<double>(mass));
  return target < 1 ? 1 : static_cast<uint64_t>(target);
}

// What the filters keep: the tokens at `lowest` or before it that are likely enough.
struct Kept {
  uint64_t mass = 0;
  Place lowest = 0;
  float least_probability = 0;  // relative to the largest
};

// Tokens in the order of their ids.
struct TokenRange {
  int64_t begin = 0, count = 0;
  uint64_t before = 0;  // the sum over all tokens before
};

struct Residual {
  RowWalk& walk;
  const RowSampling& sampling;
  Kept kept;
  bool subtracts = true;  // false: what is left is what was kept, but for the draft token

  // Called by any thread, as all up to share().
  __device__ uint64_t kept_mass(int64_t token, uint32_t key) const {
    if (key == 0 || place_of(key, token) < kept.lowest) return 0;
    const float probability = walk.softmax(key);
    return probability >= kept.least_probability ? mass_of(probability) : 0;
  }
  __device__ uint64_t other_mass(int64_t token, uint32_t key) const {
    return token == sampling.draft_token ? 0 : kept_mass(token, key);
  }
  __device__ uint64_t proposed_mass(int32_t i) const {
    const double q = sampling.proposed_probabilities[i];
    return static_cast<uint64_t>(q * static_cast<double>(kept.mass));
  }
  // Of the proposal's arrays, -1 where they do not list the token.
  __device__ int32_t entry_of(int64_t token) const {
    if (sampling.proposed_tokens == nullptr) return static_cast<int32_t>(token);
    for (int32_t i = 0; i < sampling.num_proposed; ++i) {
      if (sampling.proposed_tokens[i] == token) return i;
    }
    return -1;
  }
  __device__ uint64_t at(int64_t token) const {
    const uint64_t mass = other_mass(token, walk.row.key(token));
    const int32_t entry = mass != 0 && subtracts ? entry_of(token) : -1;
    if (entry < 0) return mass;
    const uint64_t proposed = proposed_mass(entry);
    return mass > proposed ? mass - proposed : 0;
  }

  // What the lanes of a warp, together, find left of the tokens [begin, end): the sum of their
  // shares, modulo 2^64. Listed proposals are taken off the sum at their entries.
  __device__ uint64_t share(int64_t begin, int64_t end) const {
    constexpr int kAhead = 8;  // loads under way
    const bool is_dense = subtracts && sampling.proposed_tokens == nullptr;
    const int lane = threadIdx.x % kLanes;
    uint64_t sum = 0;
    for (int64_t first = begin + lane; first < end; first += kAhead * kLanes) {
      uint32_t keys[kAhead];
      for (int i = 0; i < kAhead; ++i) {
        const int64_t token = first + i * kLanes;
        keys[i] = token < end ? walk.row.key(token) : 0;
      }
      for (int i = 0; i < kAhead; ++i) {
        const int64_t token = first + i * kLanes;
        const uint64_t mass = other_mass(token, keys[i]);
        if (mass == 0) continue;
        const uint64_t proposed = is_dense ? proposed_mass(static_cast<int32_t>(token)) : 0;
        sum += mass > proposed ? mass - proposed : 0;
      }
    }
    if (!subtracts || is_dense) return sum;
    for (int32_t i = lane; i < sampling.num_proposed; i += kLanes) {
      const int64_t token = sampling.proposed_tokens[i];
      if (token < begin || token >= end) continue;
      const uint64_t mass = other_mass(token, walk.row.key(token)), proposed = proposed_mass(i);
      sum -= mass < proposed ? mass : proposed;
    }
    return sum;
  }

  __device__ uint64_t total() const {
    const TokenRange own = part_of({0, walk.row.vocab_size});
    return scan_block({0, share(own.begin, own.begin + own.count)}, walk.shared).all.mass;
  }

  // The calling warp's part of a range.
  __device__ TokenRange part_of(const TokenRange& range) const {
    const int64_t num_warps = blockDim.x / kLanes, warp = threadIdx.x / kLanes;
    const int64_t size = (range.count + num_warps - 1) / num_warps;
    const int64_t begin = warp * size < range.count ? warp * size : range.count;
    const int64_t end = begin + size < range.count ? begin + size : range.count;
    return {range.begin + begin, end - begin};
  }

  // The warp's part in which the sum reaches `target`.
  __device__ TokenRange narrow(const TokenRange& range, uint64_t target) const {
    const TokenRange own = part_of(range);
    const uint64_t mass = share(own.begin, own.begin + own.count);
    const uint64_t before = range.before + scan_block({0, mass}, walk.shared).before.mass;
    const uint64_t warp_before = __shfl_sync(kAllLanes, before, 0);
    const uint64_t warp_through = __shfl_sync(kAllLanes, before + mass, kLanes - 1);
    const bool reaches = warp_before < target && warp_through >= target;
    if (reaches && threadIdx.x % kLanes == 0) {
      walk.shared.stop = {
          static_cast<int32_t>(own.begin), {static_cast<uint64_t>(own.count), warp_before}, {}};
    }
    __syncthreads();
    const Stop stop = walk.shared.stop;
    __syncthreads();  // stop may be written again
    return {stop.idx, static_cast<int64_t>(stop.before.num_tokens), stop.before.mass};
  }

  // The first token, in the order of ids, at which the sum reaches `target`, 1 to total().
  __device__ int32_t invert(uint64_t target) const {
    constexpr int64_t kTokensPerThread = 8;
    TokenRange range{0, walk.row.vocab_size};
    while (range.count > kTokensPerThread * blockDim.x) range = narrow(range, target);
    const int64_t begin = range.begin;
    const Stop stop = find_stop(
        static_cast<int>(range.count),
        [&](int i) {
          return RowSum{0, at(begin + i)};
        },
        {.mass = target}, {0, range.before}, walk.shared);
    return static_cast<int32_t>(begin + stop.idx);
  }
};

__device__ inline bool accepts_draft(const Residual& residual) {
  const RowSampling& sampling = residual.sampling;
  const int64_t draft = sampling.draft_token;
  const int32_t entry = residual.entry_of(draft);
  float proposed = entry < 0 ? 0.0f : sampling.proposed_probabilities[entry];
  proposed = proposed < kLeastProposed ? kLeastProposed : proposed > 1 ? 1.0f : proposed;
  const double u =
      philox_uniform(sampling.seed, sampling.sequence_idx + kAcceptStream, sampling.position);
  const uint64_t mass = residual.kept_mass(draft, residual.walk.row.key(draft));
  return u * double{proposed} * static_cast<double>(residual.kept.mass) < static_cast<double>(mass);
}

// The token of a row with a proposal.
__device__ inline int32_t verify(const RowSampling& sampling, const Kept& kept, RowWalk& walk) {
  Residual residual{walk, sampling, kept};
  if (accepts_draft(residual)) return sampling.draft_token;
  uint64_t total = residual.total();
  if (static_cast<double>(total) <= kLeastResidual * static_cast<double>(kept.mass)) {
    residual.subtracts = false;
    total = residual.total();
  }
  if (total == 0) return sampling.draft_token;  // nothing else is kept: it is accepted above
  const double u = philox_uniform(sampling.seed, sampling.sequence_idx, sampling.position);
  return residual.invert(reach(u, total));
}

}  // namespace dhs
