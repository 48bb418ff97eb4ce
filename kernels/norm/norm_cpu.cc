#include <algorithm>
#include <cmath>
#include <cstring>

#include "dhisparse/base.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_tables.h"

namespace dhs {
namespace {

// One source for every instruction set: the compiler splits these 16 lanes into what it has.
using Lanes = float __attribute__((vector_size(64)));
constexpr int kNumLanes = 16;
constexpr int64_t kPieceElements = 32 << 10;  // about 5 us of work

#define DHS_INLINE [[gnu::always_inline]] inline

DHS_INLINE float sum_of(const Lanes& lanes) {
  float values[kNumLanes];
  std::memcpy(values, &lanes, sizeof(values));
  for (int half = kNumLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}

// The next 16 columns, zeros beyond the row's end.
DHS_INLINE void load(const float* row, int64_t i, int64_t width, Lanes& lanes) {
  if (i + kNumLanes <= width) {
    std::memcpy(&lanes, row + i, sizeof(lanes));
    return;
  }
  lanes = Lanes{};
  std::memcpy(&lanes, row + i, static_cast<size_t>(width - i) * sizeof(float));
}

DHS_INLINE void rms_norm_body(const float* x, const float* weight, float eps, int64_t width,
                              float* out) {
  Lanes squares{}, lanes;
  for (int64_t i = 0; i < width; i += kNumLanes) {
    load(x, i, width, lanes);
    squares += lanes * lanes;
  }
  const float inverse = 1.0f / std::sqrt(sum_of(squares) / static_cast<float>(width) + eps);
  for (int64_t i = 0; i < width; ++i) out[i] = weight[i] * (x[i] * inverse);
}

DHS_INLINE void layer_norm_body(const float* x, const float* const weight_and_bias[2], float eps,
                                int64_t width, float* out) {
  const float* weight = weight_and_bias[0];
  const float* bias = weight_and_bias[1];
  Lanes sum{}, squares{}, lanes;
  for (int64_t i = 0; i < width; i += kNumLanes) {
    load(x, i, width, lanes);
    sum += lanes;
  }
  const float mean = sum_of(sum) / static_cast<float>(width);
  int64_t i = 0;
  for (; i + kNumLanes <= width; i += kNumLanes) {
    load(x, i, width, lanes);
    lanes -= mean;
    squares += lanes * lanes;
  }
  float tail = 0;  // apart: the padding of a partial load is not at the mean
  for (; i < width; ++i) tail += (x[i] - mean) * (x[i] - mean);
  const float variance = (sum_of(squares) + tail) / static_cast<float>(width);
  const float inverse = 1.0f / std::sqrt(variance + eps);
  for (i = 0; i < width; ++i) out[i] = weight[i] * ((x[i] - mean) * inverse) + bias[i];
}

#define DHS_NORM_TABLE(isa, attribute)                                                         \
  attribute void rms_norm_##isa(const float* x, const float* weight, float eps, int64_t width, \
                                float* out) {                                                  \
    rms_norm_body(x, weight, eps, width, out);                                                 \
  }                                                                                            \
  attribute void layer_norm_##isa(const float* x, const float* const weight_and_bias[2],       \
                                  float eps, int64_t width, float* out) {                      \
    layer_norm_body(x, weight_and_bias, eps, width, out);                                      \
  }                                                                                            \
  constexpr NormTable kNormTable_##isa = {rms_norm_##isa, layer_norm_##isa};

DHS_NORM_TABLE(base, )
DHS_NORM_TABLE(avx2, __attribute__((target("avx2"))))
DHS_NORM_TABLE(avx512, __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))))

template <class Params>
void check_shapes(const Params& params) {
  DHS_CHECK(params.x.sizes[0] == params.out.sizes[0] && params.x.sizes[1] == params.out.sizes[1],
            "x is ", params.x.sizes[0], " x ", params.x.sizes[1], ", out is ", params.out.sizes[0],
            " x ", params.out.sizes[1]);
}

int64_t grain_for(int64_t width) {
  return std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, width));
}

void launch_rms_norm_cpu(const RmsNormParams& params) {
  check_shapes(params);
  const NormTable& table = norm_table(cpu_isa());
  const int64_t width = params.x.sizes[1];
  parallel_for(params.x.sizes[0], grain_for(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      table.rms_norm(params.x.row(row), params.weight, params.eps, width, params.out.row(row));
    }
  });
}

void launch_head_norm_cpu(const HeadNormParams& params) {
  const int64_t num_tokens = params.x.sizes[0];
  const int64_t num_heads = params.x.sizes[1];
  const int64_t width = params.x.sizes[2];
  DHS_CHECK(params.out.sizes[0] == num_tokens && params.out.sizes[1] == num_heads &&
                params.out.sizes[2] == width,
            "x and out differ in shape");
  const NormTable& table = norm_table(cpu_isa());
  parallel_for(num_tokens * num_heads, grain_for(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t token = row / num_heads, head = row % num_heads;
      table.rms_norm(&params.x(token, head, 0), params.weight, params.eps, width,
                     &params.out(token, head, 0));
    }
  });
}

void launch_layer_norm_cpu(const LayerNormParams& params) {
  check_shapes(params);
  const NormTable& table = norm_table(cpu_isa());
  const int64_t width = params.x.sizes[1];
  const float* const weight_and_bias[2] = {params.weight, params.bias};
  parallel_for(params.x.sizes[0], grain_for(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      table.layer_norm(params.x.row(row), weight_and_bias, params.eps, width, params.out.row(row));
    }
  });
}

}  // namespace

const NormTable& norm_table(CpuIsa isa) {
  if (isa >= CpuIsa::kAvx512) return kNormTable_avx512;
  return isa == CpuIsa::kAvx2 ? kNormTable_avx2 : kNormTable_base;
}

DHS_LAUNCHER(launch_rms_norm, RmsNormParams)
DHS_LAUNCHER(launch_head_norm, HeadNormParams)
DHS_LAUNCHER(launch_layer_norm, LayerNormParams)

}  // namespace dhs
