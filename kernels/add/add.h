// add: out += x, element by element, in f32. Bytes moved: 12 per element.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct AddParams {
  TensorView<const float, 2> x;  // [num_rows, width], rows may be strided, columns contiguous
  TensorView<float, 2> out;      // same shape; must not overlap x
};
void launch_add(const AddParams& params, Stream stream);

}  // namespace dhs
