#include "kernels/grouped_conv/grouped_conv.h"

namespace dhs {

void grouped_conv_ref(const GroupedConvParams& params) {
  const int64_t channels = params.x.sizes[1], num_groups = channels / params.group_channels;
  for (int64_t i = 0; i < params.x.sizes[0]; ++i) {
    for (int64_t ch = 0; ch < channels; ++ch) {
      double sum = 0;
      for (int64_t t = 0; t < params.num_taps && t <= i % params.block_rows; ++t) {
        const double tap = double{params.base_kernel[t * channels + ch]} +
                           params.delta(i, t * num_groups + ch / params.group_channels);
        sum += tap * params.x(i - t, ch);
      }
      params.out(i, ch) = static_cast<float>(sum);
    }
  }
}

}  // namespace dhs
