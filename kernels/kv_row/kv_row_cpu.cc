#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/kv_row/kv_row.h"

namespace dhs {
namespace {

constexpr int64_t kRowsPerPiece = 64;

void launch_encode_rows_cpu(const EncodeRowsParams& params) {
  parallel_for(params.rows.sizes[0], kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      encode_row(params.layout, params.latents.row(i), params.ropes.row(i), params.rows.row(i));
    }
  });
}

void launch_decode_rows_cpu(const DecodeRowsParams& params) {
  parallel_for(params.rows.sizes[0], kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* const latent = params.latents.row(i);
      decode_row(params.layout, params.rows.row(i), latent, params.ropes.row(i));
      if (params.latents_bf16.data == nullptr) continue;
      convert_to_bf16(latent, params.layout.latent_dim, params.latents_bf16.row(i));
    }
  });
}

}  // namespace

DHS_LAUNCHER(launch_encode_rows, EncodeRowsParams)
DHS_LAUNCHER(launch_decode_rows, DecodeRowsParams)

}  // namespace dhs
