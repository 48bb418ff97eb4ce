// draft_tables: what a draft needs to know of tokens that only the device knows yet.
//
//   place_proposals  sampling[i].position = anchor_positions[i] + 1
//   place_draws      rows[i] draws the token `offset` behind anchor i, by sampling[i]'s temperature
//                    and seed, from the drafts' stream; temperatures[i] = sampling[i].temperature
//   keep_draws       out[i] = drawn[i]
//   shift_positions  out[i] = positions[i] + offset; -1 where positions[i] is negative, or the sum
//                    is not below ends[i]
//   anchor_rows      row_before_anchor[d] = logit_rows[first_row[d] + num_accepted[d]], the row
//                    that the anchor of draw d follows, and next_tokens of it = newest[d]; draws
//                    whose logit row is negative (padding) get -1
//
// A negative anchor position is padding: its draw is one that nobody reads. Some bytes per row.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"
#include "kernels/candidate_walk/candidate_walk.h"
#include "kernels/sampling/sampling.h"

namespace dhs {

struct PlaceProposalsParams {
  TensorView<const int32_t, 1> anchor_positions;  // [num_blocks]
  TensorView<ProposalSampling, 1> sampling;       // in/out: [num_blocks]
};
void launch_place_proposals(const PlaceProposalsParams& params, Stream stream);

struct PlaceDrawsParams {
  TensorView<const int32_t, 1> anchor_positions;   // [num_blocks]
  TensorView<const ProposalSampling, 1> sampling;  // [num_blocks]
  int32_t offset = 1;
  TensorView<RowSampling, 1> rows;    // out: [num_blocks]
  TensorView<float, 1> temperatures;  // out: [num_blocks]
};
void launch_place_draws(const PlaceDrawsParams& params, Stream stream);

struct KeepDrawsParams {
  TensorView<const int32_t, 1> drawn;  // [num_blocks]
  TensorView<int32_t, 1> out;          // [num_blocks], may be strided
};
void launch_keep_draws(const KeepDrawsParams& params, Stream stream);

struct ShiftPositionsParams {
  TensorView<const int32_t, 1> positions;  // [num_rows]
  int32_t offset = 0;
  TensorView<const int32_t, 1> ends;  // [num_rows]; null data: none
  TensorView<int32_t, 1> out;         // [num_rows]

  constexpr int32_t shifted(int64_t i) const {
    const int32_t position = positions(i);
    const int32_t sum = position + offset;
    const bool is_out = ends.data != nullptr && sum >= ends(i);
    return position < 0 || is_out ? -1 : sum;
  }
};
void launch_shift_positions(const ShiftPositionsParams& params, Stream stream);

struct AnchorRowsParams {
  TensorView<const int32_t, 1> logit_rows;    // [num_logit_rows]
  TensorView<const int32_t, 1> first_row;     // [num_draws + 1], as accept_chain has it
  TensorView<const int32_t, 1> num_accepted;  // [num_draws]
  TensorView<const int32_t, 1> newest;        // [num_draws] tokens
  TensorView<int32_t, 1> row_before_anchor;   // out: [num_draws]
  TensorView<int32_t, 1> next_tokens;         // in/out: [num_rows] of the step
};
void launch_anchor_rows(const AnchorRowsParams& params, Stream stream);

}  // namespace dhs
