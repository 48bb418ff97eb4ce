#include <algorithm>
#include <bit>

#include "dhisparse/counter_random.h"
#include "dhisparse/trace.h"
#include "trace/group_rows.h"

namespace dhs {
namespace {

constexpr int kWordBits = 64;
constexpr int32_t kPadding = -1;

// What a request's random numbers are for; groups count on from kGroups.
enum RandomStream : uint64_t { kShifts, kNominees, kGroups };

// All rows in random order: none has been selected yet.
trace::GroupRows make_rows(int32_t first, int32_t last, uint64_t key) {
  std::vector<int32_t> rows;
  for (int32_t row = first; row < last; ++row) rows.push_back(row);
  for (int64_t i = std::ssize(rows) - 1; i > 0; --i) {
    std::swap(rows[i], rows[trace::random_below(key, static_cast<uint64_t>(i), i + 1)]);
  }
  trace::GroupRows made;
  for (int32_t row : rows) made.add(row, 0);
  return made;
}

}  // namespace

SelectionGenerator::SelectionGenerator(const SelectionModel& model, uint64_t seed,
                                       int32_t num_tokens)
    : model_(model), seed_(seed), first_tokens_(num_tokens), num_tokens_(num_tokens) {
  DHS_CHECK(num_tokens >= 0, num_tokens, " tokens");
  const SelectionProfile& profile = model.profile();
  for (int group = 0; group < profile.num_groups; ++group) {
    // Steps have the other keys of the group's stream.
    const uint64_t key = trace::derived_key(trace::derived_key(seed, kGroups + group), UINT64_MAX);
    groups_.push_back(make_rows(profile.num_sinks, num_tokens - profile.num_recent, key));
  }
}

SelectionGenerator::SelectionGenerator(SelectionGenerator&&) noexcept = default;
SelectionGenerator::~SelectionGenerator() = default;

void SelectionGenerator::next(TensorView<int32_t, 2> selection) {
  const SelectionProfile& profile = model_.profile();
  DHS_CHECK(selection.sizes[0] == profile.num_groups && selection.sizes[1] == profile.top_k &&
                selection.strides[1] == 1,
            "a selection of ", selection.sizes[0], " x ", selection.sizes[1]);
  // The row that leaves the recent ones was selected in the step before: it goes on top.
  const int32_t leaver = num_tokens_++ - profile.num_recent;
  const auto step = static_cast<int32_t>(num_steps_);
  if (leaver >= profile.num_sinks) {
    for (trace::GroupRows& rows : groups_) rows.add(leaver, step - profile.num_recent);
  }
  const double shift = model_.shift_at(trace::derived_key(seed_, kShifts), num_steps_);
  nominees_.clear();
  for (int group = 0; group < profile.num_groups; ++group) {
    const uint64_t stream = trace::derived_key(seed_, kGroups + group);
    const uint64_t key = trace::derived_key(stream, static_cast<uint64_t>(num_steps_));
    std::span<const int32_t> drawn;
    if (num_tokens_ > profile.top_k) {
      drawn = groups_[group].draw(model_, {step, model_.multiplier(group) * shift, key, nominees_});
    }
    if (group == 0) nominate(drawn);
    write(drawn, selection.row(group));
  }
  ++num_steps_;
}

// The same nominees for every group, so that those who take them agree with each other too.
void SelectionGenerator::nominate(std::span<const int32_t> rows) {
  const uint64_t stream = trace::derived_key(seed_, kNominees);
  const uint64_t key = trace::derived_key(stream, static_cast<uint64_t>(num_steps_));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (trace::random_unit(key, i) < model_.profile().shared_share) nominees_.push_back(rows[i]);
  }
}

// Sorts by way of a bitmap: O(top_k + tokens / 64).
void SelectionGenerator::write(std::span<const int32_t> drawn, int32_t* selection) {
  const SelectionProfile& profile = model_.profile();
  is_selected_.resize(static_cast<size_t>(ceil_div(num_tokens_, kWordBits)));
  const auto mark = [&](int32_t row) {
    is_selected_[row / kWordBits] |= uint64_t{1} << (row % kWordBits);
  };
  for (int32_t row : drawn) mark(row);
  const bool has_drawn = !drawn.empty();
  const int32_t num_sinks = has_drawn ? profile.num_sinks : num_tokens_;
  const int32_t first_recent = has_drawn ? num_tokens_ - profile.num_recent : num_tokens_;
  for (int32_t row = 0; row < num_sinks; ++row) mark(row);
  for (int32_t row = first_recent; row < num_tokens_; ++row) mark(row);
  int32_t* out = selection;
  for (size_t word = 0; word < is_selected_.size(); ++word) {
    for (uint64_t bits = std::exchange(is_selected_[word], 0); bits != 0; bits &= bits - 1) {
      *out++ = static_cast<int32_t>(word * kWordBits + std::countr_zero(bits));
    }
  }
  std::fill(out, selection + profile.top_k, kPadding);
}

void SelectionGenerator::reject(int32_t count) {
  const SelectionProfile& profile = model_.profile();
  DHS_CHECK(count >= 0 && count <= profile.num_recent && count <= num_tokens_ - first_tokens_,
            count, " rejected tokens of ", num_tokens_ - first_tokens_);
  for (; count > 0; --count) {
    const int32_t returning = --num_tokens_ - profile.num_recent;
    if (returning < profile.num_sinks) continue;
    for (trace::GroupRows& rows : groups_) rows.remove(returning);
  }
}

std::vector<int32_t> SelectionGenerator::rows_by_recency(int group) const {
  return groups_[group].by_recency();
}

}  // namespace dhs
