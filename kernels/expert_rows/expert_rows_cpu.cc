#include <cstring>

#include "dhisparse/device.h"
#include "kernels/expert_rows/expert_rows.h"

namespace dhs {
namespace {

constexpr int64_t kRowsPerPiece = 32;

void copy_row(const float* source, float* target, int64_t width) {
  std::memcpy(target, source, static_cast<size_t>(width) * sizeof(float));
}

}  // namespace

void launch_expert_gather(const ExpertGatherParams& params, Stream) {
  parallel_for(params.pairs.sizes[0], kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      copy_row(params.x.row(params.pairs(i) / params.top_k), params.in.row(i), params.x.sizes[1]);
    }
  });
}

void launch_expert_scatter(const ExpertScatterParams& params, Stream) {
  parallel_for(params.pairs.sizes[0], kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      copy_row(params.y.row(i), params.out.row(params.pairs(i)), params.y.sizes[1]);
    }
  });
}

void launch_expert_combine(const ExpertCombineParams& params, Stream) {
  const int64_t width = params.out.sizes[1];
  const int64_t top_k = params.weights.sizes[1];
  parallel_for(params.out.sizes[0], kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin * top_k; pair < end * top_k; ++pair) {
      const float weight = params.weights(pair / top_k, pair % top_k);
      const float* y = params.y.row(pair);
      float* out = params.out.row(pair / top_k);
      for (int64_t i = 0; i < width; ++i) out[i] += weight * y[i];
    }
  });
}

}  // namespace dhs
