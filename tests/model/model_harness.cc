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
  auto model = load_target_model(directory, *harness->device_,
                                 {.precision = options.precision,
                                  .max_query_rows = options.max_query_rows,
                                  .max_logit_rows = options.max_query_rows,
                                  .max_context = options.max_context});
  if (!model.ok()) return fail(model.status());
  harness->model_ = *std::move(model);
  const ModelDescription& description = harness->model_->description();
  StoreLayout layout;
  layout.row = {options.row_format, description.latent_dim, description.rope_dim};
  layout.index_key = {options.index_format, description.index_dim, kHostBlockTokens};
  layout.max_query_rows = options.max_query_rows;
  layout.max_sequences = options.max_query_rows;
  const KvGeometry geometry = make_geometry(description.layers_per_group, layout.row.row_bytes(),
                                            layout.index_key.page_bytes(), description.top_k);
  const KvCapacity capacity{options.num_host_blocks, options.num_chunks, options.chunk_bytes};
  harness->kv_ = std::make_unique<KvManager>(geometry, capacity, options.residency);
  auto store = KvStore::create(*harness->device_, geometry, capacity, layout);
  if (!store.ok()) return fail(store.status());
  harness->store_ = *std::move(store);
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
  std::vector<int32_t> positions, sequence_of_row, logit_rows;
  int64_t width = 1;
  for (const HarnessSequence* sequence : sequences) {
    width = std::max<int64_t>(width, std::ssize(sequence->memory.blocks()));
  }
  std::vector<int32_t> blocks(sequences.size() * width, -1), pages(sequences.size() * width, -1);
  for (size_t s = 0; s < sequences.size(); ++s) {
    HarnessSequence& sequence = *sequences[s];
    for (int64_t i = 0; i < std::ssize(sequence.memory.blocks()); ++i) {
      blocks[s * width + i] = sequence.memory.blocks()[i].value;
      pages[s * width + i] = sequence.memory.index_items()[i];
    }
    for (int64_t i = 0; i < num_tokens[s]; ++i) {
      const int64_t position = sequence.num_computed + i;
      tokens.push_back(sequence.tokens.at(position));
      positions.push_back(static_cast<int32_t>(position));
      sequence_of_row.push_back(static_cast<int32_t>(s));
      if (all_logits || i + 1 == num_tokens[s]) {
        logit_rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
      }
    }
    sequence.num_computed += num_tokens[s];
  }
  std::vector<test::DeviceArray<int32_t>> on_device;
  auto upload = [&](const std::vector<int32_t>& table) {
    return static_cast<const int32_t*>(on_device.emplace_back(table).data());
  };
  const TokenBatch batch{.tokens = view(upload(tokens), tokens.size()),
                         .rows = {.sequence_of_row = view(upload(sequence_of_row), tokens.size()),
                                  .positions = view(upload(positions), tokens.size()),
                                  .block_table = view(upload(blocks), sequences.size(), width),
                                  .item_table = view(upload(pages), sequences.size(), width),
                                  .host_sequence_of_row = sequence_of_row,
                                  .host_positions = positions},
                         .logit_rows = view(upload(logit_rows), logit_rows.size())};
  store_->begin_step(batch.rows);
  model_->forward(batch, *store_, taps);
  device_->synchronize();
  const auto logits = model_->logits();
  return {logits.data, logits.data + logits.sizes[0] * logits.sizes[1]};
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
