// trace: which positions a model's index groups select, step by step: drawn from a model of their
// locality, or recorded in a file and replayed (trace_file.h). Caches and policies are judged on
// them.
//
// The model of locality. Per index group, the rows of a request form a stack by how recently they
// were selected. A query row selects its last `num_recent` rows (itself among them), the first
// `num_sinks` rows, and rows drawn from the rest of the stack so that the share of the selection
// beyond depth b is m * M(b): what an exact LRU cache of b rows would miss. M falls like a power of
// b and is 0 at the end of the context; m is the group's multiplier. M holds at k, 2k and 4k rows
// what the profile's Locality says, as a mean over groups and steps.
//
// What real selections ask beyond independent draws, and how it is met:
//   a selection is distinct  the distribution is cut into one stratum per drawn row. A stratum
//                            gives one row: a depth's share is exact in every step.
//   groups differ            m is log-normal over groups (their quantiles, in an order drawn from
//                            model_seed) with `group_spread` between its 5th and 95th percentile,
//                            scaled so that the mean over groups meets the curve, saturated groups
//                            included: a group cannot miss more than it draws.
//   topics shift             once in `shift_period` steps, at a random one of them, m is multiplied
//                            by shift_factor in all groups, and falls back within shift_steps.
//   groups agree             group 0 nominates a share of the rows it drew; where a nominee's depth
//                            in another group's stack lies in a stratum, that stratum gives it. So
//                            a group's curve does not depend on what it shares.
//   rows last                distance alone makes FIFO as good as random replacement: how long a
//                            row has been cached would say nothing about it. FIFO is worse in
//                            measurements, so rows long in use stay in use: of `num_candidates`
//                            rows a stratum gives the one whose last return from beyond 2k rows is
//                            longest ago. Again the curve stays.
// Rejected positions (drafts) are steps of the same process; what they touched stays touched.
//
// Everything is a function of (profile, seed, calls): random numbers are counted, and only
// operations that IEEE 754 defines to the bit are used. Not shared between threads.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/tensor.h"

namespace dhs {

namespace trace {
class GroupRows;  // one group's rows of one request
}

// ---- Synthetic selections -----------------------------------------------------------------------

// Missed share of the selected rows under exact LRU with k, 2k and 4k cached rows, k = top_k.
struct Locality {
  double at_k = 0;
  double at_2k = 0;
  double at_4k = 0;
};
inline constexpr Locality kCloseLocality = {0.30, 0.134, 0.067};  // question answering
inline constexpr Locality kWideLocality = {0.55, 0.246, 0.123};   // code

struct SelectionProfile {
  int32_t num_groups = 21;
  int32_t top_k = 2048;
  int32_t num_recent = 128;  // num_recent + num_sinks < top_k
  int32_t num_sinks = 16;
  Locality locality = kCloseLocality;
  double group_spread = 36;
  int32_t shift_period = 400;
  int32_t shift_steps = 50;  // at most shift_period
  double shift_factor = 3;
  double shared_share = 0.4;   // of the rows that group 0 draws: nominated to the others
  int32_t num_candidates = 4;  // of a stratum, 1 to 16
  uint64_t model_seed = 1;     // which group gets which multiplier
};

// INVALID_ARGUMENT naming the field, its value and the limit.
absl::Status validate(const SelectionProfile& profile);

// A profile, solved. Immutable.
class SelectionModel {
 public:
  explicit SelectionModel(const SelectionProfile& profile);  // validate() passes

  const SelectionProfile& profile() const { return profile_; }
  int32_t num_drawn() const;  // of a selection: neither recent nor sink
  double multiplier(int group) const { return multipliers_[group]; }
  // What multiplies m in a request's step.
  double shift_at(uint64_t seed, int64_t step) const;

  // The share of the drawn rows that lies beyond a depth of `rows`, where m = 1 and the context has
  // no end. From k rows on.
  struct CurvePoint {
    double rows;
    double share;
  };
  std::span<const CurvePoint> curve() const { return curve_; }

 private:
  SelectionProfile profile_;
  std::vector<double> multipliers_;
  std::vector<CurvePoint> curve_;
};

// The selections of one request. About 14 bytes per token and group.
class SelectionGenerator {
 public:
  // A request with `num_tokens` tokens behind it, all equally long unselected. `model` outlives it.
  SelectionGenerator(const SelectionModel& model, uint64_t seed, int32_t num_tokens);
  SelectionGenerator(SelectionGenerator&&) noexcept;
  ~SelectionGenerator();

  // Tokens so far; the next query row's position.
  int32_t num_tokens() const { return num_tokens_; }

  // One more token, and what its query row selects: `selection` [num_groups, top_k] is filled with
  // distinct positions <= its own in ascending order, padded with -1 (as kernels/top_k). Everything
  // while no more than top_k rows are visible. O(top_k log num_tokens) per group.
  void next(TensorView<int32_t, 2> selection);

  // Takes the last `count` tokens back: at most num_recent, and only such as next() added.
  void reject(int32_t count);

  // What a group may draw, the latest selected first.
  std::vector<int32_t> rows_by_recency(int group) const;

 private:
  void nominate(std::span<const int32_t> rows);
  void write(std::span<const int32_t> drawn, int32_t* selection);

  const SelectionModel& model_;
  const uint64_t seed_;
  const int32_t first_tokens_;
  int32_t num_tokens_;
  int64_t num_steps_ = 0;  // calls of next, rejected ones too
  std::vector<trace::GroupRows> groups_;
  std::vector<int32_t> nominees_;
  std::vector<uint64_t> is_selected_;  // bitmap by position, clear between calls
};

}  // namespace dhs
