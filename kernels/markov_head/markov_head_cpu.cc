#include <cmath>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/markov_head/markov_head.h"

namespace dhs {
namespace {

constexpr int64_t kRowsPerPiece = 8;
constexpr int kNumSums = 16;

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

void launch_markov_gate_cpu(const MarkovGateParams& params) {
  const int64_t n = params.out.sizes[0], r = params.out.sizes[1];
  DHS_CHECK(params.gate.sizes[1] == r && params.e.sizes[1] == r, "gate: ", params.gate.sizes[1],
            ", embedding: ", params.e.sizes[1], ", out: ", r);
  parallel_for(n, kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float *gate = params.gate.row(row), *e = params.e.row(row);
      float* out = params.out.row(row);
      for (int64_t i = 0; i < r; ++i) out[i] = sigmoid(gate[i] + params.bias[i]) * e[i];
    }
  });
}

void step_cell(const MarkovCellParams& params, int64_t row) {
  const int64_t r = params.out.sizes[1];
  const float *joint = params.joint.row(row), *bias = params.bias;
  float *state = params.state.row(row), *out = params.out.row(row);
  for (int64_t i = 0; i < r; ++i) {
    const float g = sigmoid(joint[i] + bias[i]);
    const float candidate = std::tanh(joint[r + i] + bias[r + i]);
    state[i] = g * state[i] + (1.0f - g) * candidate;
    out[i] = std::tanh(joint[2 * r + i] + bias[2 * r + i]);
  }
}

void launch_markov_cell_cpu(const MarkovCellParams& params) {
  const int64_t n = params.out.sizes[0], r = params.out.sizes[1];
  DHS_CHECK(params.joint.sizes[1] == 3 * r && params.state.sizes[1] == r,
            "joint: ", params.joint.sizes[1], ", state: ", params.state.sizes[1], ", out: ", r);
  parallel_for(n, kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) step_cell(params, row);
  });
}

// sums[i % 16] += weight[i] * x[i].
void add_products(const float* weight, const float* x, int64_t count, float* sums) {
  int64_t i = 0;
  for (; i + kNumSums <= count; i += kNumSums) {
    for (int k = 0; k < kNumSums; ++k) sums[k] += weight[i + k] * x[i + k];
  }
  for (int k = 0; i + k < count; ++k) sums[k] += weight[i + k] * x[i + k];
}

void launch_confidence_cpu(const ConfidenceParams& params) {
  const int64_t n = params.out.sizes[0], hidden_dim = params.y.sizes[1];
  DHS_CHECK(params.temperature > 0, "temperature ", params.temperature);
  DHS_CHECK(params.y.sizes[0] == n, "rows: ", params.y.sizes[0], ", out: ", n);
  parallel_for(n, kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float sums[kNumSums] = {};
      add_products(params.weight, params.y.row(row), hidden_dim, sums);
      add_products(params.weight + hidden_dim, params.e.row(row), params.e.sizes[1], sums);
      float sum = params.bias;
      for (float part : sums) sum += part;
      params.out(row) = sigmoid(sum / params.temperature);
    }
  });
}

}  // namespace

DHS_LAUNCHER(launch_markov_gate, MarkovGateParams)
DHS_LAUNCHER(launch_markov_cell, MarkovCellParams)
DHS_LAUNCHER(launch_confidence, ConfidenceParams)

}  // namespace dhs
