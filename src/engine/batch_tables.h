// The tables of a step in device memory: what kernels read about the batch, and what they draw.
//
// Every table has a fixed address, so that captured work finds the next step's data in it. Block
// tables have one row per request on the device, uploaded when the request covers more.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <vector>

#include "dhisparse/device.h"
#include "dhisparse/draft.h"
#include "dhisparse/model.h"
#include "dhisparse/scheduler.h"
#include "dhisparse/upload.h"
#include "kernels/accept_chain/accept_chain.h"
#include "kernels/draft_tables/draft_tables.h"
#include "kernels/sampling/sampling.h"

namespace dhs {

struct BatchLimits {
  int64_t max_rows = 0;        // query rows of a step
  int64_t max_sequences = 0;   // running requests
  int64_t max_logit_rows = 0;  // rows of a step that draw: several of a request that verifies
  int64_t max_num_blocks = 0;  // host blocks of one sequence
  int64_t max_logprobs = 0;    // alternatives per draw
  int64_t max_masked = 0;      // masked tokens per draw
  int64_t max_adjusted = 0;    // tokens per logit row whose logits are changed
  bool has_draft_pages = false;
};

class BatchTables {
 public:
  static absl::StatusOr<BatchTables> create(Device& device, const BatchLimits& limits);

  // How the drafts of a request were drawn, for its verify rows; nothing where they were chosen.
  struct DrawnFrom {
    int32_t num_proposed = 0;
    const int32_t* tokens = nullptr;       // of the first draft; null: the whole vocabulary
    const float* probabilities = nullptr;  // of the first draft
    int64_t stride = 0;                    // to the next draft's
  };
  using DrawnFromOf = std::function<DrawnFrom(const SequenceWork&)>;

  // Uploads the plan's tables. With `num_rows` above the plan's own, the rest is padding: rows of
  // position -1 and draws that nobody reads.
  // Precondition: the device has passed the step before the latest one.
  void lay_out(const RankPlan& plan, int64_t num_rows, const DrawnFromOf& drawn_from);

  const BatchLimits& limits() const { return limits_; }
  int64_t num_rows() const { return std::ssize(positions_); }
  int64_t num_draws() const { return std::ssize(position_of_draw_); }
  int64_t num_logit_rows() const { return std::ssize(logit_rows_); }
  TokenBatch batch() const;
  // Draws whose result is in the tables of the device, for the rows that wait for one.
  TensorView<const int32_t, 1> draw_of_row() const { return used(device_.draw_of_row, num_rows()); }
  TensorView<int32_t, 1> tokens() const { return used(device_.tokens, num_rows()); }
  // By draw: the newest token, which the draw's accepted rows and one more brought.
  TensorView<int32_t, 1> newest() const { return device_.newest; }
  BatchSamplingParams sampling(TensorView<const float, 2> logits) const;
  AcceptChainParams accept_chain() const;
  // What a draft needs of the step, behind accept_chain().
  AnchorRowsParams anchor_rows() const;
  TensorView<const int32_t, 1> next_tokens() const { return used(device_.next_tokens, num_rows()); }
  DraftBlocks draft_blocks() const;

  // Queues a copy of the draws into place 0 or 1, and what it brought once the device has passed.
  void queue_results(int place);
  // Of logit row `row`.
  TokenOutput result(int place, int64_t row, int32_t num_logprobs) const;
  int32_t num_accepted(int place, int64_t draw) const;

 private:
  struct DeviceTables {
    TensorView<int32_t, 1> tokens;            // [max_rows]
    TensorView<int32_t, 1> positions;         // [max_rows]
    TensorView<int32_t, 1> sequence_of_row;   // [max_rows]
    TensorView<int32_t, 1> draw_of_row;       // [max_rows]
    TensorView<int32_t, 1> next_tokens;       // [max_rows] where known
    TensorView<int32_t, 1> logit_rows;        // [max_logit_rows]
    TensorView<int32_t, 1> drafts;            // [max_logit_rows] that the row verifies, or -1
    TensorView<RowSampling, 1> row_sampling;  // [max_logit_rows]
    TensorView<int32_t, 1> first_row;         // [max_sequences + 1] logit rows of each draw
    TensorView<int32_t, 1> position_of_draw;  // [max_sequences] that its first row draws
    TensorView<int32_t, 1> sequence_of_draw;  // [max_sequences]
    TensorView<int32_t, 1> end_of_draw;       // [max_sequences] tokens that its sequence covers
    TensorView<ProposalSampling, 1> proposal_sampling;  // [max_sequences]
    TensorView<int32_t, 1> masked_tokens;               // [max_sequences * max_masked]
    TensorView<LogitAdjustment, 1> adjustments;         // [max_logit_rows * max_adjusted]
    TensorView<int32_t, 2> block_table;                 // [max_sequences, max_num_blocks]
    TensorView<int32_t, 2> item_table;                  // [max_sequences, max_num_blocks]
    TensorView<int32_t, 2> page_table;         // [max_sequences, max_num_blocks]; empty: no pages
    TensorView<int32_t, 1> newest;             // [max_sequences], from here on: results
    TensorView<int32_t, 1> newest_position;    // [max_sequences]
    TensorView<int32_t, 1> num_accepted;       // [max_sequences]
    TensorView<int32_t, 1> row_before_anchor;  // [max_sequences]
    TensorView<int32_t, 1> drawn;              // [max_logit_rows]
    TensorView<float, 1> logprobs;             // [max_logit_rows]
    TensorView<int32_t, 2> top_tokens;         // [max_logit_rows, max_logprobs]
    TensorView<float, 2> top_logprobs;         // [max_logit_rows, max_logprobs]
  };

  template <class T>
  static TensorView<T, 1> used(const TensorView<T, 1>& table, int64_t count) {
    return view(table.data, count);
  }
  void lay_out_inputs(ArenaCarver& carver);
  void lay_out_results(ArenaCarver& carver);
  void add_rows(const SequenceWork& work);
  void add_draw(const SequenceWork& work, const DrawnFrom& drawn_from);
  void add_logit_row(const SequenceWork& work, const DrawnFrom& drawn_from, int64_t row_of_draw);
  void adjust(const SequenceWork& work, RowSampling& row);
  void add_padding(int64_t num_rows);
  void upload_tables();
  void upload_blocks(const SequenceMemory& memory);
  template <class T>
  const T& in_place(int place, const T& original) const;

  Device* device_handle_ = nullptr;
  BatchLimits limits_;
  Uploader uploader_;
  MemoryRange inputs_;
  MemoryRange results_;
  MemoryRange host_results_;  // two places
  DeviceTables device_;
  std::vector<uint64_t> version_of_row_;  // of the block tables: whose blocks they hold

  // Of the latest step, as uploaded.
  std::vector<int32_t> tokens_, positions_, sequence_of_row_, draw_of_row_, next_tokens_;
  std::vector<int32_t> logit_rows_, drafts_;
  std::vector<RowSampling> row_sampling_;
  std::vector<int32_t> first_row_, position_of_draw_, sequence_of_draw_, end_of_draw_;
  std::vector<int32_t> most_positions_;  // that an anchor can have, by draw
  std::vector<ProposalSampling> proposal_sampling_;
  int32_t num_wanted_ = 0;  // proposals of a block, at most
  std::vector<int32_t> masked_tokens_;
  std::vector<LogitAdjustment> adjustments_;
  std::vector<TokenId> drafts_before_;  // of the draw's row that is added next, sorted
  std::vector<int32_t> block_row_;      // one row of a block table
};

}  // namespace dhs
