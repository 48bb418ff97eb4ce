#include <cmath>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/candidate_walk/candidate_walk.h"
#include "kernels/candidate_walk/candidate_walk_pick.h"
#include "kernels/cuda/dispatch.h"

namespace dhs {
namespace {

// A row of a codebook as f32; `buffer` holds it where it has to be converted.
const float* codebook_row(const CandidateWalkParams& params, const void* codebook, int64_t token,
                          std::vector<float>& buffer) {
  const int64_t rank = params.hidden.sizes[1];
  if (params.codebook_dtype == DType::kF32)
    return static_cast<const float*>(codebook) + token * rank;
  buffer.resize(static_cast<size_t>(rank));
  convert_to_f32(params.codebook_dtype, static_cast<const Bf16*>(codebook) + token * rank, rank,
                 buffer.data());
  return buffer.data();
}

struct WalkScratch {
  std::vector<float> codebook_row;
  std::vector<double> weighted;  // predecessor * hidden
  WalkScores row;
};

void score_row(const CandidateWalkParams& params, int64_t row_idx, int64_t previous,
               WalkScratch& scratch) {
  const int64_t rank = params.hidden.sizes[1];
  const float* before = codebook_row(params, params.predecessor, previous, scratch.codebook_row);
  scratch.weighted.resize(static_cast<size_t>(rank));
  for (int64_t r = 0; r < rank; ++r) {
    scratch.weighted[static_cast<size_t>(r)] = double{before[r]} * params.hidden(row_idx, r);
  }
  for (int64_t c = 0; c < params.values.sizes[1]; ++c) {
    const float* after =
        codebook_row(params, params.successor, params.tokens(row_idx, c), scratch.codebook_row);
    double dot = 0;
    for (int64_t r = 0; r < rank; ++r) dot += scratch.weighted[static_cast<size_t>(r)] * after[r];
    scratch.row.scores[c] = comparable_score(params.values(row_idx, c) + dot);
  }
}

void walk_block(const CandidateWalkParams& params, int64_t block_idx) {
  thread_local WalkScratch scratch;
  WalkScores& row = scratch.row;
  const int64_t num_drafts = params.drafts.sizes[1];
  const double temperature = params.sampling(block_idx).temperature;
  int64_t previous = params.anchors(block_idx);
  for (int64_t d = 0; d < num_drafts; ++d) {
    if (previous < 0) {
      write_padding(params, block_idx, d);
      continue;
    }
    const int64_t row_idx = block_idx * num_drafts + d;
    score_row(params, row_idx, previous, scratch);
    row.best = best_score(row.scores, params.values.sizes[1]);
    for (int64_t c = 0; c < params.values.sizes[1]; ++c) {
      const double below = double{row.scores[c]} - row.scores[row.best];
      row.drawn[c] = temperature > 0 ? std::exp(below / temperature) : 0;
      row.plain[c] = std::exp(below);
    }
    previous = params.tokens(row_idx, pick_candidate(params, row, block_idx, d));
    params.drafts(block_idx, d) = static_cast<int32_t>(previous);
  }
}

void launch_candidate_walk_cpu(const CandidateWalkParams& params) {
  const int64_t num_blocks = params.drafts.sizes[0], num_rows = num_blocks * params.drafts.sizes[1];
  const int64_t num_candidates = params.values.sizes[1];
  if (num_rows == 0) return;
  DHS_CHECK(num_candidates >= 1 && num_candidates <= kMaxWalkCandidates, num_candidates,
            " candidates, at most ", kMaxWalkCandidates);
  DHS_CHECK(params.codebook_dtype == DType::kF32 || params.codebook_dtype == DType::kBf16,
            "codebook of ", dtype_name(params.codebook_dtype));
  DHS_CHECK(params.values.sizes[0] == num_rows && params.tokens.sizes[0] == num_rows &&
                params.hidden.sizes[0] == num_rows && params.probabilities.sizes[0] == num_rows,
            "inputs do not have ", num_rows, " rows");
  DHS_CHECK(params.anchors.sizes[0] == num_blocks && params.sampling.sizes[0] == num_blocks,
            params.anchors.sizes[0], " anchors for ", num_blocks, " blocks");
  parallel_for(num_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) walk_block(params, block);
  });
}

}  // namespace

DHS_LAUNCHER(launch_candidate_walk, CandidateWalkParams)

}  // namespace dhs
