// What a simulated request selects: drawn from the model of locality, or replayed from a recording.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dhisparse/tensor.h"
#include "dhisparse/trace.h"
#include "sim/recorded_load.h"

namespace dhs::sim {

class Selections {
 public:
  virtual ~Selections() = default;

  virtual int32_t num_tokens() const = 0;
  // One more token, and what its query row selects: [num_groups, top_k].
  virtual void next(TensorView<int32_t, 2> selection) = 0;
  // Takes the last `count` tokens back.
  virtual void reject(int32_t count) = 0;
  // The positions that a group used last, the latest first, as far as anything is known of that.
  virtual std::vector<int32_t> rows_by_recency(int group) const = 0;
};

// `model` must outlive it.
std::unique_ptr<Selections> draw_selections(const SelectionModel& model, uint64_t key,
                                            int32_t num_tokens);
// Of a recorded request; `load` must outlive it. Nothing is known of what came before its first
// row: the latest positions count as used last.
std::unique_ptr<Selections> replay_selections(const RecordedLoad& load, int64_t request);

}  // namespace dhs::sim
