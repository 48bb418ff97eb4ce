#include "model/proposal_head.h"

#include <algorithm>
#include <vector>

#include "kernels/add/add.h"
#include "kernels/candidate_walk/candidate_walk.h"
#include "kernels/candidates/candidates.h"
#include "kernels/draft_tables/draft_tables.h"
#include "kernels/embedding/embedding.h"
#include "kernels/markov_head/markov_head.h"
#include "kernels/sampling/sampling.h"
#include "kernels/softmax/softmax.h"
#include "kernels/take_rows/take_rows.h"
#include "model/packed_layer.h"
#include "model/workspace.h"

namespace dhs {
namespace {

// A table that is read row by row, as it is stored.
struct DeviceTable {
  DType dtype = DType::kF32;
  MemoryRange memory;
  const void* data() const { return memory.data(); }
};

absl::StatusOr<DeviceTable> upload_table(const WeightMatrix& table, WeightUploader& uploader) {
  DeviceTable uploaded{.dtype = table.dtype, .memory = {}};
  if (table.dtype == DType::kF8E4m3) {
    return absl::InvalidArgumentError(
        absl::StrCat(table.name, ": a table of F8_E4M3 is not supported; convert the checkpoint"));
  }
  DHS_ASSIGN_OR_RETURN(uploaded.memory, uploader.upload(table.data, table.stored_bytes()));
  return uploaded;
}

// Every `stride`-th row from `first` on.
TensorView<const float, 2> every(TensorView<const float, 2> rows, int64_t first, int64_t stride) {
  return {rows.row(first), {rows.sizes[0] / stride, rows.sizes[1]}, {stride * rows.strides[0], 1}};
}
TensorView<float, 2> every(TensorView<float, 2> rows, int64_t first, int64_t stride) {
  return {rows.row(first), {rows.sizes[0] / stride, rows.sizes[1]}, {stride * rows.strides[0], 1}};
}

// The rows that propose, and their logits by the target's head.
class ProposingRows {
 public:
  explicit ProposingRows(const BlockDraftConfig& config) : config_(config) {}

  absl::Status load(const ProposalHeadInputs& inputs, WeightUploader& uploader) {
    lm_head_ = inputs.shared.lm_head;
    const int64_t most = inputs.options.max_blocks * config_.num_proposals();
    const int32_t first = config_.proposes_from_anchor ? 0 : 1;
    std::vector<int32_t> rows;
    for (int64_t i = 0; i < most; ++i) {
      const int64_t block = i / config_.num_proposals();
      rows.push_back(
          static_cast<int32_t>(block * config_.block_rows + first + i % config_.num_proposals()));
    }
    DHS_ASSIGN_OR_RETURN(rows_.memory,
                         uploader.upload(rows.data(), most * int64_t{sizeof(int32_t)}));
    DHS_ASSIGN_OR_RETURN(memory_, carve(uploader.device(), [&](ArenaCarver& carver) {
                           hidden_ = view(carver.take<float>(most * config_.hidden_dim).data, most,
                                          int64_t{config_.hidden_dim});
                           logits_ = view(carver.take<float>(most * config_.vocab_size).data, most,
                                          int64_t{config_.vocab_size});
                         }));
    return absl::OkStatus();
  }

  // Row b * num_proposals + d - 1 proposes the d-th token of block b.
  void compute(TensorView<const float, 2> y, int64_t num_blocks, Stream stream) {
    num_rows_ = num_blocks * config_.num_proposals();
    launch_take_rows(
        {.x = y, .rows = view<const int32_t>(rows_.data(), num_rows_), .out = hidden()}, stream);
    launch_gemm({lm_head_, hidden(), logits()}, stream);
  }
  TensorView<float, 2> hidden() const { return first_rows(hidden_, num_rows_); }
  TensorView<float, 2> logits() const { return first_rows(logits_, num_rows_); }

