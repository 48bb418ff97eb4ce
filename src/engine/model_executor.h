// Runs steps on a device: batch tables, forward pass, draws.
#pragma once

#include <memory>
#include <vector>

#include "dhisparse/device.h"
#include "dhisparse/model.h"
#include "dhisparse/store.h"
#include "engine/executor.h"
#include "kernels/sampling/sampling.h"

namespace dhs {

class ModelExecutor final : public Executor {
 public:
  ModelExecutor(std::unique_ptr<Device> device, std::unique_ptr<KvStore> store,
                std::unique_ptr<TargetModel> model, const EngineConfig& config);

  absl::StatusOr<StepResult> execute(const StepPlan& plan) override;
  void describe(EngineState& state) const override;

  // For tests: bytes of both tiers, and taps on the next forward passes.
  KvStore& store() { return *store_; }

 private:
  void lay_out_batch(const StepPlan& plan);
  void draw(const StepPlan& plan, StepResult& result);
  TokenBatch batch() const;

  std::unique_ptr<Device> device_;
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<TargetModel> model_;

  // Tables of one step, kept to reuse their memory.
  int64_t max_num_blocks_ = 0;  // widest block table of the step
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> sequence_of_row_;
  std::vector<int32_t> block_table_;
  std::vector<int32_t> item_table_;
  std::vector<int32_t> logit_rows_;
  std::vector<RowSampling> row_sampling_;
  std::vector<TokenId> drawn_;
  std::vector<float> drawn_logprobs_;
  std::vector<int32_t> top_tokens_;
  std::vector<float> top_logprobs_;
};

}  // namespace dhs
