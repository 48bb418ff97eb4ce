#include <vector>

#include "kernels/accept_chain/accept_chain.h"

namespace dhs {

void accept_chain_ref(const AcceptChainParams& params) {
  for (int64_t draw = 0; draw < params.positions.sizes[0]; ++draw) {
    std::vector<int32_t> committed;
    bool is_standing = params.positions(draw) >= 0;
    for (int32_t row = params.first_row(draw); row < params.first_row(draw + 1); ++row) {
      if (is_standing) committed.push_back(params.drawn(row));
      is_standing = is_standing && params.drafts(row) == params.drawn(row);
    }
    const auto count = static_cast<int32_t>(committed.size());
    params.num_accepted(draw) = count == 0 ? 0 : count - 1;
    params.newest(draw) = count == 0 ? -1 : committed.back();
    params.newest_position(draw) = count == 0 ? -1 : params.positions(draw) + count - 1;
  }
}

}  // namespace dhs