 private:
  const BlockDraftConfig& config_;
  const PackedMatrix* lm_head_ = nullptr;
  DeviceVector<int32_t> rows_;
  MemoryRange memory_;
  TensorView<float, 2> hidden_, logits_;
  int64_t num_rows_ = 0;
};

// ---- DFlash -------------------------------------------------------------------------------------

class LikeliestHead final : public ProposalHead {
 public:
  LikeliestHead(const BlockDraftConfig& config, Device& device)
      : device_(device), rows_(config), num_proposals_(config.num_proposals()) {}

  absl::Status load(const ProposalHeadInputs& inputs, WeightUploader& uploader) {
    DHS_RETURN_IF_ERROR(rows_.load(inputs, uploader));
    const int64_t most = inputs.options.max_blocks * num_proposals_;
    DHS_ASSIGN_OR_RETURN(
        memory_, carve(device_, [&](ArenaCarver& carver) { values_ = carver.take<float>(most); }));
    return absl::OkStatus();
  }

  void propose(TensorView<const float, 2> y, const DraftBlocks& blocks,
               const Proposals& out) override {
    rows_.compute(y, blocks.num_blocks(), device_.stream());
    const int64_t n = blocks.num_blocks() * num_proposals_;
    launch_candidates({.logits = rows_.logits(),
                       .values = view(values_.data, n, 1),
                       .tokens = view(out.drafts.data, n, 1)},
                      device_.stream());
  }

 private:
  Device& device_;
  ProposingRows rows_;
  const int64_t num_proposals_;
  MemoryRange memory_;
  TensorView<float, 1> values_;
};

// ---- DFlash2 ------------------------------------------------------------------------------------

class SelectorHead final : public ProposalHead {
 public:
  SelectorHead(const BlockDraftConfig& config, Device& device)
      : config_(config), device_(device), rows_(config) {}

  absl::Status load(const ProposalHeadInputs& inputs, WeightUploader& uploader) {
    const SelectorWeights& weights = *inputs.weights.selector;
    DHS_RETURN_IF_ERROR(rows_.load(inputs, uploader));
    Packer packer(uploader, inputs.shared.precision, GemmProvider::kOwn);
    projection_ = packer.stack({all_rows(weights.hidden_projection)});
    DHS_RETURN_IF_ERROR(packer.status());
    if (weights.predecessors.dtype != weights.successors.dtype) {
      return absl::InvalidArgumentError(absl::StrCat(weights.predecessors.name, " and ",
                                                     weights.successors.name,
                                                     " differ in dtype; convert the checkpoint"));
    }
    DHS_ASSIGN_OR_RETURN(predecessors_, upload_table(weights.predecessors, uploader));
    DHS_ASSIGN_OR_RETURN(successors_, upload_table(weights.successors, uploader));
    const int64_t most = inputs.options.max_blocks * config_.num_proposals();
    DHS_ASSIGN_OR_RETURN(memory_, carve(device_, [&](ArenaCarver& carver) {
                           values_ = view(carver.take<float>(most * config_.selector_top_k).data,
                                          most, int64_t{config_.selector_top_k});
                           edges_ = view(carver.take<float>(most * config_.selector_rank).data,
                                         most, int64_t{config_.selector_rank});
                         }));
    return absl::OkStatus();
  }

  void propose(TensorView<const float, 2> y, const DraftBlocks& blocks,
               const Proposals& out) override {
    const Stream stream = device_.stream();
    rows_.compute(y, blocks.num_blocks(), stream);
    const int64_t n = rows_.logits().sizes[0];
    launch_candidates({.logits = rows_.logits(),
                       .multiplier = static_cast<float>(config_.logit_multiplier),
                       .softcap = static_cast<float>(config_.logit_softcap),
                       .values = first_rows(values_, n),
                       .tokens = out.candidates},
                      stream);
    launch_gemm({projection_.get(), rows_.hidden(), first_rows(edges_, n)}, stream);
    launch_place_proposals(
        {.anchor_positions = blocks.anchor_positions, .sampling = blocks.sampling}, stream);
    launch_candidate_walk({.values = first_rows(values_, n),
                           .tokens = out.candidates,
                           .hidden = first_rows(edges_, n),
                           .codebook_dtype = predecessors_.dtype,
                           .predecessor = predecessors_.data(),
                           .successor = successors_.data(),
                           .anchors = blocks.anchors,
                           .sampling = blocks.sampling,
                           .drafts = out.drafts,
                           .probabilities = out.probabilities,
                           .confidence = out.confidence},
                          stream);
  }

