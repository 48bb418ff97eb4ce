#include <algorithm>

#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/embedding/embedding.h"

namespace dhs {
namespace {

constexpr int64_t kElementsPerPiece = 64 << 10;  // a piece is worth a thread from some 10 us on

void launch_embedding_cpu(const EmbeddingParams& params) {
  const int64_t width = params.out.sizes[1];
  const int64_t row_bytes = width * dtype_bytes(params.dtype);
  const auto* table = static_cast<const std::byte*>(params.table);
  const int64_t grain = std::max<int64_t>(1, kElementsPerPiece / std::max<int64_t>(1, width));
  parallel_for(params.tokens.sizes[0], grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* const out = params.out.row(i);
      if (params.positions(i) < 0) {
        std::fill(out, out + width, 0.0f);
      } else {
        convert_to_f32(params.dtype, table + params.tokens(i) * row_bytes, width, out);
      }
    }
  });
}

}  // namespace

DHS_LAUNCHER(launch_embedding, EmbeddingParams)

}  // namespace dhs
