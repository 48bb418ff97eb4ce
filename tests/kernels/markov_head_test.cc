#include "kernels/markov_head/markov_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

using test::DeviceArray;
using Floats = std::vector<float>;

constexpr int64_t kRows = 19;  // more than a piece of the CPU version

Floats random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  Floats values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

void expect_near(const Floats& got, const Floats& want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::fabs(want[i]))) << i;
  }
}

TEST(MarkovGate, equals_the_reference_on_strided_rows) {
  for (int64_t r : {1, 8, 200, 256}) {
    const int64_t stride = r + 3;
    const Floats gate = random_floats(kRows * stride, 1), e = random_floats(kRows * stride, 2),
                 bias = random_floats(r, 3);
    const DeviceArray<float> device_gate(gate), device_e(e), device_bias(bias);
    const DeviceArray<float> out(static_cast<size_t>(kRows * r), -7.0f);
    launch_markov_gate({.gate = {device_gate.data(), {kRows, r}, {stride, 1}},
                        .e = {device_e.data(), {kRows, r}, {stride, 1}},
                        .bias = device_bias.data(),
                        .out = view(out.data(), kRows, r)},
                       test::stream());
    Floats want(static_cast<size_t>(kRows * r));
    markov_gate_ref({.gate = {gate.data(), {kRows, r}, {stride, 1}},
                     .e = {e.data(), {kRows, r}, {stride, 1}},
                     .bias = bias.data(),
                     .out = view(want.data(), kRows, r)});
    expect_near(out.download(), want, 1e-6f);
  }
}

TEST(MarkovGate, opens_and_shuts_at_extreme_gates) {
  const DeviceArray<float> gate({-1e30f, 1e30f, 0.0f}), e({3, 4, 5}), bias({0, 0, 0}),
      out(3, -7.0f);
  launch_markov_gate({.gate = view<const float>(gate.data(), 1, 3),
                      .e = view<const float>(e.data(), 1, 3),
                      .bias = bias.data(),
                      .out = view(out.data(), 1, 3)},
                     test::stream());
  EXPECT_EQ(out.download(), (Floats{0, 4, 2.5f}));
}

struct CellResult {
  Floats state, out;
};

CellResult step(const Floats& joint, const Floats& bias, const Floats& state, int64_t r) {
  const auto n = static_cast<int64_t>(state.size()) / r;
  const DeviceArray<float> device_joint(joint), device_bias(bias), device_state(state);
  const DeviceArray<float> out(state.size(), -7.0f);
  launch_markov_cell({.joint = {device_joint.data(), {n, 3 * r}, {3 * r + 1, 1}},
                      .bias = device_bias.data(),
                      .state = view(device_state.data(), n, r),
                      .out = view(out.data(), n, r)},
                     test::stream());
  return {device_state.download(), out.download()};
}

TEST(MarkovCell, equals_the_reference_over_several_steps) {
  for (int64_t r : {1, 8, 200}) {
    const Floats bias = random_floats(3 * r, 1);
    Floats state(static_cast<size_t>(kRows * r), 0.0f), want_state = state, want_out = state;
    for (uint32_t k = 0; k < 3; ++k) {
      const Floats joint = random_floats(kRows * (3 * r + 1), 10 + k);
      const CellResult got = step(joint, bias, state, r);
      markov_cell_ref({.joint = {joint.data(), {kRows, 3 * r}, {3 * r + 1, 1}},
                       .bias = bias.data(),
                       .state = view(want_state.data(), kRows, r),
                       .out = view(want_out.data(), kRows, r)});
      expect_near(got.state, want_state, 2e-6f);
      expect_near(got.out, want_out, 2e-6f);
      state = got.state;
    }
  }
}

TEST(MarkovCell, keeps_or_replaces_its_state_at_extreme_gates) {
  const CellResult got =
      step({1e30f, -1e30f, 1e30f, 1e30f, 1e30f, 0, 0}, Floats(6, 0.0f), {0.25f, 0.25f}, 2);
  EXPECT_EQ(got.state, (Floats{0.25f, 1.0f}));
  EXPECT_EQ(got.out, (Floats{1.0f, 0.0f}));
}

struct ConfidenceCase {
  int64_t hidden_dim = 64, r = 8, n = kRows;
  float bias = 0.0f, temperature = 1.0f;

