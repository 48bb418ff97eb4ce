#include <cstring>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/expert_rows/expert_rows.h"

namespace dhs {
namespace {

constexpr int64_t kRowsPerPiece = 32;

// The pair's expert as this rank counts them, -1 when the pair is not planned.
int32_t own_expert_of(const ExpertPlanParams& params, int64_t pair) {
  const int64_t top_k = params.experts.sizes[1];
  const int64_t expert = int64_t{params.experts(pair / top_k, pair % top_k)} - params.first_expert;
  return expert >= 0 && expert < params.num_experts ? static_cast<int32_t>(expert) : -1;
}

// A counting sort; offsets serve as the cursors of the experts' runs until they are moved back.
void launch_expert_plan_cpu(const ExpertPlanParams& params) {
  const int64_t num_pairs = params.experts.sizes[0] * params.experts.sizes[1];
  const int64_t num_experts = params.num_experts;
  DHS_CHECK(params.offsets.sizes[0] == num_experts + 1, "room for ", params.offsets.sizes[0],
            " offsets of ", num_experts, " experts");
  DHS_CHECK(params.pairs.sizes[0] >= num_pairs && params.row_of_pair.sizes[0] >= num_pairs,
            "room for ", params.pairs.sizes[0], " and ", params.row_of_pair.sizes[0], " of ",
            num_pairs, " pairs");
  for (int64_t e = 0; e <= num_experts; ++e) params.offsets(e) = 0;
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    const int32_t expert = own_expert_of(params, pair);
    if (expert >= 0) ++params.offsets(expert + 1);
  }
  for (int64_t e = 0; e < num_experts; ++e) params.offsets(e + 1) += params.offsets(e);
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    const int32_t expert = own_expert_of(params, pair);
    params.row_of_pair(pair) = expert < 0 ? -1 : params.offsets(expert)++;
    if (expert >= 0) params.pairs(params.row_of_pair(pair)) = static_cast<int32_t>(pair);
  }
  for (int64_t e = num_experts; e > 0; --e) params.offsets(e) = params.offsets(e - 1);
  params.offsets(0) = 0;
}

void launch_expert_gather_cpu(const ExpertGatherParams& params) {
  const size_t row_bytes = static_cast<size_t>(params.x.sizes[1]) * sizeof(float);
  parallel_for(*params.num_pairs, kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(params.in.row(i), params.x.row(params.pairs(i) / params.top_k), row_bytes);
    }
  });
}

void combine_token(const ExpertCombineParams& params, int64_t token) {
  const int64_t width = params.out.sizes[1];
  const int64_t top_k = params.weights.sizes[1];
  float* out = params.out.row(token);
  for (int64_t rank = 0; rank < top_k; ++rank) {
    const int32_t row = params.row_of_pair(token * top_k + rank);
    if (row < 0) continue;
    const float weight = params.weights(token, rank);
    const float* y = params.y.row(row);
    for (int64_t i = 0; i < width; ++i) out[i] += weight * y[i];
  }
}

void launch_expert_combine_cpu(const ExpertCombineParams& params) {
  parallel_for(params.out.sizes[0], kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) combine_token(params, token);
  });
}

}  // namespace

DHS_LAUNCHER(launch_expert_plan, ExpertPlanParams)
DHS_LAUNCHER(launch_expert_gather, ExpertGatherParams)
DHS_LAUNCHER(launch_expert_combine, ExpertCombineParams)

}  // namespace dhs
