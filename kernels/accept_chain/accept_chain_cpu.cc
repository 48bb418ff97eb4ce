#include "dhisparse/base.h"
#include "kernels/accept_chain/accept_chain.h"
#include "kernels/cuda/dispatch.h"

namespace dhs {
namespace {

void accept(const AcceptChainParams& params, int64_t draw) {
  const int32_t last = params.first_row(draw + 1) - 1;
  int32_t row = params.first_row(draw);
  const int32_t first = row, position = params.positions(draw);
  const bool is_padding = row > last || position < 0;
  while (row < last && params.drawn(row) == params.drafts(row)) ++row;
  params.num_accepted(draw) = is_padding ? 0 : row - first;
  params.newest(draw) = is_padding ? -1 : params.drawn(row);
  params.newest_position(draw) = is_padding ? -1 : position + row - first;
}

void launch_accept_chain_cpu(const AcceptChainParams& params) {
  const int64_t num_draws = params.positions.sizes[0];
  DHS_CHECK(params.first_row.sizes[0] == num_draws + 1, "draws: ", num_draws,
            ", first rows: ", params.first_row.sizes[0]);
  for (int64_t draw = 0; draw < num_draws; ++draw) accept(params, draw);
}

}  // namespace

DHS_LAUNCHER(launch_accept_chain, AcceptChainParams)

}  // namespace dhs
