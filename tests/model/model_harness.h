// A target model with both memory tiers, on the CPU or an emulated GPU, driven without scheduler or
// engine.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dhisparse/device.h"
#include "dhisparse/draft.h"
#include "dhisparse/kv.h"
#include "dhisparse/model.h"
#include "dhisparse/store.h"
#include "kernels/test_memory.h"

namespace dhs {

struct HarnessOptions {
  RowFormat row_format = RowFormat::kF32;
  RowFormat index_format = RowFormat::kF32;
  MathPrecision precision = MathPrecision::kF32;
  ResidencyConfig residency;
  int32_t num_chunks = 64;
  int64_t chunk_bytes = 64 << 10;
  int32_t num_host_blocks = 64;
  int64_t max_query_rows = 256;
  int64_t max_context = 512;
  DraftConfig draft;  // kind kNone: without
  std::vector<float> confidence_temperatures;
};

// One sequence in flight: its tokens so far and its memory.
struct HarnessSequence {
  std::vector<TokenId> tokens;
  int64_t num_computed = 0;
  int32_t latest_row = -1;  // its last one in the latest step
  SequenceMemory memory;
};

// What a draft proposed to follow each sequence's next token, by sequence.
struct HarnessProposals {
  std::vector<std::vector<int32_t>> drafts;       // [num_proposals]
  std::vector<std::vector<float>> confidence;     // [num_proposals]
  std::vector<std::vector<int32_t>> candidates;   // [num_proposals * K]
  std::vector<std::vector<float>> probabilities;  // [num_proposals * K, or vocab]
};

class ModelHarness {
 public:
  // Fails the calling test and returns null when the model does not load.
  static std::unique_ptr<ModelHarness> load(const std::string& directory,
                                            const HarnessOptions& options);

  HarnessSequence start(std::vector<TokenId> tokens, int64_t max_tokens);

  // Computes the next `num_tokens` tokens of every sequence in one step; the logits of each
  // sequence's last row come back.
  std::vector<std::vector<float>> step(std::vector<HarnessSequence*> sequences,
                                       std::vector<int64_t> num_tokens,
                                       TapObserver* taps = nullptr);
  // One sequence, logits of all its rows.
  std::vector<float> step_all_logits(HarnessSequence& sequence, int64_t num_tokens,
                                     TapObserver* taps = nullptr);

  // One block for each sequence, behind its next token: all those of the latest step, in its order.
  HarnessProposals propose(std::vector<HarnessSequence*> sequences, float temperature = 0,
                           uint64_t seed = 0);

  const DraftDescription& draft() const { return draft_->description(); }
  TargetModel& target() { return *model_; }
  Device& device() { return *device_; }
  const ModelDescription& description() const { return model_->description(); }
  KvManager& kv() { return *kv_; }
  KvStore& store() { return *store_; }

 private:
  std::vector<float> run(std::vector<HarnessSequence*>& sequences,
                         const std::vector<int64_t>& num_tokens, bool all_logits,
                         TapObserver* taps);

  std::unique_ptr<Device> device_;
  std::unique_ptr<KvManager> kv_;
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<TargetModel> model_;
  std::unique_ptr<Draft> draft_;
  // Of the latest step, in device memory.
  std::vector<test::DeviceArray<int32_t>> tables_;
  QueryRows rows_;
  std::vector<int32_t> host_positions_, host_sequence_of_row_;
};

// The token with the largest logit, ties to the lowest.
TokenId argmax(const std::vector<float>& logits);

}  // namespace dhs
