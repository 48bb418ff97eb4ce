#include <algorithm>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/grouped_conv/grouped_conv.h"

namespace dhs {
namespace {

constexpr int64_t kElementsPerPiece = 16 << 10;  // a piece is worth a thread from some 5 us on

// Adds tap t's terms of row i; the first tap writes.
void add_tap(const GroupedConvParams& params, int64_t i, int64_t t) {
  const int64_t channels = params.x.sizes[1], g = params.group_channels;
  const float* base = params.base_kernel + t * channels;
  const float* delta = params.delta.row(i) + t * (channels / g);
  const float* x = params.x.row(i - t);
  float* out = params.out.row(i);
  for (int64_t first = 0; first < channels; first += g) {
    const float change = delta[first / g];
    for (int64_t ch = first; ch < first + g; ++ch) {
      const float term = (base[ch] + change) * x[ch];
      out[ch] = t == 0 ? term : out[ch] + term;
    }
  }
}

void launch_grouped_conv_cpu(const GroupedConvParams& params) {
  const int64_t channels = params.x.sizes[1];
  DHS_CHECK(params.group_channels > 0 && channels % params.group_channels == 0, channels,
            " channels in groups of ", params.group_channels);
  DHS_CHECK(params.delta.sizes[1] == params.num_taps * (channels / params.group_channels),
            "delta is ", params.delta.sizes[1], " wide");
  DHS_CHECK(params.num_taps > 0 && params.block_rows > 0, "taps: ", params.num_taps,
            ", rows of a block: ", params.block_rows);
  const int64_t grain = std::max<int64_t>(1, kElementsPerPiece / std::max<int64_t>(1, channels));
  parallel_for(params.x.sizes[0], grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t num_taps = std::min<int64_t>(params.num_taps, i % params.block_rows + 1);
      for (int64_t t = 0; t < num_taps; ++t) add_tap(params, i, t);
    }
  });
}

}  // namespace

DHS_LAUNCHER(launch_grouped_conv, GroupedConvParams)

}  // namespace dhs
