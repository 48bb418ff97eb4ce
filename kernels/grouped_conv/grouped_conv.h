// grouped_conv: a depthwise convolution over the rows of a draft block whose kernel is partly
// computed per row (DFlash2's convolution around each sublayer).
//
//   out[i, ch] = sum_{t < num_taps} (base_kernel[t, ch] + delta[i, t * num_groups + ch / g])
//                                   * x[i - t, ch]
//   with g = group_channels, num_groups = channels / g; terms with (i mod block_rows) < t are
//   dropped: taps look back only, and never out of their block.
//
// f32 throughout; terms are added in order of t, products and sums rounded one by one, so bits
// depend on the row and the rows before it in its block only, and are the same on every device.
// Kernel tap 0 all ones, the others and delta all zeros: out is x. Bytes: 8 per element of x (rows
// of a block are read again from the cache) and delta; FLOPs: 3 * num_taps per element.
// Preconditions: channels is a multiple of group_channels; rows may be strided, columns are
// contiguous; out does not overlap x.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct GroupedConvParams {
  TensorView<const float, 2> x;        // [num_rows, channels]
  const float* base_kernel = nullptr;  // [num_taps, channels], device memory
  TensorView<const float, 2> delta;    // [num_rows, num_taps * num_groups]
  int32_t num_taps = 0;
  int32_t group_channels = 0;
  int32_t block_rows = 0;    // rows of a block; any number of blocks follow each other
  TensorView<float, 2> out;  // [num_rows, channels]
};
void launch_grouped_conv(const GroupedConvParams& params, Stream stream);
void grouped_conv_ref(const GroupedConvParams& params);

}  // namespace dhs
