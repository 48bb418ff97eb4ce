#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/softmax/softmax.h"

namespace dhs {

void softmax_ref(const SoftmaxParams& params) {
  const int64_t width = params.logits.sizes[1];
  for (int64_t row = 0; row < params.logits.sizes[0]; ++row) {
    const std::vector<float> x(params.logits.row(row), params.logits.row(row) + width);
    const auto largest = std::max_element(x.begin(), x.end());  // the first of equals
    const double temperature = params.temperature(row);
    std::vector<double> terms;
    double sum = 0;
    for (auto it = x.begin(); it != x.end(); ++it) {
      const double one = it == largest ? 1 : 0;
      terms.push_back(temperature == 0 ? one : std::exp((double{*it} - *largest) / temperature));
      sum += terms.back();
    }
    for (int64_t t = 0; t < width; ++t) {
      params.out(row, t) = static_cast<float>(terms[static_cast<size_t>(t)] / sum);
    }
  }
}

}  // namespace dhs
