#include "engine/pending_rows.h"

#include <algorithm>

namespace dhs {
namespace {

bool can_wait(const SequenceWork& work) {
  return work.tokens.size() == 1 && work.wants_token && work.num_prompt_tokens == 0 &&
         work.num_tokens_to_draft == 0;
}

}  // namespace

absl::StatusOr<PendingRows> PendingRows::create(Device& device, int64_t max_rows,
                                                int64_t tap_width) {
  PendingRows pending;
  pending.device_ = &device;
  pending.max_rows_ = max_rows;
  DHS_ASSIGN_OR_RETURN(pending.memory_, carve(device, [&](ArenaCarver& carver) {
                         pending.taps_ = view(carver.take<float>(max_rows * tap_width).data,
                                              max_rows, tap_width);
                         pending.device_positions_ = carver.take<int32_t>(max_rows);
                         pending.device_sequences_ = carver.take<int32_t>(max_rows);
                         pending.next_tokens_ = carver.take<int32_t>(max_rows);
                       }));
  pending.positions_.reserve(max_rows);
  pending.sequence_of_row_.reserve(max_rows);
  return pending;
}

bool PendingRows::can_add(const RankPlan& plan) const {
  return !plan.work.empty() && num_rows() + std::ssize(plan.work) <= max_rows_ &&
         std::all_of(plan.work.begin(), plan.work.end(), can_wait);
}

bool PendingRows::can_stay(const RankPlan& plan) const {
  if (is_empty()) return true;
  return std::all_of(owners_.begin(), owners_.end(), [&](const Owner& owner) {
    return std::any_of(plan.work.begin(), plan.work.end(), [&](const SequenceWork& work) {
      return owner == Owner{work.request, work.memory->index()};
    });
  });
}

void PendingRows::add(const RankPlan& plan, const BatchTables& tables,
                      TensorView<const float, 2> taps) {
  if (std::exchange(is_done_, false)) {
    positions_.clear();
    sequence_of_row_.clear();
    owners_.clear();
  }
  const int64_t first = std::ssize(positions_);
  const int64_t count = std::ssize(plan.work);
  DHS_CHECK(tables.num_rows() == count && taps.sizes[0] == count && first + count <= max_rows_,
            tables.num_rows(), " rows of a step with ", count, " requests, ", first, " wait");
  const QueryRows rows = tables.batch().rows;
  const auto keep = [&](auto* to, const auto* from, int64_t size) {
    device_->copy(to, from, size * static_cast<int64_t>(sizeof(*from)), device_->stream());
  };
  keep(taps_.row(first), taps.data, count * taps.sizes[1]);
  keep(device_positions_.data + first, rows.positions.data, count);
  keep(device_sequences_.data + first, rows.sequence_of_row.data, count);
  keep(next_tokens_.data + first, tables.next_tokens().data, count);
  const auto append = [](std::vector<int32_t>& to, std::span<const int32_t> from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(positions_, rows.host_positions);
  append(sequence_of_row_, rows.host_sequence_of_row);
  for (const SequenceWork& work : plan.work) {
    const Owner owner{work.request, work.memory->index()};
    if (std::find(owners_.begin(), owners_.end(), owner) == owners_.end()) owners_.push_back(owner);
  }
}

DraftStep PendingRows::rows(const BatchTables& tables) const {
  const int64_t count = num_rows();
  QueryRows rows = tables.batch().rows;
  rows.sequence_of_row = view<const int32_t>(device_sequences_.data, count);
  rows.positions = view<const int32_t>(device_positions_.data, count);
  rows.host_sequence_of_row = sequence_of_row_;
  rows.host_positions = positions_;
  return {.rows = rows,
          .next_tokens = view<const int32_t>(next_tokens_.data, count),
          .taps = view<const float>(taps_.data, count, taps_.sizes[1])};
}

}  // namespace dhs
