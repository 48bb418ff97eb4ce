// take_rows: out[i, :] = x[rows[i], :], in f32; a negative row gives zeros. Without `rows` every
// row stays where it is, out[i, :] = x[i, :]: a copy between strides. Bytes moved: 8 per element.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct TakeRowsParams {
  TensorView<const float, 2> x;       // [any, width], rows may be strided
  TensorView<const int32_t, 1> rows;  // [num_rows], or null data: all rows in order
  TensorView<float, 2> out;           // [num_rows, width], must not overlap x
};
void launch_take_rows(const TakeRowsParams& params, Stream stream);

}  // namespace dhs
