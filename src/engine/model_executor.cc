#include "engine/model_executor.h"

#include <algorithm>

namespace dhs {

ModelExecutor::ModelExecutor(std::unique_ptr<Device> device, std::unique_ptr<KvStore> store,
                             std::unique_ptr<TargetModel> model, const EngineConfig& config)
    : device_(std::move(device)), store_(std::move(store)), model_(std::move(model)) {
  const int64_t max_rows = config.scheduler.max_batched_tokens;
  const int64_t max_draws = config.scheduler.max_running;
  tokens_.reserve(max_rows);
  positions_.reserve(max_rows);
  sequence_of_row_.reserve(max_rows);
  logit_rows_.reserve(max_draws);
  row_sampling_.reserve(max_draws);
  drawn_.reserve(max_draws);
  drawn_logprobs_.reserve(max_draws);
  top_tokens_.reserve(max_draws * config.limits.max_logprobs);
  top_logprobs_.reserve(max_draws * config.limits.max_logprobs);
}

absl::StatusOr<StepResult> ModelExecutor::execute(const StepPlan& plan) {
  store_->apply(plan.retired_blocks, plan.chunk_moves);
  StepResult result;
  if (plan.work.empty()) return result;
  lay_out_batch(plan);
  const TokenBatch step = batch();
  store_->begin_step(step.rows);
  model_->forward(step, *store_, nullptr);
  result.sequences.resize(plan.work.size());
  for (size_t i = 0; i < plan.work.size(); ++i) {
    result.sequences[i].rows_selected = store_->selected_of_sequence()[i];
    result.sequences[i].rows_fetched = store_->missed_of_sequence()[i];
  }
  draw(plan, result);
  return result;
}

void ModelExecutor::lay_out_batch(const StepPlan& plan) {
  tokens_.clear();
  positions_.clear();
  sequence_of_row_.clear();
  logit_rows_.clear();
  max_num_blocks_ = 0;
  for (const SequenceWork& work : plan.work) {
    const auto sequence = static_cast<int32_t>(&work - plan.work.data());
    for (size_t i = 0; i < work.tokens.size(); ++i) {
      tokens_.push_back(work.tokens[i]);
      positions_.push_back(work.first_position + static_cast<int32_t>(i));
      sequence_of_row_.push_back(sequence);
    }
    if (work.wants_token) logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    const int64_t num_tokens = work.first_position + static_cast<int64_t>(work.tokens.size());
    max_num_blocks_ = std::max(max_num_blocks_, ceil_div(num_tokens, kHostBlockTokens));
  }
  block_table_.assign(plan.work.size() * max_num_blocks_, -1);
  item_table_.assign(plan.work.size() * max_num_blocks_, -1);
  for (size_t sequence = 0; sequence < plan.work.size(); ++sequence) {
    const SequenceMemory& memory = *plan.work[sequence].memory;
    const auto count = std::min<int64_t>(max_num_blocks_, std::ssize(memory.blocks()));
    for (int64_t i = 0; i < count; ++i) {
      block_table_[sequence * max_num_blocks_ + i] = memory.blocks()[i].value;
      item_table_[sequence * max_num_blocks_ + i] = memory.index_items()[i];
    }
  }
}

TokenBatch ModelExecutor::batch() const {
  const auto num_rows = std::ssize(tokens_);
  const int64_t num_sequences = std::ssize(block_table_) / max_num_blocks_;
  return {.tokens = view(tokens_.data(), num_rows),
          .rows = {.sequence_of_row = view(sequence_of_row_.data(), num_rows),
                   .positions = view(positions_.data(), num_rows),
                   .block_table = view(block_table_.data(), num_sequences, max_num_blocks_),
                   .item_table = view(item_table_.data(), num_sequences, max_num_blocks_)},
          .logit_rows = view(logit_rows_.data(), std::ssize(logit_rows_))};
}

void ModelExecutor::draw(const StepPlan& plan, StepResult& result) {
  row_sampling_.clear();
  int64_t most_logprobs = 0;
  for (const SequenceWork& work : plan.work) {
    if (!work.wants_token) continue;
    const SamplingParams& sampling = *work.sampling;
    row_sampling_.push_back(
        {.temperature = sampling.temperature,
         .top_p = sampling.top_p,
         .min_p = sampling.min_p,
         .top_k = sampling.top_k,
         .seed = work.seed,
         .sequence_idx = 0,
         .position = static_cast<uint32_t>(work.first_position + work.tokens.size()),
         .num_logprobs = sampling.num_top_logprobs,
         .masked_tokens = work.masked_tokens.data(),
         .num_masked_tokens = static_cast<int32_t>(work.masked_tokens.size())});
    most_logprobs = std::max<int64_t>(most_logprobs, sampling.num_top_logprobs);
  }
  const auto num_draws = std::ssize(row_sampling_);
  drawn_.resize(num_draws);
  drawn_logprobs_.resize(num_draws);
  top_tokens_.resize(num_draws * most_logprobs);
  top_logprobs_.resize(num_draws * most_logprobs);
  launch_sampling({.logits = model_->logits(),
                   .rows = view<const RowSampling>(row_sampling_.data(), num_draws),
                   .tokens = view(drawn_.data(), num_draws),
                   .logprobs = view(drawn_logprobs_.data(), num_draws),
                   .top_tokens = view(top_tokens_.data(), num_draws, most_logprobs),
                   .top_logprobs = view(top_logprobs_.data(), num_draws, most_logprobs)},
                  device_->stream());
  device_->synchronize();

  int64_t drawn = 0;
  for (size_t i = 0; i < plan.work.size(); ++i) {
    if (!plan.work[i].wants_token) continue;
    TokenOutput output{drawn_[drawn], drawn_logprobs_[drawn], {}};
    for (int64_t j = 0; j < plan.work[i].sampling->num_top_logprobs; ++j) {
      const int64_t at = drawn * most_logprobs + j;
      if (top_tokens_[at] >= 0) output.top.push_back({top_tokens_[at], top_logprobs_[at]});
    }
    result.sequences[i].tokens.push_back(std::move(output));
    ++drawn;
  }
}

void ModelExecutor::describe(EngineState& state) const {
  state.device = device_->description();
  const KvGeometry& geometry = store_->geometry();
  state.groups.resize(geometry.groups.size());
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    const RowCacheCounters& counters = store_->counters()[g];
    GroupState& group = state.groups[g];
    group.first_layer = geometry.groups[g].first_layer;
    group.num_layers = geometry.groups[g].num_layers;
    group.record_bytes = geometry.groups[g].record_bytes;
    group.capacity_rows = store_->capacity_rows(g);
    group.resident_rows = store_->resident_rows(g);
    group.rows_selected = counters.resolve.selected;
    group.rows_hit = counters.resolve.hit;
    group.rows_missed = counters.resolve.missed;
    group.fetched_bytes = counters.fetched_bytes;
    group.rows_evicted = counters.resolve.evicted;
    group.rows_released = counters.released;
  }
}

}  // namespace dhs