 private:
  const BlockDraftConfig& config_;
  Device& device_;
  ProposingRows rows_;
  PackedMatrixPtr projection_;
  DeviceTable predecessors_, successors_;
  MemoryRange memory_;
  TensorView<float, 2> values_, edges_;
};

// ---- DSpark -------------------------------------------------------------------------------------

// Token k: logits_k = U_k + W2 g(W1[x_(k-1)], y_k), with g by the kind of head; then drawn.
class MarkovHead final : public ProposalHead {
 public:
  MarkovHead(const BlockDraftConfig& config, Device& device)
      : config_(config), device_(device), rows_(config) {}

  absl::Status load(const ProposalHeadInputs& inputs, WeightUploader& uploader);
  void propose(TensorView<const float, 2> y, const DraftBlocks& blocks,
               const Proposals& out) override;

 private:
  struct Step {
    int64_t proposal;  // from 0
    int64_t num_blocks;
    TensorView<const float, 2> y;  // [num_blocks, hidden]
    TensorView<float, 2> logits;   // [num_blocks, vocab]
  };
  absl::Status load_markov(const ProposalHeadInputs& inputs, WeightUploader& uploader);
  void reserve(ArenaCarver& carver, int64_t max_blocks);
  // e = W1[token before]; what W2 multiplies; and the logits moved by it.
  void embed_previous(const Step& step, const DraftBlocks& blocks);
  TensorView<const float, 2> mix(const Step& step);
  void move_logits(const Step& step);
  void draw(const Step& step, const DraftBlocks& blocks, const Proposals& out);
  void judge(const Step& step, const Proposals& out);

  // Columns of joined_: [s | e | y] of the rnn head, [y | e] of the gated one, [e] of the vanilla.
  int64_t rank() const { return config_.markov_rank; }
  int64_t first_of_e() const {
    if (config_.markov == MarkovKind::kRnn) return rank();
    return config_.markov == MarkovKind::kGated ? config_.hidden_dim : 0;
  }
  int64_t joined_width() const {
    if (config_.markov == MarkovKind::kRnn) return 2 * rank() + config_.hidden_dim;
    return config_.markov == MarkovKind::kGated ? config_.hidden_dim + rank() : rank();
  }
  TensorView<float, 2> e(int64_t n) const { return slice(joined_, n, first_of_e(), rank()); }
  Stream stream() const { return device_.stream(); }

