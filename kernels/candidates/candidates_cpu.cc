#include <algorithm>
#include <cmath>
#include <limits>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/candidates/candidates.h"
#include "kernels/cuda/dispatch.h"

namespace dhs {
namespace {

constexpr int64_t kLogitsPerPiece = 32 << 10;  // a piece must outweigh waking a thread (~5 us)
constexpr int64_t kBlock = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargestFloat = std::numeric_limits<float>::max();

// Whether any of kBlock logits is larger than `bar`.
bool any_above(const float* logits, float bar) {
  int found = 0;
  for (int64_t i = 0; i < kBlock; ++i) found |= logits[i] > bar ? 1 : 0;
  return found != 0;
}

// A row's candidates so far, best first.
struct Best {
  float logits[kMaxCandidates];
  int32_t* tokens;
  int64_t wanted;
  int64_t count = 0;

  void offer(float logit, int32_t token) {
    logit = logit >= -kInfinity ? std::min(logit, kLargestFloat) : -kInfinity;  // NaN fails
    if (count == wanted && !(logit > logits[count - 1])) return;
    int64_t place = count < wanted ? count++ : count - 1;
    for (; place > 0 && logit > logits[place - 1]; --place) {
      logits[place] = logits[place - 1];
      tokens[place] = tokens[place - 1];
    }
    logits[place] = logit;
    tokens[place] = token;
  }
  float bar() const { return logits[wanted - 1]; }
};

float value_of(const CandidatesParams& params, float logit) {
  const float value = params.multiplier * logit;
  if (params.softcap == 0) return value;
  return static_cast<float>(params.softcap * std::tanh(double{value} / params.softcap));
}

void find_candidates(const CandidatesParams& params, int64_t row) {
  const float* logits = params.logits.row(row);
  const int64_t vocab_size = params.logits.sizes[1];
  int32_t tokens[kMaxCandidates];
  Best best{.logits = {}, .tokens = tokens, .wanted = params.values.sizes[1]};
  int64_t token = 0;
  for (; token < best.wanted; ++token) best.offer(logits[token], static_cast<int32_t>(token));
  while (token < vocab_size) {
    const bool is_block = token + kBlock <= vocab_size;
    const int64_t end = is_block ? token + kBlock : vocab_size;
    if (is_block && !any_above(logits + token, best.bar())) {
      token = end;
      continue;
    }
    for (; token < end; ++token) best.offer(logits[token], static_cast<int32_t>(token));
  }
  for (int64_t i = 0; i < best.wanted; ++i) {
    params.values(row, i) = value_of(params, best.logits[i]);
    params.tokens(row, i) = tokens[i];
  }
}

void launch_candidates_cpu(const CandidatesParams& params) {
  const int64_t num_rows = params.logits.sizes[0], num_candidates = params.values.sizes[1];
  if (num_rows == 0) return;
  DHS_CHECK(num_candidates >= 1 && num_candidates <= kMaxCandidates &&
                num_candidates <= params.logits.sizes[1],
            num_candidates, " candidates of ", params.logits.sizes[1], " tokens, at most ",
            kMaxCandidates);
  DHS_CHECK(params.values.sizes[0] == num_rows && params.tokens.sizes[0] == num_rows &&
                params.tokens.sizes[1] == num_candidates,
            "outputs do not have ", num_rows, " rows of ", num_candidates);
  const int64_t grain = std::max<int64_t>(1, kLogitsPerPiece / params.logits.sizes[1]);
  parallel_for(num_rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) find_candidates(params, row);
  });
}

}  // namespace

DHS_LAUNCHER(launch_candidates, CandidatesParams)

}  // namespace dhs
