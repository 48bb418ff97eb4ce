// quantize on CUDA: see quantize_rows.h.
#include "kernels/quantize/quantize_rows.h"

namespace dhs {

void launch_quantize_cuda(const QuantizeParams& params, Stream stream) {
  cuda::quantize_rows({.x = params.x.data,
                       .num_rows = params.x.sizes[0],
                       .row_stride = params.x.strides[0],
                       .width = params.x.sizes[1],
                       .q = params.q.data,
                       .q_stride = params.q.strides[0],
                       .q_width = params.x.sizes[1],
                       .scales = params.scales.data,
                       .scales_row_stride = params.scales.strides[0]},
                      stream);
}

}  // namespace dhs
