#include "model/mtp_draft.h"

#include <utility>

#include "dhisparse/base.h"
#include "kernels/add/add.h"
#include "kernels/candidates/candidates.h"
#include "kernels/draft_tables/draft_tables.h"
#include "kernels/embedding/embedding.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "kernels/take_rows/take_rows.h"
#include "model/attention.h"
#include "model/mlp.h"
#include "model/mtp_checkpoint.h"
#include "model/sharding.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace dhs {
namespace {

class MtpDraft final : public Draft {
 public:
  MtpDraft(MtpCheckpoint files, const TargetModel& target, const Sharding& sharding, Device& device)
      : files_(std::move(files)),
        target_(target),
        sharding_(sharding),
        config_(own_part(files_.config, sharding)),
        layer_(files_.config.num_layers - 1),
        device_(device) {}

  absl::Status load(const DraftOptions& options, const ModelOptions& workspace);

  const DraftDescription& description() const override { return description_; }
  void append(const DraftStep& step, KvStore& kv) override;
  void propose(const DraftBlocks& blocks, KvStore& kv, const Proposals& out) override;

 private:
  // The layer's input: tokens behind the rows, hidden states of the rows.
  struct Inputs {
    TensorView<const int32_t, 1> next_tokens;
    TensorView<const float, 2> hidden;
    const QueryRows& rows;
    TensorView<const int32_t, 2> given_selection = {};
  };
  absl::Status reserve(const DraftOptions& options);
  void mix_inputs(const Inputs& inputs);
  void enter_layer(const Inputs& inputs);
  // Leaves g of every row in carry_.
  void run_layer(const Inputs& inputs, KvStore& kv);
  AttentionContext attention_of(const Inputs& inputs, KvStore& kv);
  void normalize(const DeviceVector<float>& weight, TensorView<const float, 2> x,
                 TensorView<float, 2> out);
  // The likeliest token behind the rows' carry; proposal number `proposal` of each block.
  void choose(int64_t proposal, const Proposals& out);
  QueryRows rows_of_iteration(const DraftBlocks& blocks, int32_t iteration);
  Stream stream() const { return device_.stream(); }

