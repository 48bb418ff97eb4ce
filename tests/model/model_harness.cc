#include "model_harness.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/test_memory.h"

namespace dhs {

std::unique_ptr<ModelHarness> ModelHarness::load(const std::string& directory,
                                                 const HarnessOptions& options) {
  auto fail = [&](const absl::Status& status) {
    ADD_FAILURE() << directory << ": " << status.ToString();
    return nullptr;
  };
  auto harness = std::unique_ptr<ModelHarness>(new ModelHarness);
  auto device = open_device({.backend = test::kOnCuda ? BackendKind::kCuda : BackendKind::kCpu});
  if (!device.ok()) return fail(device.status());
  harness->device_ = *std::move(device);
  const bool has_draft = options.draft.kind != DraftKind::kNone;
  const DType page_dtype = options.row_format == RowFormat::kF32 ? DType::kF32 : DType::kBf16;
  DraftDescription draft;
  if (has_draft) {
    auto described = describe_draft(options.draft, directory, page_dtype);
    if (!described.ok()) return fail(described.status());
    draft = *std::move(described);
  }
  auto model = load_target_model(directory, *harness->device_,
                                 {.precision = options.precision,
                                  .max_query_rows = options.max_query_rows,
                                  .max_logit_rows = options.max_query_rows,
                                  .max_context = options.max_context,
                                  .tapped_layers = draft.target_layers,
                                  .taps_final_hidden = draft.taps_final_hidden});
  if (!model.ok()) return fail(model.status());
  harness->model_ = *std::move(model);
  const ModelDescription& description = harness->model_->description();
  StoreLayout layout;
  layout.row = {options.row_format, description.latent_dim, description.rope_dim};
  layout.index_key = {options.index_format, description.index_dim, kHostBlockTokens};
  layout.max_query_rows = options.max_query_rows;
  layout.max_sequences = options.max_query_rows;
  layout.draft_page = draft.page;
  std::vector<int32_t> groups = description.layers_per_group;
  groups.insert(groups.end(), draft.layers_per_group.begin(), draft.layers_per_group.end());
  const int64_t page_bytes = draft.page.num_layers > 0 ? draft.page.page_bytes() : 0;
  const KvGeometry geometry = make_geometry(
      groups, layout.row.row_bytes(), layout.index_key.page_bytes(), description.top_k,
      {.page_bytes = page_bytes, .window = 0});  // every page on the device
  const KvCapacity capacity{options.num_host_blocks, options.num_chunks, options.chunk_bytes};
  harness->kv_ = std::make_unique<KvManager>(geometry, capacity, options.residency);
  auto store = KvStore::create(*harness->device_, geometry, capacity, layout);
  if (!store.ok()) return fail(store.status());
  harness->store_ = *std::move(store);
  if (!has_draft) return harness;
  auto loaded = load_draft(options.draft, directory, *harness->model_, *harness->device_,
                           {.max_query_rows = options.max_query_rows,
                            .max_blocks = options.max_query_rows,
                            .max_context = options.max_context,
                            .page_dtype = page_dtype,
                            .confidence_temperatures = options.confidence_temperatures});
  if (!loaded.ok()) return fail(loaded.status());
  harness->draft_ = *std::move(loaded);
  return harness;
}

HarnessSequence ModelHarness::start(std::vector<TokenId> tokens, int64_t max_tokens) {
  HarnessSequence sequence;
  sequence.tokens = std::move(tokens);
  auto memory = kv_->admit(max_tokens);
  if (!memory.has_value()) {
    ADD_FAILURE() << "no memory for " << max_tokens << " tokens";
    return sequence;
  }
  sequence.memory = *std::move(memory);
  return sequence;
}

std::vector<float> ModelHarness::run(std::vector<HarnessSequence*>& sequences,
                                     const std::vector<int64_t>& num_tokens, bool all_logits,
                                     TapObserver* taps) {
  store_->apply(kv_->take_retired_blocks(), kv_->rebalance(), kv_->take_restores());
  std::vector<TokenId> tokens;
  std::vector<int32_t> logit_rows, next_tokens;
  host_positions_.clear();
  host_sequence_of_row_.clear();
  int64_t width = 1;
  for (const HarnessSequence* sequence : sequences) {
    width = std::max<int64_t>(width, std::ssize(sequence->memory.blocks()));
  }
  const auto table_size = sequences.size() * width;
  std::vector<int32_t> blocks(table_size, -1), items(table_size, -1), pages(table_size, -1);
  for (size_t s = 0; s < sequences.size(); ++s) {
    HarnessSequence& sequence = *sequences[s];
    for (int64_t i = 0; i < std::ssize(sequence.memory.blocks()); ++i) {
      blocks[s * width + i] = sequence.memory.blocks()[i].value;
      items[s * width + i] = sequence.memory.index_items()[i];
    }
    std::copy(sequence.memory.draft_pages().begin(), sequence.memory.draft_pages().end(),
              pages.begin() + static_cast<int64_t>(s) * width);
    for (int64_t i = 0; i < num_tokens[s]; ++i) {
      const int64_t position = sequence.num_computed + i;
      tokens.push_back(sequence.tokens.at(position));
      next_tokens.push_back(
          position + 1 < std::ssize(sequence.tokens) ? sequence.tokens[position + 1] : TokenId{0});
      host_positions_.push_back(static_cast<int32_t>(position));
      host_sequence_of_row_.push_back(static_cast<int32_t>(s));
      sequence.latest_row = static_cast<int32_t>(tokens.size()) - 1;
      if (all_logits || i + 1 == num_tokens[s]) logit_rows.push_back(sequence.latest_row);
    }
    sequence.num_computed += num_tokens[s];
  }
  tables_.clear();
  tables_.reserve(8);
  auto upload = [&](const std::vector<int32_t>& table) {
    return static_cast<const int32_t*>(tables_.emplace_back(table).data());
  };
  rows_ = {.sequence_of_row = view(upload(host_sequence_of_row_), tokens.size()),
           .positions = view(upload(host_positions_), tokens.size()),
           .block_table = view(upload(blocks), sequences.size(), width),
           .item_table = view(upload(items), sequences.size(), width),
           .page_table = {},
           .host_sequence_of_row = host_sequence_of_row_,
           .host_positions = host_positions_};
  if (store_->layout().draft_page.num_layers > 0) {
    rows_.page_table = view(upload(pages), sequences.size(), width);
  }
  const TokenBatch batch{.tokens = view(upload(tokens), tokens.size()),
                         .rows = rows_,
                         .logit_rows = view(upload(logit_rows), logit_rows.size())};
  store_->begin_step(batch.rows);
  model_->forward(batch, *store_, taps);
  if (draft_ != nullptr) {
    draft_->append({rows_, view(upload(next_tokens), next_tokens.size()), model_->taps()}, *store_);
  }
  device_->synchronize();
  const auto logits = model_->logits();
  return {logits.data, logits.data + logits.sizes[0] * logits.sizes[1]};
}

namespace {

// Row b of the result: rows [b * rows_per_block, ...) of the table.
template <class T>
std::vector<std::vector<T>> by_block(const std::vector<T>& table, int64_t num_blocks) {
  std::vector<std::vector<T>> rows;
  const auto size = static_cast<int64_t>(table.size()) / num_blocks;
  for (int64_t b = 0; b < num_blocks; ++b) {
    rows.emplace_back(table.begin() + b * size, table.begin() + (b + 1) * size);
  }
  return rows;
}

}  // namespace

HarnessProposals ModelHarness::propose(std::vector<HarnessSequence*> sequences, float temperature,
                                       uint64_t seed) {
  const DraftDescription& draft = draft_->description();
  const auto n = std::ssize(sequences);
  std::vector<int32_t> anchors, positions, rows_before, sequence_of_block, ends;
  std::vector<ProposalSampling> sampling(n, {.temperature = temperature, .seed = seed});
  for (HarnessSequence* sequence : sequences) {
    anchors.push_back(sequence->tokens.at(sequence->num_computed));
    positions.push_back(static_cast<int32_t>(sequence->num_computed));
    rows_before.push_back(sequence->latest_row);
    ends.push_back(static_cast<int32_t>(sequence->memory.device_tokens()));
    sequence_of_block.push_back(static_cast<int32_t>(sequence_of_block.size()));
  }
  const int64_t rows = n * draft.num_proposals;
  const int64_t width =
      draft.kind == ProposalKind::kDense ? description().vocab_size : int64_t{draft.num_candidates};
  const test::DeviceArray<int32_t> device_anchors(anchors), device_positions(positions),
      device_rows(rows_before), device_sequences(sequence_of_block), device_ends(ends);
  const test::DeviceArray<ProposalSampling> device_sampling(sampling);
  const test::DeviceArray<int32_t> drafts(rows, -1), candidates(rows * draft.num_candidates, -1);
  const test::DeviceArray<float> confidence(rows, -1), probabilities(rows * width, -1);
  draft_->propose({.anchors = view<const int32_t>(device_anchors.data(), n),
                   .anchor_positions = view<const int32_t>(device_positions.data(), n),
                   .row_before_anchor = view<const int32_t>(device_rows.data(), n),
                   .sequence_of_block = view<const int32_t>(device_sequences.data(), n),
                   .end_positions = view<const int32_t>(device_ends.data(), n),
                   .sampling = view(device_sampling.data(), n),
                   .host_sequence_of_block = sequence_of_block,
                   .host_most_positions = positions,
                   .num_wanted = draft.num_proposals},
                  *store_,
                  {.drafts = view(drafts.data(), n, int64_t{draft.num_proposals}),
                   .confidence = view(confidence.data(), n, int64_t{draft.num_proposals}),
                   .candidates = view(candidates.data(), rows, int64_t{draft.num_candidates}),
                   .probabilities = view(probabilities.data(), rows, width)});
  device_->synchronize();
  return {.drafts = by_block(drafts.download(), n),
          .confidence = by_block(confidence.download(), n),
          .candidates = by_block(candidates.download(), n),
          .probabilities = by_block(probabilities.download(), n)};
}

std::vector<std::vector<float>> ModelHarness::step(std::vector<HarnessSequence*> sequences,
                                                   std::vector<int64_t> num_tokens,
                                                   TapObserver* taps) {
  const std::vector<float> flat = run(sequences, num_tokens, false, taps);
  const auto vocab = static_cast<int64_t>(flat.size() / sequences.size());
  std::vector<std::vector<float>> logits;
  for (size_t s = 0; s < sequences.size(); ++s) {
    logits.emplace_back(flat.begin() + s * vocab, flat.begin() + (s + 1) * vocab);
  }
  return logits;
}

std::vector<float> ModelHarness::step_all_logits(HarnessSequence& sequence, int64_t num_tokens,
                                                 TapObserver* taps) {
  std::vector<HarnessSequence*> sequences = {&sequence};
  return run(sequences, {num_tokens}, true, taps);
}

TokenId argmax(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace dhs
