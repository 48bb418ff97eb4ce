#include <cmath>

#include "kernels/markov_head/markov_head.h"

namespace dhs {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

void markov_gate_ref(const MarkovGateParams& params) {
  for (int64_t row = 0; row < params.out.sizes[0]; ++row) {
    for (int64_t i = 0; i < params.out.sizes[1]; ++i) {
      const double gate = sigmoid(double{params.gate(row, i)} + params.bias[i]);
      params.out(row, i) = static_cast<float>(gate * params.e(row, i));
    }
  }
}

void markov_cell_ref(const MarkovCellParams& params) {
  const int64_t r = params.out.sizes[1];
  for (int64_t row = 0; row < params.out.sizes[0]; ++row) {
    for (int64_t i = 0; i < r; ++i) {
      const auto part = [&](int64_t column) {
        return double{params.joint(row, column)} + params.bias[column];
      };
      const double g = sigmoid(part(i));
      const double state = g * params.state(row, i) + (1 - g) * std::tanh(part(r + i));
      params.state(row, i) = static_cast<float>(state);
      params.out(row, i) = static_cast<float>(std::tanh(part(2 * r + i)));
    }
  }
}

void confidence_ref(const ConfidenceParams& params) {
  const int64_t hidden_dim = params.y.sizes[1];
  for (int64_t row = 0; row < params.out.sizes[0]; ++row) {
    double sum = params.bias;
    for (int64_t i = 0; i < hidden_dim; ++i) sum += double{params.weight[i]} * params.y(row, i);
    for (int64_t i = 0; i < params.e.sizes[1]; ++i) {
      sum += double{params.weight[hidden_dim + i]} * params.e(row, i);
    }
    params.out(row) = static_cast<float>(sigmoid(sum / params.temperature));
  }
}

}  // namespace dhs