  int64_t y_stride() const { return hidden_dim + 3; }
  ConfidenceParams params(const float* const y_e_weight[3], TensorView<float, 1> out) const {
    return {.y = {y_e_weight[0], {n, hidden_dim}, {y_stride(), 1}},
            .e = view(y_e_weight[1], n, r),
            .weight = y_e_weight[2],
            .bias = bias,
            .temperature = temperature,
            .out = out};
  }
};

constexpr int64_t kOutStride = 3;

Floats confidence(const ConfidenceCase& c, const Floats& y, const Floats& e, const Floats& weight) {
  const DeviceArray<float> device_y(y), device_e(e), device_weight(weight);
  const DeviceArray<float> out(static_cast<size_t>(c.n * kOutStride), -7.0f);
  const float* const inputs[3] = {device_y.data(), device_e.data(), device_weight.data()};
  launch_confidence(c.params(inputs, {out.data(), {c.n}, {kOutStride}}), test::stream());
  return out.download();
}

void expect_reference(const ConfidenceCase& c) {
  const Floats y = random_floats(c.n * c.y_stride(), 1), e = random_floats(c.n * c.r, 2);
  Floats weight = random_floats(c.hidden_dim + c.r, 3);
  for (float& w : weight) w *= 0.1f;
  Floats want(static_cast<size_t>(c.n * kOutStride), -7.0f);
  const float* const inputs[3] = {y.data(), e.data(), weight.data()};
  confidence_ref(c.params(inputs, {want.data(), {c.n}, {kOutStride}}));
  expect_near(confidence(c, y, e, weight), want, 1e-5f);
}

TEST(Confidence, equals_the_reference_with_and_without_the_token_before) {
  for (int64_t hidden_dim : {1, 16, 37, 300, 1024}) {
    for (int64_t r : {0, 1, 8, 256}) expect_reference({.hidden_dim = hidden_dim, .r = r});
  }
}

TEST(Confidence, adds_the_bias_before_it_divides_by_the_temperature) {
  expect_reference({.bias = 1.5f, .temperature = 0.6f});
  expect_reference({.bias = -0.5f, .temperature = 3.0f});
  const Floats got = confidence({.hidden_dim = 1, .r = 0, .n = 1, .bias = 2, .temperature = 4},
                                {0, 0, 0, 0}, {}, {1});
  EXPECT_NEAR(got[0], 1 / (1 + std::exp(-0.5)), 1e-6);
}

TEST(Confidence, gives_a_row_the_same_bits_alone_and_in_a_batch) {
  const ConfidenceCase c{.hidden_dim = 333, .r = 20};
  const Floats y = random_floats(c.n * c.y_stride(), 1), e = random_floats(c.n * c.r, 2),
               weight = random_floats(c.hidden_dim + c.r, 3);
  set_num_kernel_threads(2);
  const Floats all = confidence(c, y, e, weight);
  set_num_kernel_threads(1);
  EXPECT_EQ(confidence(c, y, e, weight), all);
  set_num_kernel_threads(0);
  ConfidenceCase one = c;
  one.n = 1;
  for (int64_t row = 0; row < c.n; ++row) {
    const Floats got =
        confidence(one, {y.begin() + row * c.y_stride(), y.begin() + (row + 1) * c.y_stride()},
                   {e.begin() + row * c.r, e.begin() + (row + 1) * c.r}, weight);
    EXPECT_EQ(got[0], all[static_cast<size_t>(row * kOutStride)]);
  }
}

TEST(MarkovHead, takes_no_rows_as_nothing_to_do) {
  launch_markov_gate({.gate = view<const float>(nullptr, 0, 8),
                      .e = view<const float>(nullptr, 0, 8),
                      .out = view<float>(nullptr, 0, 8)},
                     test::stream());
  launch_markov_cell({.joint = view<const float>(nullptr, 0, 24),
                      .state = view<float>(nullptr, 0, 8),
                      .out = view<float>(nullptr, 0, 8)},
                     test::stream());
  launch_confidence({.y = view<const float>(nullptr, 0, 8), .out = view<float>(nullptr, 0)},
                    test::stream());
}

}  // namespace
}  // namespace dhs
