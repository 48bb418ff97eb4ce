// accept_chain on CUDA: one thread per draw, 128 threads per block, no shared memory. Bound by the
// latency of a chain's loads, one row after the other.
#include "kernels/accept_chain/accept_chain.h"
#include "kernels/cuda/launch.h"

namespace dhs {
namespace {

constexpr int kThreads = 128;

__global__ void accept_chain_kernel(AcceptChainParams params) {
  const int64_t draw = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (draw >= params.positions.sizes[0]) return;
  const int32_t last = params.first_row(draw + 1) - 1;
  int32_t row = params.first_row(draw);
  const int32_t first = row, position = params.positions(draw);
  const bool is_padding = row > last || position < 0;
  while (row < last && params.drawn(row) == params.drafts(row)) ++row;
  params.num_accepted(draw) = is_padding ? 0 : row - first;
  params.newest(draw) = is_padding ? -1 : params.drawn(row);
  params.newest_position(draw) = is_padding ? -1 : position + row - first;
}

}  // namespace

void launch_accept_chain_cuda(const AcceptChainParams& params, Stream stream) {
  const int64_t num_blocks = (params.positions.sizes[0] + kThreads - 1) / kThreads;
  cuda::launch("accept_chain", accept_chain_kernel,
               {.grid = dim3(static_cast<unsigned>(num_blocks)), .block = dim3(kThreads)}, stream,
               params);
}

}  // namespace dhs
