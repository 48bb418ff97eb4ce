// Selections of a generator as sequences of passes, one sequence for every index group.
#pragma once

#include <numeric>
#include <vector>

#include "dhisparse/trace.h"
#include "trace/cache_policies.h"

namespace dhs::test {

// The published profile at a size for tests: everything in proportion to top_k.
inline SelectionProfile scaled_profile(int32_t top_k, int32_t num_groups) {
  SelectionProfile profile;
  profile.num_groups = num_groups;
  profile.top_k = top_k;
  profile.num_recent = top_k / 16;
  profile.num_sinks = top_k / 128;
  return profile;
}

// 100K tokens to a top_k of 2048.
inline int32_t scaled_context(const SelectionProfile& profile) { return profile.top_k * 49; }

// One step of every group: [group] positions in ascending order.
inline std::vector<std::vector<int32_t>> next_selections(SelectionGenerator& generator,
                                                         const SelectionProfile& profile) {
  std::vector<int32_t> flat(static_cast<size_t>(profile.num_groups) * profile.top_k);
  generator.next(view(flat.data(), profile.num_groups, profile.top_k));
  std::vector<std::vector<int32_t>> selections(profile.num_groups);
  for (int32_t group = 0; group < profile.num_groups; ++group) {
    const auto begin = flat.begin() + int64_t{group} * profile.top_k;
    selections[group].assign(begin, begin + profile.top_k);
    std::erase(selections[group], -1);
  }
  return selections;
}

// [group][step]. The query row's own position is the largest: written, not fetched.
inline std::vector<std::vector<trace::Pass>> make_passes(const SelectionModel& model, uint64_t seed,
                                                         int num_steps) {
  const SelectionProfile& profile = model.profile();
  SelectionGenerator generator(model, seed, scaled_context(profile));
  std::vector<std::vector<trace::Pass>> passes(profile.num_groups);
  for (int step = 0; step < num_steps; ++step) {
    std::vector<std::vector<int32_t>> selections = next_selections(generator, profile);
    for (int32_t group = 0; group < profile.num_groups; ++group) {
      passes[group].push_back({.rows = std::move(selections[group]), .num_written = 1});
    }
  }
  return passes;
}

// Of the passes from `first` up to, not including, `last`.
inline double total(const std::vector<int64_t>& per_pass, int64_t first, int64_t last) {
  return static_cast<double>(
      std::accumulate(per_pass.begin() + first, per_pass.begin() + last, int64_t{0}));
}

}  // namespace dhs::test
