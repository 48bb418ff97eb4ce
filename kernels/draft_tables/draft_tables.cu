// draft_tables on CUDA: one thread per row, 256 threads, no shared memory. Some bytes per row: the
// launches are the cost.
#include "kernels/cuda/launch.h"
#include "kernels/draft_tables/draft_tables.h"

namespace dhs {
namespace {

constexpr int kThreads = 256;

__device__ int64_t row_of_thread() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }

__global__ void place_proposals_kernel(PlaceProposalsParams params) {
  const int64_t i = row_of_thread();
  if (i >= params.anchor_positions.sizes[0]) return;
  params.sampling(i).position = static_cast<uint32_t>(params.anchor_positions(i) + 1);
}

__global__ void place_draws_kernel(PlaceDrawsParams params) {
  const int64_t i = row_of_thread();
  if (i >= params.anchor_positions.sizes[0]) return;
  const ProposalSampling from = params.sampling(i);
  RowSampling row;
  row.temperature = from.temperature;
  row.seed = from.seed;
  row.sequence_idx = kDraftStream;
  row.position = static_cast<uint32_t>(params.anchor_positions(i) + params.offset);
  params.rows(i) = row;
  params.temperatures(i) = from.temperature;
}

__global__ void keep_draws_kernel(KeepDrawsParams params) {
  const int64_t i = row_of_thread();
  if (i < params.drawn.sizes[0]) params.out(i) = params.drawn(i);
}

__global__ void shift_positions_kernel(ShiftPositionsParams params) {
  const int64_t i = row_of_thread();
  if (i < params.positions.sizes[0]) params.out(i) = params.shifted(i);
}

__global__ void anchor_rows_kernel(AnchorRowsParams params) {
  const int64_t d = row_of_thread();
  if (d >= params.newest.sizes[0]) return;
  const int32_t row = params.logit_rows(params.first_row(d) + params.num_accepted(d));
  params.row_before_anchor(d) = row < 0 ? -1 : row;
  if (row >= 0) params.next_tokens(row) = params.newest(d);
}

cuda::Shape shape_of(int64_t num_rows) {
  return {.grid = static_cast<unsigned>((num_rows + kThreads - 1) / kThreads), .block = kThreads};
}

}  // namespace

void launch_place_proposals_cuda(const PlaceProposalsParams& params, Stream stream) {
  cuda::launch("place_proposals", place_proposals_kernel,
               shape_of(params.anchor_positions.sizes[0]), stream, params);
}

void launch_place_draws_cuda(const PlaceDrawsParams& params, Stream stream) {
  cuda::launch("place_draws", place_draws_kernel, shape_of(params.anchor_positions.sizes[0]),
               stream, params);
}

void launch_keep_draws_cuda(const KeepDrawsParams& params, Stream stream) {
  cuda::launch("keep_draws", keep_draws_kernel, shape_of(params.drawn.sizes[0]), stream, params);
}

void launch_shift_positions_cuda(const ShiftPositionsParams& params, Stream stream) {
  cuda::launch("shift_positions", shift_positions_kernel, shape_of(params.positions.sizes[0]),
               stream, params);
}

void launch_anchor_rows_cuda(const AnchorRowsParams& params, Stream stream) {
  cuda::launch("anchor_rows", anchor_rows_kernel, shape_of(params.newest.sizes[0]), stream, params);
}

}  // namespace dhs
