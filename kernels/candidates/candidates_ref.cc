#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/candidates/candidates.h"

namespace dhs {

void candidates_ref(const CandidatesParams& params) {
  for (int64_t row = 0; row < params.logits.sizes[0]; ++row) {
    std::vector<float> logits(params.logits.row(row),
                              params.logits.row(row) + params.logits.sizes[1]);
    for (float& logit : logits) {
      if (std::isnan(logit)) logit = -std::numeric_limits<float>::infinity();
      logit = std::min(logit, std::numeric_limits<float>::max());
    }
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (int64_t i = 0; i < params.values.sizes[1]; ++i) {
      const double value = double{params.multiplier} * logits[order[i]];
      const double cap = params.softcap;
      params.tokens(row, i) = order[i];
      params.values(row, i) = float(cap > 0 ? cap * std::tanh(value / cap) : value);
    }
  }
}

}  // namespace dhs
