// candidates on CUDA: one block per row, grid num_rows, 32 to 512 threads by vocabulary, 33 KB of
// shared memory. Finds the likeliest token, counts tokens per range of logits below it, and sorts
// the few that reach down to the K-th (row_walk.h): three passes over the logits, the first from
// device memory, the others from the L2 cache; about 5 us per pass and 150,000 logits.
// Deterministic: only integers are added.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "kernels/candidates/candidates.h"
#include "kernels/cuda/launch.h"
#include "kernels/sampling/row_walk.h"

namespace dhs {
namespace {

constexpr unsigned kMinThreads = 32, kMaxThreads = 512;
constexpr int64_t kTokensPerThread = 8;  // what a block is sized for, at least

__device__ float value_of_logit(const CandidatesParams& params, float logit) {
  const float value = params.multiplier * logit;
  if (params.softcap == 0) return value;
  return static_cast<float>(params.softcap * tanh(double{value} / params.softcap));
}

__device__ Place find_largest(const RowLogits& row, RowOrderShared& shared) {
  Place largest = 0;
  for_each_token(row, [&](int64_t token, uint32_t key) {
    const Place place = place_of(key, token);
    largest = place > largest ? place : largest;
  });
  return max_block(largest, shared);
}

// Logits of -inf (and NaN) fill what others leave, in the order of their ids: one thread.
__device__ void fill_up(const CandidatesParams& params, const RowLogits& row, int64_t row_idx,
                        int64_t first) {
  const int64_t wanted = params.values.sizes[1];
  for (int64_t token = 0; token < row.vocab_size && first < wanted; ++token) {
    if (row.key(token) != 0) continue;
    params.tokens(row_idx, first) = static_cast<int32_t>(token);
    params.values(row_idx, first) = value_of_logit(params, -INFINITY);
    ++first;
  }
}

__global__ void __launch_bounds__(kMaxThreads, 1) candidates_kernel(CandidatesParams params) {
  DHS_DYN_SHARED(uint64_t, memory);
  auto& shared = *reinterpret_cast<RowOrderShared*>(memory);
  const int64_t row_idx = blockIdx.x;
  RowWalk walk{{params.logits.row(row_idx), params.logits.sizes[1]}, shared};
  const Place largest = find_largest(walk.row, shared);
  int num_found = 0;
  if (largest != 0) {
    walk.all = bins_down_to(largest, kLowestKey);
    num_found = walk.sort_first(static_cast<int>(params.values.sizes[1]));
  }
  for (int i = threadIdx.x; i < num_found; i += blockDim.x) {
    const Place place = shared.sorted[i];
    params.tokens(row_idx, i) = token_at(place);
    params.values(row_idx, i) = value_of_logit(params, value_of(key_at(place)));
  }
  if (threadIdx.x == 0) fill_up(params, walk.row, row_idx, num_found);
}

}  // namespace

void launch_candidates_cuda(const CandidatesParams& params, Stream stream) {
  const int64_t vocab_size = params.logits.sizes[1], num_candidates = params.values.sizes[1];
  if (num_candidates < 1 || num_candidates > kMaxCandidates || num_candidates > vocab_size) {
    std::fprintf(stderr, "candidates: %lld of %lld tokens; at most %lld\n",
                 static_cast<long long>(num_candidates), static_cast<long long>(vocab_size),
                 static_cast<long long>(kMaxCandidates));
    std::abort();
  }
  unsigned num_threads = kMinThreads;
  while (num_threads < kMaxThreads && num_threads * kTokensPerThread < vocab_size) {
    num_threads *= 2;
  }
  cuda::launch("candidates", candidates_kernel,
               {.grid = static_cast<unsigned>(params.logits.sizes[0]),
                .block = num_threads,
                .shared_bytes = static_cast<int64_t>(sizeof(RowOrderShared))},
               stream, params);
}

}  // namespace dhs
