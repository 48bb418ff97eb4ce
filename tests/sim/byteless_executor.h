// An executor without bytes or model: the real row-cache policy over synthetic selections, and
// tokens drawn by hashing. Tests drive the real scheduler and KV accounting with it, step by step.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "dhisparse/row_cache_arrays.h"
#include "dhisparse/scheduler.h"

namespace dhs::sim {

class ByteLessExecutor {
 public:
  ByteLessExecutor(const KvGeometry& geometry, const KvCapacity& capacity, uint32_t seed);

  StepResult execute(const RankPlan& plan);

  // The first violated invariant of any row cache, or empty. Among them: every resident row belongs
  // to a host block that somebody holds, and a cache has memory for as many rows as the accounting
  // says.
  std::string check_invariants(const std::vector<bool>& block_is_held, const KvUsage& usage) const;

  int64_t num_fetched() const { return num_fetched_; }
  int64_t num_restored() const { return num_restored_; }
  int64_t num_pages_restored() const { return num_pages_restored_; }
  int64_t num_refilled() const { return num_refilled_; }  // rows
  int64_t num_accepted() const { return num_accepted_; }  // drafts

 private:
  struct Cache {
    RowCacheArrays rows;
    int64_t num_missed = 0;  // of the step
  };

  // Tokens of a host block whose state is written, and of which block an index item or a draft page
  // holds them.
  struct BlockItem {
    int32_t block = -1;
    int64_t num_written = 0;
  };

  void apply(const RankPlan& plan);
  void refill(Cache& cache, int64_t max_rows);
  void write_index_keys(const SequenceWork& work);
  void write_draft_context(const SequenceWork& work);
  void read_draft_context(const SequenceWork& work, int64_t num_drawn) const;
  void claim_new_rows(Cache& cache, const RankPlan& plan);
  void draw(const SequenceWork& work, SequenceResult& result);
  void run_group(Cache& cache, const SequenceWork& work, SequenceResult& result);

  const KvGeometry geometry_;
  std::vector<Cache> caches_;
  std::vector<int64_t> num_written_;    // by host block
  std::vector<BlockItem> index_items_;  // by item
  std::vector<BlockItem> draft_pages_;  // by page
  std::mt19937 random_;
  int64_t num_fetched_ = 0;
  int64_t num_restored_ = 0;
  int64_t num_pages_restored_ = 0;
  int64_t num_accepted_ = 0;
  int64_t num_refilled_ = 0;
};

}  // namespace dhs::sim
