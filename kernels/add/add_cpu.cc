#include <algorithm>

#include "dhisparse/device.h"
#include "kernels/add/add.h"
#include "kernels/cuda/dispatch.h"

namespace dhs {
namespace {

constexpr int64_t kElementsPerPiece = 64 << 10;  // a piece is worth a thread from some 10 us on

void launch_add_cpu(const AddParams& params) {
  const int64_t width = params.x.sizes[1];
  const int64_t rows_per_piece =
      std::max<int64_t>(1, kElementsPerPiece / std::max<int64_t>(1, width));
  parallel_for(params.x.sizes[0], rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = params.x.row(row);
      float* out = params.out.row(row);
      for (int64_t i = 0; i < width; ++i) out[i] += x[i];
    }
  });
}

}  // namespace

DHS_LAUNCHER(launch_add, AddParams)

}  // namespace dhs
