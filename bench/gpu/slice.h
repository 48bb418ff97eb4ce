// Decode steps of a slice over real stores: every sequence has a context of random rows and index
// keys, and hidden states that change a little from step to step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dhisparse/kv.h"
#include "dhisparse/store.h"
#include "model/workspace.h"
#include "slice_layers.h"

namespace dhs::bench {

struct SliceShape {
  int64_t batch = 0;
  int64_t context = 0;  // tokens before the first step
  int64_t max_steps = 0;
  ResidencyConfig residency;
  // Share of all rows that the device pool has room for, beside the index keys.
  double rows_in_pool = 1;
};

// What all slices of a run share: contents, for the largest batch and context.
struct SliceContents {
  SliceContents(const Bench& bench, const TargetConfig& config, const SliceShape& largest);
  int64_t num_values = 0;  // rows of the three below
  MemoryRange index_keys;  // [num_values, index_dim]
  MemoryRange latents;     // [num_values, latent_dim]
  MemoryRange ropes;       // [num_values, rope_dim]
  int64_t batch = 0;
  MemoryRange hidden;     // [max_steps, batch, hidden_dim]
  MemoryRange positions;  // [context + max_steps] rising
  std::vector<int32_t> host_positions;
};

class Slice {
 public:
  Slice(const Bench& bench, const SliceModel& model, const SliceContents& contents,
        const SliceShape& shape);
  ~Slice();

  // Queues the next step: as a graph once it can be captured.
  void step();
  // Waits. Of all steps so far.
  RowCacheCounters counters();
  // Waits. The positions that the latest step selected, of every sequence.
  std::vector<int32_t> selection() const;

  int64_t pool_bytes() const { return capacity_.num_chunks * capacity_.chunk_bytes; }
  int64_t record_bytes() const { return geometry_.groups[0].record_bytes; }
  bool is_captured() const { return graph_ != nullptr; }
  bool is_fused() const { return is_fused_; }
  const IndexKeyLayout& index_key() const { return store_->layout().index_key; }

 private:
  void admit_all();
  void fill_context();
  void fill(int64_t sequence, int64_t first, int64_t count);
  QueryRows decode_rows() const;
  void launch_step(const QueryRows& rows);

  const Bench& bench_;
  const SliceModel& model_;
  const SliceContents& contents_;
  const SliceShape shape_;
  const Sharding sharding_;  // the only rank
  KvGeometry geometry_;
  KvCapacity capacity_;
  std::unique_ptr<KvManager> manager_;
  std::vector<SequenceMemory> sequences_;  // given back before the manager goes
  std::unique_ptr<KvStore> store_;
  Workspace ws_;
  MemoryRange block_table_, item_table_, sequence_of_row_, fill_sequences_, positions_;
  MemoryRange step_positions_;  // [max_steps, batch]
  std::vector<int32_t> host_sequences_, host_fill_sequences_, host_positions_;
  std::unique_ptr<Graph> graph_;
  bool is_fused_ = false;
  int64_t num_steps_ = 0;
};

}  // namespace dhs::bench
