#include "dhisparse/base.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/draft_tables/draft_tables.h"

namespace dhs {
namespace {

void launch_place_proposals_cpu(const PlaceProposalsParams& params) {
  for (int64_t i = 0; i < params.anchor_positions.sizes[0]; ++i) {
    params.sampling(i).position = static_cast<uint32_t>(params.anchor_positions(i) + 1);
  }
}

void launch_place_draws_cpu(const PlaceDrawsParams& params) {
  for (int64_t i = 0; i < params.anchor_positions.sizes[0]; ++i) {
    const ProposalSampling& from = params.sampling(i);
    RowSampling row;
    row.temperature = from.temperature;
    row.seed = from.seed;
    row.sequence_idx = kDraftStream;
    row.position = static_cast<uint32_t>(params.anchor_positions(i) + params.offset);
    params.rows(i) = row;
    params.temperatures(i) = from.temperature;
  }
}

void launch_keep_draws_cpu(const KeepDrawsParams& params) {
  for (int64_t i = 0; i < params.drawn.sizes[0]; ++i) params.out(i) = params.drawn(i);
}

void launch_shift_positions_cpu(const ShiftPositionsParams& params) {
  for (int64_t i = 0; i < params.positions.sizes[0]; ++i) {
    params.out(i) = params.shifted(i);
  }
}

void launch_anchor_rows_cpu(const AnchorRowsParams& params) {
  for (int64_t d = 0; d < params.newest.sizes[0]; ++d) {
    const int32_t row = params.logit_rows(params.first_row(d) + params.num_accepted(d));
    params.row_before_anchor(d) = row < 0 ? -1 : row;
    if (row >= 0) params.next_tokens(row) = params.newest(d);
  }
}

}  // namespace

DHS_LAUNCHER(launch_place_proposals, PlaceProposalsParams)
DHS_LAUNCHER(launch_place_draws, PlaceDrawsParams)
DHS_LAUNCHER(launch_keep_draws, KeepDrawsParams)
DHS_LAUNCHER(launch_shift_positions, ShiftPositionsParams)
DHS_LAUNCHER(launch_anchor_rows, AnchorRowsParams)

}  // namespace dhs
