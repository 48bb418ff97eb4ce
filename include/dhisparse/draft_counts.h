// What became of drafts, since start. Plain data: what the scheduler counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dhs {

struct DraftCounts {
  int64_t draws = 0;     // of requests that verified at least one draft
  int64_t verified = 0;  // drafts
  int64_t accepted = 0;  // of them
  // By the draft's place in its block, from 0.
  std::vector<int64_t> verified_at;
  std::vector<int64_t> accepted_at;

  // num_accepted <= num_verified, num_verified > 0.
  void add(int64_t num_verified, int64_t num_accepted) {
    ++draws;
    verified += num_verified;
    accepted += num_accepted;
    if (verified_at.size() < static_cast<size_t>(num_verified)) {
      verified_at.resize(num_verified);
      accepted_at.resize(num_verified);
    }
    for (int64_t i = 0; i < num_verified; ++i) ++verified_at[i];
    for (int64_t i = 0; i < num_accepted; ++i) ++accepted_at[i];
  }

  // Tokens that a draw with drafts brought on average: those accepted and the one behind them; 0
  // before any.
  double mean_accepted_length() const {
    return draws == 0 ? 0 : 1 + static_cast<double>(accepted) / static_cast<double>(draws);
  }
};

}  // namespace dhs