  const MtpCheckpoint files_;
  const TargetModel& target_;
  const Sharding sharding_;
  const TargetConfig config_;  // this rank's part
  const int layer_;
  Device& device_;
  DraftDescription description_;
  SharedWeights shared_;
  DeviceVector<double> rope_frequencies_;
  DeviceVector<float> embedding_norm_, hidden_norm_, final_norm_;
  PackedMatrixPtr projection_, own_head_;
  PackedLayer weights_;
  Workspace ws_;
  MemoryRange memory_;
  TensorView<int32_t, 1> shifted_;             // [max_query_rows] positions - 1
  TensorView<float, 2> joined_;                // [max_query_rows, 2 * hidden]
  TensorView<float, 2> carry_;                 // [max_blocks, hidden]
  TensorView<int32_t, 1> positions_, chosen_;  // [max_blocks]
  TensorView<float, 1> values_;                // [max_blocks]
  QueryRows tables_;                           // of the step: its tables
  std::vector<int32_t> host_positions_;
};

absl::Status MtpDraft::load(const DraftOptions& options, const ModelOptions& workspace) {
  DHS_ASSIGN_OR_RETURN(const MtpWeights weights,
                       load_mtp_weights(files_.checkpoint, files_.config, files_.target));
  shared_ = target_.shared_weights();
  DHS_ASSIGN_OR_RETURN(WeightUploader uploader, WeightUploader::create(device_));
  Packer packer(uploader, shared_.precision, GemmProvider::kOwn);
  embedding_norm_ = packer.vector(weights.embedding_norm);
  hidden_norm_ = packer.vector(weights.hidden_norm);
  final_norm_ = packer.vector(weights.final_norm);
  projection_ = packer.stack({all_rows(weights.projection)});
  if (weights.head.has_value()) own_head_ = packer.stack({all_rows(*weights.head)});
  weights_ = pack_layer(weights.layer, files_.config, sharding_, packer);
  DHS_RETURN_IF_ERROR(packer.status());
  const std::vector<double> frequencies = rope_frequencies(
      config_.qk_rope_dim, config_.rope_theta, config_.yarn.has_value() ? &*config_.yarn : nullptr);
  DHS_ASSIGN_OR_RETURN(
      rope_frequencies_.memory,
      uploader.upload(frequencies.data(), std::ssize(frequencies) * int64_t{sizeof(double)}));
  DHS_ASSIGN_OR_RETURN(ws_, reserve_workspace(device_, config_, sharding_, workspace));
  description_ = describe_mtp();
  return reserve(options);
}

absl::Status MtpDraft::reserve(const DraftOptions& options) {
  const int64_t rows = options.max_query_rows;
  const int64_t blocks = options.max_blocks;
  const int64_t hidden = config_.hidden_dim;
  auto lay_out = [&](ArenaCarver& carver) {
    shifted_ = carver.take<int32_t>(rows);
    joined_ = view(carver.take<float>(rows * 2 * hidden).data, rows, 2 * hidden);
    carry_ = view(carver.take<float>(blocks * hidden).data, blocks, hidden);
    positions_ = carver.take<int32_t>(blocks);
    chosen_ = carver.take<int32_t>(blocks);
    values_ = carver.take<float>(blocks);
  };
  DHS_ASSIGN_OR_RETURN(memory_, carve(device_, lay_out));
  host_positions_.reserve(blocks);
  return absl::OkStatus();
}

// ---- The layer ----------------------------------------------------------------------------------

void MtpDraft::normalize(const DeviceVector<float>& weight, TensorView<const float, 2> x,
                         TensorView<float, 2> out) {
  launch_rms_norm({x, weight.data(), static_cast<float>(config_.rms_norm_eps), out}, stream());
}

void MtpDraft::mix_inputs(const Inputs& inputs) {
  const int64_t n = inputs.rows.num_rows();
  const int64_t hidden = config_.hidden_dim;
  const auto shifted = view(shifted_.data, n);
  // The embedding at position 0 is zero, as that of padding is: one less makes both negative.
  launch_shift_positions({.positions = inputs.rows.positions, .offset = -1, .out = shifted},
                         stream());
  const auto embedded = first_rows(ws_.normed, n);
  launch_embedding({.dtype = shared_.embedding_dtype,
                    .table = shared_.embedding,
                    .tokens = inputs.next_tokens,
                    .positions = shifted,
                    .out = embedded},
                   stream());
  normalize(embedding_norm_, embedded, slice(joined_, n, 0, hidden));
  normalize(hidden_norm_, inputs.hidden, slice(joined_, n, hidden, hidden));
  launch_gemm({projection_.get(), first_rows(joined_, n), first_rows(ws_.hidden, n)}, stream());
}

AttentionContext MtpDraft::attention_of(const Inputs& inputs, KvStore& kv) {
  return {.config = config_,
          .rope_frequencies = rope_frequencies_.data(),
          .ws = ws_,
          .kv = kv,
          .rows = inputs.rows,
          .device = device_,
          .taps = nullptr,
          .summing = sharding_.summing,
          .given_selection = inputs.given_selection};
}

// Leaves the residual in ws_.hidden, and what attention reads.
void MtpDraft::enter_layer(const Inputs& inputs) {
  mix_inputs(inputs);
  const int64_t n = inputs.rows.num_rows();
  normalize(weights_.input_norm, first_rows(ws_.hidden, n), first_rows(ws_.normed, n));
}

void MtpDraft::run_layer(const Inputs& inputs, KvStore& kv) {
  const int64_t n = inputs.rows.num_rows();
  enter_layer(inputs);
  run_attention(attention_of(inputs, kv), weights_, layer_);
  const auto residual = first_rows(ws_.hidden, n);
  launch_add({first_rows(ws_.sublayer_out, n), residual}, stream());
  normalize(weights_.post_attention_norm, residual, first_rows(ws_.normed, n));
  const MlpContext mlp{config_, ws_, n, n, device_, nullptr, sharding_};
  run_mlp(mlp, weights_, layer_);
  launch_add({first_rows(ws_.sublayer_out, n), residual}, stream());
  normalize(final_norm_, residual, first_rows(carry_, n));
}

// What the layer keeps of a token follows from its inputs alone, so it attends for nobody here.
void MtpDraft::append(const DraftStep& step, KvStore& kv) {
  tables_ = step.rows;
  const Inputs inputs{.next_tokens = step.next_tokens, .hidden = step.taps, .rows = tables_};
  enter_layer(inputs);
  append_context(attention_of(inputs, kv), weights_, layer_);
}

// ---- Proposals ----------------------------------------------------------------------------------

void MtpDraft::choose(int64_t proposal, const Proposals& out) {
  const int64_t n = out.drafts.sizes[0];
  const auto logits = first_rows(ws_.logits, n);
  const PackedMatrix* head = own_head_ != nullptr ? own_head_.get() : shared_.lm_head;
  launch_gemm({head, first_rows(carry_, n), logits}, stream());
  launch_candidates(
      {.logits = logits, .values = view(values_.data, n, 1), .tokens = view(chosen_.data, n, 1)},
      stream());
  launch_keep_draws({.drawn = view<const int32_t>(chosen_.data, n),
                     .out = {out.drafts.data + proposal, {n}, {out.drafts.strides[0]}}},
                    stream());
}

// Iteration 1 is at the position before the anchor's; the others follow it.
QueryRows MtpDraft::rows_of_iteration(const DraftBlocks& blocks, int32_t iteration) {
  const int64_t n = blocks.num_blocks();
  const int32_t offset = iteration - 2;
  launch_shift_positions({.positions = blocks.anchor_positions,
                          .offset = offset,
                          .ends = blocks.end_positions,
                          .out = view(positions_.data, n)},
                         stream());
  host_positions_.clear();
  for (int32_t most : blocks.host_most_positions) {
    host_positions_.push_back(most < 0 ? -1 : most + offset);
  }
  QueryRows rows = tables_;
  rows.sequence_of_row = blocks.sequence_of_block;
  rows.positions = view<const int32_t>(positions_.data, n);
  rows.host_sequence_of_row = blocks.host_sequence_of_block;
  rows.host_positions = host_positions_;
  return rows;
}

void MtpDraft::propose(const DraftBlocks& blocks, KvStore& kv, const Proposals& out) {
  const int64_t n = blocks.num_blocks();
  const auto carry = first_rows(carry_, n);
  launch_take_rows({.x = target_.taps(), .rows = blocks.row_before_anchor, .out = carry}, stream());
  for (int32_t iteration = 1; iteration <= blocks.num_wanted; ++iteration) {
    const bool is_first = iteration == 1;
    const QueryRows rows = rows_of_iteration(blocks, iteration);
    kv.continue_step(rows);
    Inputs inputs{.next_tokens = is_first ? blocks.anchors : view<const int32_t>(chosen_.data, n),
                  .hidden = carry,
                  .rows = rows};
    // Such passes leave the first one's selection where it is.
    if (files_.config.mtp_shares_selection && !is_first) {
      inputs.given_selection = first_rows(ws_.selection, n);
    }
    run_layer(inputs, kv);
    choose(iteration - 1, out);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Draft>> load_mtp_draft(const std::string& directory,
                                                      const std::string& target_directory,
                                                      TargetModel& target, Device& device,
                                                      const DraftOptions& options) {
  DHS_ASSIGN_OR_RETURN(MtpCheckpoint files, open_mtp_checkpoint(directory, target_directory));
  const ModelOptions workspace{.max_query_rows = options.max_query_rows,
                               .max_logit_rows = options.max_blocks,
                               .max_context = options.max_context,
                               .communicator = options.communicator,
                               .parallel_mode = ParallelMode::kTensor};
  DHS_ASSIGN_OR_RETURN(const Sharding sharding, make_sharding(files.config, workspace));
  auto draft = std::make_unique<MtpDraft>(std::move(files), target, sharding, device);
  DHS_RETURN_IF_ERROR(draft->load(options, workspace));
  return draft;
}

}  // namespace dhs