  const BlockDraftConfig& config_;
  Device& device_;
  ProposingRows rows_;
  DeviceTable w1_;
  PackedMatrixPtr w2_, gate_;
  DeviceVector<float> gate_bias_, confidence_;
  float confidence_bias_ = 0;
  std::vector<float> confidence_temperatures_;
  MemoryRange memory_;
  TensorView<float, 2> joined_;         // [max_blocks, joined_width()]
  TensorView<float, 2> gated_, mixed_;  // [max_blocks, rank or 3 * rank], [max_blocks, rank]
  TensorView<float, 2> bias_;           // [max_blocks, vocab]
  TensorView<int32_t, 1> previous_;     // [max_blocks] tokens
  TensorView<RowSampling, 1> draws_;    // [max_blocks]
  TensorView<float, 1> temperatures_, logprobs_;
};

absl::Status MarkovHead::load_markov(const ProposalHeadInputs& inputs, WeightUploader& uploader) {
  const MarkovWeights& weights = *inputs.weights.markov;
  DHS_ASSIGN_OR_RETURN(w1_, upload_table(weights.w1, uploader));
  Packer packer(uploader, inputs.shared.precision, GemmProvider::kOwn);
  w2_ = packer.stack({all_rows(weights.w2)});
  if (weights.gate.has_value()) {
    gate_ = packer.stack({all_rows(*weights.gate)});
    gate_bias_ = packer.vector(weights.gate_bias);
  }
  return packer.status();
}

absl::Status MarkovHead::load(const ProposalHeadInputs& inputs, WeightUploader& uploader) {
  DHS_RETURN_IF_ERROR(rows_.load(inputs, uploader));
  if (inputs.weights.markov.has_value()) DHS_RETURN_IF_ERROR(load_markov(inputs, uploader));
  if (inputs.weights.confidence.has_value()) {
    const ConfidenceWeights& weights = *inputs.weights.confidence;
    Packer packer(uploader, inputs.shared.precision, GemmProvider::kOwn);
    confidence_ = packer.vector(weights.weight);
    DHS_RETURN_IF_ERROR(packer.status());
    confidence_bias_ = weights.bias;
    confidence_temperatures_ = inputs.options.confidence_temperatures;
    confidence_temperatures_.resize(config_.num_proposals(), 1.0f);
  }
  DHS_ASSIGN_OR_RETURN(memory_, carve(device_, [&](ArenaCarver& carver) {
                         reserve(carver, inputs.options.max_blocks);
                       }));
  return absl::OkStatus();
}

void MarkovHead::reserve(ArenaCarver& carver, int64_t max_blocks) {
  const auto take = [&](int64_t columns) {
    return view(carver.take<float>(max_blocks * columns).data, max_blocks, columns);
  };
  joined_ = take(joined_width());
  gated_ = take(config_.markov == MarkovKind::kRnn ? 3 * rank() : rank());
  mixed_ = take(rank());
  bias_ = take(config_.markov == MarkovKind::kNone ? 0 : config_.vocab_size);
  previous_ = carver.take<int32_t>(max_blocks);
  draws_ = carver.take<RowSampling>(max_blocks);
  temperatures_ = carver.take<float>(max_blocks);
  logprobs_ = carver.take<float>(max_blocks);
}

void MarkovHead::embed_previous(const Step& step, const DraftBlocks& blocks) {
  if (config_.markov == MarkovKind::kNone) return;
  launch_embedding({.dtype = w1_.dtype,
                    .table = w1_.data(),
                    .tokens = view<const int32_t>(previous_.data, step.num_blocks),
                    .positions = blocks.anchor_positions,
                    .out = e(step.num_blocks)},
                   stream());
}

TensorView<const float, 2> MarkovHead::mix(const Step& step) {
  const int64_t n = step.num_blocks;
  if (config_.markov == MarkovKind::kVanilla) return e(n);
  const int64_t first_of_y = config_.markov == MarkovKind::kRnn ? 2 * rank() : 0;
  launch_take_rows(
      {.x = step.y, .rows = {}, .out = slice(joined_, n, first_of_y, config_.hidden_dim)},
      stream());
  launch_gemm({gate_.get(), first_rows(joined_, n), first_rows(gated_, n)}, stream());
  if (config_.markov == MarkovKind::kGated) {
    launch_markov_gate({.gate = first_rows(gated_, n),
                        .e = e(n),
                        .bias = gate_bias_.data(),
                        .out = first_rows(mixed_, n)},
                       stream());
  } else {
    launch_markov_cell({.joint = first_rows(gated_, n),
                        .bias = gate_bias_.data(),
                        .state = slice(joined_, n, 0, rank()),
                        .out = first_rows(mixed_, n)},
                       stream());
  }
  return first_rows(mixed_, n);
}

void MarkovHead::move_logits(const Step& step) {
  if (config_.markov == MarkovKind::kNone) return;
  const auto bias = first_rows(bias_, step.num_blocks);
  launch_gemm({w2_.get(), mix(step), bias}, stream());
  launch_add({bias, step.logits}, stream());
}

void MarkovHead::draw(const Step& step, const DraftBlocks& blocks, const Proposals& out) {
  const int64_t n = step.num_blocks;
  launch_place_draws({.anchor_positions = blocks.anchor_positions,
                      .sampling = blocks.sampling,
                      .offset = static_cast<int32_t>(step.proposal) + 1,
                      .rows = view(draws_.data, n),
                      .temperatures = view(temperatures_.data, n)},
                     stream());
  launch_softmax({.logits = step.logits,
                  .temperature = view<const float>(temperatures_.data, n),
                  .out = every(out.probabilities, step.proposal, config_.num_proposals())},
                 stream());
  launch_sampling({.logits = step.logits,
                   .rows = view<const RowSampling>(draws_.data, n),
                   .tokens = view(previous_.data, n),
                   .logprobs = view(logprobs_.data, n),
                   .top_tokens = view<int32_t>(nullptr, n, 0),
                   .top_logprobs = view<float>(nullptr, n, 0)},
                  stream());
  launch_keep_draws({.drawn = view<const int32_t>(previous_.data, n),
                     .out = {out.drafts.data + step.proposal, {n}, {out.drafts.strides[0]}}},
                    stream());
}

// Before the token is drawn: its confidence depends on those before it only.
void MarkovHead::judge(const Step& step, const Proposals& out) {
  if (!config_.has_confidence) return;
  const int64_t n = step.num_blocks;
  TensorView<const float, 2> seen{nullptr, {n, 0}, {0, 1}};
  if (config_.confidence_sees_markov) seen = e(n);
  launch_confidence(
      {.y = step.y,
       .e = seen,
       .weight = confidence_.data(),
       .bias = confidence_bias_,
       .temperature = confidence_temperatures_[step.proposal],
       .out = {out.confidence.data + step.proposal, {n}, {out.confidence.strides[0]}}},
      stream());
}

void MarkovHead::propose(TensorView<const float, 2> y, const DraftBlocks& blocks,
                         const Proposals& out) {
  const int64_t n = blocks.num_blocks();
  const int64_t num_proposals = config_.num_proposals();
  rows_.compute(y, n, stream());
  device_.copy(previous_.data, blocks.anchors.data, n * int64_t{sizeof(int32_t)}, stream());
  if (config_.markov == MarkovKind::kRnn) {
    device_.fill(joined_.data, std::byte{0}, n * joined_width() * int64_t{sizeof(float)}, stream());
  }
  for (int64_t k = 0; k < num_proposals; ++k) {
    const Step step{.proposal = k,
                    .num_blocks = n,
                    .y = every(TensorView<const float, 2>(rows_.hidden()), k, num_proposals),
                    .logits = every(rows_.logits(), k, num_proposals)};
    embed_previous(step, blocks);
    judge(step, out);
    move_logits(step);
    draw(step, blocks, out);
  }
}

template <class Head>
absl::StatusOr<std::unique_ptr<ProposalHead>> make(const ProposalHeadInputs& inputs,
                                                   WeightUploader& uploader) {
  auto head = std::make_unique<Head>(inputs.config, uploader.device());
  DHS_RETURN_IF_ERROR(head->load(inputs, uploader));
  return head;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProposalHead>> make_proposal_head(const ProposalHeadInputs& inputs,
                                                                 WeightUploader& uploader) {
  switch (inputs.config.family) {
    case BlockDraftFamily::kDflash:
      return make<LikeliestHead>(inputs, uploader);
    case BlockDraftFamily::kDflash2:
      return make<SelectorHead>(inputs, uploader);
    case BlockDraftFamily::kDspark:
      return make<MarkovHead>(inputs, uploader);
  }
  return absl::InternalError("a draft of no family");
}

}  // namespace dhs
