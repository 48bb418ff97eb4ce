#include <algorithm>

#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/take_rows/take_rows.h"

namespace dhs {
namespace {

constexpr int64_t kElementsPerPiece = 64 << 10;  // a piece is worth a thread from some 10 us on

void launch_take_rows_cpu(const TakeRowsParams& params) {
  const int64_t width = params.out.sizes[1];
  const int64_t grain = std::max<int64_t>(1, kElementsPerPiece / std::max<int64_t>(1, width));
  parallel_for(params.out.sizes[0], grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = params.rows.data == nullptr ? i : params.rows(i);
      float* const out = params.out.row(i);
      if (row < 0) {
        std::fill(out, out + width, 0.0f);
      } else {
        std::copy(params.x.row(row), params.x.row(row) + width, out);
      }
    }
  });
}

}  // namespace

DHS_LAUNCHER(launch_take_rows, TakeRowsParams)

}  // namespace dhs
