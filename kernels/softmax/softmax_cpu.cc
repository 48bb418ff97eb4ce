#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/activation/vector_exp.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/softmax/softmax.h"

namespace dhs {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr int64_t kPieceElements = 16 << 10;
constexpr int64_t kColumnsPerSum = 4096;  // that are summed in f32

using SoftmaxRow = void (*)(const float* x, float temperature, int64_t width, float* out);

#define DHS_INLINE [[gnu::always_inline]] inline

// Columns [i, i + 16), minus infinity beyond the row's end.
DHS_INLINE void load(const float* row, int64_t i, int64_t width, Float16& lanes) {
  if (i + kFloat16Lanes <= width) {
    std::memcpy(&lanes, row + i, sizeof(lanes));
    return;
  }
  lanes = Float16{} + kNever;
  std::memcpy(&lanes, row + i, static_cast<size_t>(width - i) * sizeof(float));
}

DHS_INLINE void store(const Float16& lanes, int64_t i, int64_t width, float* row) {
  const int64_t count = std::min<int64_t>(kFloat16Lanes, width - i);
  std::memcpy(row + i, &lanes, static_cast<size_t>(count) * sizeof(float));
}

DHS_INLINE float largest_of(const float* x, int64_t width) {
  Float16 largest = Float16{} + kNever, lanes;
  for (int64_t i = 0; i < width; i += kFloat16Lanes) {
    load(x, i, width, lanes);
    largest = lanes > largest ? lanes : largest;
  }
  float result = kNever;
  for (int i = 0; i < kFloat16Lanes; ++i) result = std::max(result, largest[i]);
  return result;
}

// Writes the terms of columns [begin, end) and returns their sum. begin is a multiple of 16.
DHS_INLINE float write_terms(const float* x, const float largest_and_temperature[2], int64_t begin,
                             int64_t end, float* out) {
  Float16 sums = {}, terms;
  for (int64_t i = begin; i < end; i += kFloat16Lanes) {
    load(x, i, end, terms);
    terms = (terms - largest_and_temperature[0]) / largest_and_temperature[1];
    exp16(terms);
    sums += terms;
    store(terms, i, end, out);
  }
  float sum = 0;
  for (int i = 0; i < kFloat16Lanes; ++i) sum += sums[i];
  return sum;
}

DHS_INLINE void softmax_body(const float* x, float temperature, int64_t width, float* out) {
  const float largest_and_temperature[2] = {largest_of(x, width), temperature};
  double sum = 0;
  for (int64_t begin = 0; begin < width; begin += kColumnsPerSum) {
    const int64_t end = std::min(width, begin + kColumnsPerSum);
    sum += write_terms(x, largest_and_temperature, begin, end, out);
  }
  const auto inverse = static_cast<float>(1 / sum);
  for (int64_t i = 0; i < width; ++i) out[i] *= inverse;
}

void softmax_base(const float* x, float temperature, int64_t width, float* out) {
  softmax_body(x, temperature, width, out);
}
__attribute__((target("avx2"))) void softmax_avx2(const float* x, float temperature, int64_t width,
                                                  float* out) {
  softmax_body(x, temperature, width, out);
}
__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))) void softmax_avx512(const float* x,
                                                                                  float temperature,
                                                                                  int64_t width,
                                                                                  float* out) {
  softmax_body(x, temperature, width, out);
}

SoftmaxRow softmax_row(CpuIsa isa) {
  if (isa >= CpuIsa::kAvx512) return softmax_avx512;
  return isa == CpuIsa::kAvx2 ? softmax_avx2 : softmax_base;
}

void choose_largest(const float* x, int64_t width, float* out) {
  const int64_t largest = std::max_element(x, x + width) - x;
  std::fill(out, out + width, 0.0f);
  out[largest] = 1.0f;
}

void launch_softmax_cpu(const SoftmaxParams& params) {
  const int64_t num_rows = params.logits.sizes[0], width = params.logits.sizes[1];
  DHS_CHECK(params.out.sizes[0] == num_rows && params.out.sizes[1] == width, "logits are ",
            num_rows, " x ", width, ", out is ", params.out.sizes[0], " x ", params.out.sizes[1]);
  DHS_CHECK(params.temperature.sizes[0] == num_rows, "rows: ", num_rows,
            ", temperatures: ", params.temperature.sizes[0]);
  if (width == 0) return;
  const SoftmaxRow row_function = softmax_row(cpu_isa());
  const int64_t grain = std::max<int64_t>(1, kPieceElements / width);
  parallel_for(num_rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float temperature = params.temperature(row);
      if (temperature == 0) {
        choose_largest(params.logits.row(row), width, params.out.row(row));
      } else {
        row_function(params.logits.row(row), temperature, width, params.out.row(row));
      }
    }
  });
}

}  // namespace

DHS_LAUNCHER(launch_softmax, SoftmaxParams)

}  // namespace dhs
