#include <algorithm>
#include <cstring>

#include "dhisparse/base.h"
#include "kernels/activation/activation.h"
#include "kernels/activation/activation_tables.h"
#include "kernels/activation/vector_exp.h"
#include "kernels/cuda/dispatch.h"

namespace dhs {
namespace {

constexpr int64_t kPieceElements = 16 << 10;  // about 5 us of work

[[gnu::always_inline]] inline void swiglu_16(const float* gate, const float* up, float* out) {
  Float16 g, u;
  std::memcpy(&g, gate, sizeof(g));
  std::memcpy(&u, up, sizeof(u));
  Float16 e = -g;
  exp16(e);
  const Float16 y = g / (1.0f + e) * u;
  std::memcpy(out, &y, sizeof(y));
}

[[gnu::always_inline]] inline void swiglu_body(const float* gate, const float* up, int64_t width,
                                               float* out) {
  int64_t i = 0;
  for (; i + kFloat16Lanes <= width; i += kFloat16Lanes) swiglu_16(gate + i, up + i, out + i);
  if (i == width) return;
  float tail[3][kFloat16Lanes] = {};
  const size_t bytes = static_cast<size_t>(width - i) * sizeof(float);
  std::memcpy(tail[0], gate + i, bytes);
  std::memcpy(tail[1], up + i, bytes);
  swiglu_16(tail[0], tail[1], tail[2]);
  std::memcpy(out + i, tail[2], bytes);
}

void swiglu_base(const float* gate, const float* up, int64_t width, float* out) {
  swiglu_body(gate, up, width, out);
}

__attribute__((target("avx2"))) void swiglu_avx2(const float* gate, const float* up, int64_t width,
                                                 float* out) {
  swiglu_body(gate, up, width, out);
}

__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))) void swiglu_avx512(const float* gate,
                                                                                 const float* up,
                                                                                 int64_t width,
                                                                                 float* out) {
  swiglu_body(gate, up, width, out);
}

}  // namespace

SwigluRow swiglu_row(CpuIsa isa) {
  if (isa >= CpuIsa::kAvx512) return swiglu_avx512;
  return isa == CpuIsa::kAvx2 ? swiglu_avx2 : swiglu_base;
}

namespace {

void launch_swiglu_cpu(const SwigluParams& params) {
  const int64_t width = params.out.sizes[1];
  DHS_CHECK(params.gate_up.sizes[1] == 2 * width, "gate and up are ", params.gate_up.sizes[1],
            " wide, not twice ", width);
  DHS_CHECK(params.gate_up.sizes[0] == params.out.sizes[0], "rows: ", params.gate_up.sizes[0],
            " in, ", params.out.sizes[0], " out");
  if (width == 0) return;
  const SwigluRow row_function = swiglu_row(cpu_isa());
  const int64_t grain = std::max<int64_t>(1, kPieceElements / width);
  parallel_for(params.out.sizes[0], grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* gate = params.gate_up.row(row);
      row_function(gate, gate + width, width, params.out.row(row));
    }
  });
}

}  // namespace

DHS_LAUNCHER(launch_swiglu, SwigluParams)

}  // namespace dhs
