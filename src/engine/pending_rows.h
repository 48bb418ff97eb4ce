// Rows of steps in which nobody drafts. What the draft is to keep of them is not computed one row
// at a time: their taps wait here, and its matrices are read once for all of them.
//
// They are due before anybody drafts or computes a prompt, which may begin with blocks of theirs;
// and when one of their requests leaves the device, before the step that it is not part of: until
// then its blocks and pages are as they were.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <vector>

#include "dhisparse/device.h"
#include "dhisparse/draft.h"
#include "dhisparse/scheduler.h"
#include "engine/batch_tables.h"

namespace dhs {

class PendingRows {
 public:
  static absl::StatusOr<PendingRows> create(Device& device, int64_t max_rows, int64_t tap_width);

  bool is_empty() const { return num_rows() == 0; }
  // Whether the rows of this step can wait behind those that do.
  bool can_add(const RankPlan& plan) const;
  // Whether all requests of those that wait are part of it.
  bool can_stay(const RankPlan& plan) const;

  // Those of the step that the tables hold, behind its draws. taps: [num_rows, tap_width].
  void add(const RankPlan& plan, const BatchTables& tables, TensorView<const float, 2> taps);
  // All that wait, as rows of the tables' block tables. Valid until the next add().
  DraftStep rows(const BatchTables& tables) const;
  void clear() { is_done_ = true; }

 private:
  PendingRows() = default;
  int64_t num_rows() const { return is_done_ ? 0 : std::ssize(positions_); }

  struct Owner {
    RequestId request;
    int32_t index = 0;  // of its memory
    friend bool operator==(const Owner&, const Owner&) = default;
  };

  Device* device_ = nullptr;
  int64_t max_rows_ = 0;
  MemoryRange memory_;
  TensorView<float, 2> taps_;  // [max_rows, tap_width]
  TensorView<int32_t, 1> device_positions_, device_sequences_, next_tokens_;
  std::vector<int32_t> positions_, sequence_of_row_;
  std::vector<Owner> owners_;  // of the rows, each once
  bool is_done_ = true;
};

}  // namespace dhs
