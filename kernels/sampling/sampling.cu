// sampling on CUDA: one block per row, grid num_rows, 32 to 512 threads by vocabulary, 33 KB of
// shared memory and a bit per vocabulary entry (65 KB for 2^18). No scratch.
//
// A row costs some passes over its logits, 4 bytes and 1 to 30 FLOPs per entry each: 2 for a greedy
// draw, 4 without filters, one more per filter, 3 for top tokens. The first comes from device
// memory, the others from the L2 cache, at what one SM can read: about 5 us per pass and 150,000
// entries. Rows are independent and share the device.
// A rejected draft token takes about 2 more. An adjusted token costs a search of the list in each.
// Stages: mark_special, find_likeliest, sum_up, draw, write_row, write_top_tokens.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/launch.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/row_verify.h"
#include "kernels/sampling/row_walk.h"
#include "kernels/sampling/sampling.h"

namespace dhs {
namespace {

constexpr unsigned kMinThreads = 32, kMaxThreads = 512;
constexpr int64_t kTokensPerThread = 8;  // what a block is sized for, at least
constexpr int64_t kWordBits = 32;
constexpr double kMassUnit = 1.0 / static_cast<double>(uint64_t{1} << kMassBits);
// exp of less than minus this is less than a unit of mass.
constexpr float kDeepest = 29;

// Bits of the tokens that the row masks or adjusts, null when there are none.
__device__ const uint32_t* mark_special(const RowSampling& sampling, int64_t vocab_size,
                                        uint32_t* bits) {
  if (sampling.num_masked_tokens == 0 && sampling.num_adjustments == 0) return nullptr;
  for (int64_t i = threadIdx.x; i * kWordBits < vocab_size; i += blockDim.x) bits[i] = 0;
  __syncthreads();
  auto mark = [&](int32_t token) {
    if (token < 0 || token >= vocab_size) return;
    atomicOr(&bits[token / kWordBits], 1u << token % kWordBits);
  };
  for (int32_t i = threadIdx.x; i < sampling.num_masked_tokens; i += blockDim.x) {
    mark(sampling.masked_tokens[i]);
  }
  for (int32_t i = threadIdx.x; i < sampling.num_adjustments; i += blockDim.x) {
    mark(sampling.adjustments[i].token);
  }
  __syncthreads();
  return bits;
}

// The place of the likeliest token, 0 when nothing can be drawn.
__device__ Place find_likeliest(const RowLogits& row, RowOrderShared& shared) {
  Place likeliest = 0;
  for_each_token(row, [&](int64_t token, uint32_t key) {
    const Place place = place_of(key, token);
    likeliest = place > likeliest ? place : likeliest;
  });
  return max_block(likeliest, shared);
}

struct RowTotals {
  uint64_t mass = 0;         // at temperature 1
  uint64_t likely_mass = 0;  // at the row's temperature, of what min_p keeps
};

__device__ RowTotals sum_up(const RowLogits& row, const RowSampling& sampling, float largest,
                            RowOrderShared& shared) {
  const Softmax raw{largest, 1.0f}, drawn{largest, sampling.temperature};
  const bool has_min_p = sampling.temperature > 0 && sampling.min_p > 0;
  RowTotals totals;
  for_each_token(row, [&](int64_t, uint32_t key) {
    totals.mass += mass_of(raw(key));
    if (!has_min_p) return;
    const float probability = drawn(key);
    if (probability >= sampling.min_p) totals.likely_mass += mass_of(probability);
  });
  const RowSum all = scan_block({totals.likely_mass, totals.mass}, shared).all;
  return {all.mass, all.num_tokens};
}

enum class WalkFor { kTopK, kTopP, kDraw };

// How far a walk goes, given the mass that the filters before it keep.
__device__ WalkLimits limits_of(WalkFor purpose, const BatchSamplingParams& params,
                                const RowSampling& sampling, uint64_t kept) {
  const bool has_top_k = sampling.top_k > 0 && sampling.top_k < params.logits.sizes[1];
  switch (purpose) {
    case WalkFor::kTopK:
      return {.num_tokens = has_top_k ? static_cast<uint64_t>(sampling.top_k) : kNoLimit};
    case WalkFor::kTopP:
      return {.mass = reach(double{sampling.top_p}, kept)};
    case WalkFor::kDraw:
      break;
  }
  const double u = philox_uniform(sampling.seed, sampling.sequence_idx, sampling.position);
  return {.mass = reach(u, kept)};
}

// Every filter keeps a prefix, so that the shortest of them decides, and only its mass matters.
__device__ int32_t draw(const BatchSamplingParams& params, const RowSampling& sampling,
                        Place likeliest, uint64_t likely_mass, RowWalk& walk) {
  const float largest = value_of(key_at(likeliest));
  const uint32_t deepest = key_of(largest - kDeepest * sampling.temperature);
  walk.softmax = {largest, sampling.temperature};
  walk.has_mass = true;
  walk.is_counted = false;
  walk.all = bins_down_to(likeliest, deepest < kLowestKey ? kLowestKey : deepest);
  RowWalk::End end;
  Kept prefix{.least_probability = sampling.min_p};
  for (WalkFor purpose : {WalkFor::kTopK, WalkFor::kTopP, WalkFor::kDraw}) {
    if (purpose == WalkFor::kTopP && sampling.top_p >= 1) continue;
    uint64_t kept = end.through.mass;
    const bool has_min_p = purpose == WalkFor::kDraw && sampling.min_p > 0;
    if (has_min_p && likely_mass < kept) kept = likely_mass;
    if (end.token >= 0) prefix.lowest = walk.row.place(end.token);
    if (purpose == WalkFor::kDraw && has_proposal(sampling)) {
      prefix.mass = kept;
      return verify(sampling, prefix, walk);
    }
    end = walk.walk(limits_of(purpose, params, sampling, kept));
  }
  return end.token;
}

// likeliest: 0 when nothing can be drawn.
__device__ void write_top_tokens(const BatchSamplingParams& params, int64_t row_idx,
                                 Place likeliest, double log_total, RowWalk& walk) {
  const int64_t room = params.top_tokens.sizes[1];
  const int64_t asked = params.rows(row_idx).num_logprobs;
  const int wanted = static_cast<int>(asked < room ? asked : room);
  int num_found = 0;
  if (wanted > 0 && likeliest != 0) {
    walk.has_mass = false;
    walk.is_counted = false;
    walk.all = bins_down_to(likeliest, kLowestKey);
    num_found = walk.sort_first(wanted);
  }
  const float largest = value_of(key_at(likeliest));
  for (int64_t i = threadIdx.x; i < room; i += blockDim.x) {
    const bool is_found = i < num_found;
    const Place place = is_found ? walk.shared.sorted[i] : 0;
    const double above = is_found ? value_of(key_at(place)) - largest : 0;
    params.top_tokens(row_idx, i) = is_found ? token_at(place) : -1;
    params.top_logprobs(row_idx, i) = is_found ? static_cast<float>(above - log_total) : 0.0f;
  }
}

__device__ void write_row(const BatchSamplingParams& params, int64_t row_idx, int32_t token,
                          float logprob) {
  if (threadIdx.x != 0) return;
  params.tokens(row_idx) = token;
  params.logprobs(row_idx) = logprob;
}

__global__ void __launch_bounds__(kMaxThreads, 1) sampling_kernel(BatchSamplingParams params) {
  DHS_DYN_SHARED(uint64_t, memory);
  auto& shared = *reinterpret_cast<RowOrderShared*>(memory);
  auto* special_bits = reinterpret_cast<uint32_t*>(&shared + 1);
  const int64_t row_idx = blockIdx.x;
  const RowSampling sampling = params.rows(row_idx);
  const int64_t vocab_size = params.logits.sizes[1];
  RowWalk walk{{params.logits.row(row_idx), vocab_size,
                mark_special(sampling, vocab_size, special_bits), &params.rows(row_idx)},
               shared};
  const Place likeliest = find_likeliest(walk.row, shared);
  if (likeliest == 0) {
    write_row(params, row_idx, 0, -INFINITY);
    write_top_tokens(params, row_idx, 0, 0, walk);
    return;
  }
  const float largest = value_of(key_at(likeliest));
  const RowTotals totals = sum_up(walk.row, sampling, largest, shared);
  int32_t token = token_at(likeliest);
  if (sampling.temperature > 0) token = draw(params, sampling, likeliest, totals.likely_mass, walk);
  const double log_total = log(static_cast<double>(totals.mass) * kMassUnit);
  const double value = value_of(walk.row.key(token));
  write_row(params, row_idx, token, static_cast<float>(value - largest - log_total));
  write_top_tokens(params, row_idx, likeliest, log_total, walk);
}

int64_t shared_bytes_of(int64_t vocab_size) {
  return static_cast<int64_t>(sizeof(RowOrderShared)) +
         (vocab_size + kWordBits - 1) / kWordBits * 4;
}

void check_limits(const BatchSamplingParams& params) {
  const int64_t vocab_size = params.logits.sizes[1], room = params.top_tokens.sizes[1];
  if (vocab_size <= kMaxVocabSize && room <= kMaxLeft) return;
  std::fprintf(stderr, "sampling: %lld tokens and %lld top tokens; at most %lld and %d\n",
               static_cast<long long>(vocab_size), static_cast<long long>(room),
               static_cast<long long>(kMaxVocabSize), kMaxLeft);
  std::abort();
}

}  // namespace

void launch_sampling_cuda(const BatchSamplingParams& params, Stream stream) {
  check_limits(params);
  static cuda::OncePerDevice once;
  once("sampling", [] {
    cuda::allow_shared_bytes("sampling", sampling_kernel, shared_bytes_of(kMaxVocabSize));
  });
  unsigned num_threads = kMinThreads;
  while (num_threads < kMaxThreads && num_threads * kTokensPerThread < params.logits.sizes[1]) {
    num_threads *= 2;
  }
  cuda::launch("sampling", sampling_kernel,
               {.grid = static_cast<unsigned>(params.logits.sizes[0]),
                .block = num_threads,
                .shared_bytes = shared_bytes_of(params.logits.sizes[1])},
               stream, params);
}

}  // namespace dhs
