#include "engine/batch_tables.h"

#include <algorithm>

namespace dhs {

absl::StatusOr<BatchTables> BatchTables::create(Device& device, const BatchLimits& limits) {
  BatchTables tables;
  tables.device_handle_ = &device;
  tables.limits_ = limits;
  auto carve_with = [&](auto lay_out) {
    return carve(device, [&](ArenaCarver& carver) { (tables.*lay_out)(carver); });
  };
  DHS_ASSIGN_OR_RETURN(tables.inputs_, carve_with(&BatchTables::lay_out_inputs));
  DHS_ASSIGN_OR_RETURN(tables.results_, carve_with(&BatchTables::lay_out_results));
  DHS_ASSIGN_OR_RETURN(tables.host_results_, device.allocate_host(2 * tables.results_.bytes()));
  // Every table once, and three rows of the block tables per request, each rounded up.
  constexpr int64_t kRounding = 64;
  const int64_t upload_bytes = tables.inputs_.bytes() + (3 * limits.max_sequences + 16) * kRounding;
  DHS_ASSIGN_OR_RETURN(tables.uploader_, Uploader::create(device, upload_bytes));
  tables.version_of_row_.resize(limits.max_sequences);
  for (auto* rows :
       {&tables.tokens_, &tables.positions_, &tables.sequence_of_row_, &tables.draw_of_row_}) {
    rows->reserve(limits.max_rows);
  }
  tables.logit_rows_.reserve(limits.max_sequences);
  tables.row_sampling_.reserve(limits.max_sequences);
  tables.masked_tokens_.reserve(limits.max_sequences * limits.max_masked);
  tables.block_row_.resize(limits.max_num_blocks);
  return tables;
}

void BatchTables::lay_out_inputs(ArenaCarver& carver) {
  auto take_blocks = [&] {
    return view(carver.take<int32_t>(limits_.max_sequences * limits_.max_num_blocks).data,
                limits_.max_sequences, limits_.max_num_blocks);
  };
  device_.tokens = carver.take<int32_t>(limits_.max_rows);
  device_.positions = carver.take<int32_t>(limits_.max_rows);
  device_.sequence_of_row = carver.take<int32_t>(limits_.max_rows);
  device_.draw_of_row = carver.take<int32_t>(limits_.max_rows);
  device_.logit_rows = carver.take<int32_t>(limits_.max_sequences);
  device_.row_sampling = carver.take<RowSampling>(limits_.max_sequences);
  device_.masked_tokens = carver.take<int32_t>(limits_.max_sequences * limits_.max_masked);
  device_.block_table = take_blocks();
  device_.item_table = take_blocks();
  if (limits_.has_draft_pages) device_.page_table = take_blocks();
}

void BatchTables::lay_out_results(ArenaCarver& carver) {
  const int64_t draws = limits_.max_sequences;
  const int64_t top = draws * limits_.max_logprobs;
  device_.drawn = carver.take<int32_t>(draws);
  device_.logprobs = carver.take<float>(draws);
  device_.top_tokens = view(carver.take<int32_t>(top).data, draws, limits_.max_logprobs);
  device_.top_logprobs = view(carver.take<float>(top).data, draws, limits_.max_logprobs);
}

// ---- A step's inputs ----------------------------------------------------------------------------

void BatchTables::lay_out(const RankPlan& plan, int64_t num_rows) {
  uploader_.begin_step();
  for (auto* table :
       {&tokens_, &positions_, &sequence_of_row_, &draw_of_row_, &logit_rows_, &masked_tokens_}) {
    table->clear();
  }
  row_sampling_.clear();
  for (const SequenceWork& work : plan.work) {
    upload_blocks(*work.memory);
    add_rows(work);
    if (work.wants_token) add_draw(work);
  }
  const int64_t num_padding = num_rows - std::ssize(positions_);
  DHS_CHECK(num_padding >= 0 && num_rows <= limits_.max_rows, "step of ", positions_.size(),
            " rows laid out as ", num_rows, ", limit ", limits_.max_rows);
  tokens_.insert(tokens_.end(), num_padding, 0);
  positions_.insert(positions_.end(), num_padding, -1);
  sequence_of_row_.insert(sequence_of_row_.end(), num_padding, 0);
  draw_of_row_.insert(draw_of_row_.end(), num_padding, -1);
  logit_rows_.insert(logit_rows_.end(), num_padding, -1);
  row_sampling_.insert(row_sampling_.end(), num_padding, RowSampling{});
  const Stream stream = device_handle_->stream();
  auto upload = [&](const auto& table, auto* to) {
    uploader_.upload(std::span(table), to, stream);
  };
  upload(tokens_, device_.tokens.data);
  upload(positions_, device_.positions.data);
  upload(sequence_of_row_, device_.sequence_of_row.data);
  upload(draw_of_row_, device_.draw_of_row.data);
  upload(logit_rows_, device_.logit_rows.data);
  upload(row_sampling_, device_.row_sampling.data);
  upload(masked_tokens_, device_.masked_tokens.data);
}

void BatchTables::add_rows(const SequenceWork& work) {
  for (size_t i = 0; i < work.tokens.size(); ++i) {
    tokens_.push_back(work.tokens[i]);
    positions_.push_back(work.first_position + static_cast<int32_t>(i));
    sequence_of_row_.push_back(work.memory->index());
    draw_of_row_.push_back(-1);
  }
  if (work.previous_draw.has_value()) draw_of_row_.back() = *work.previous_draw;
}

void BatchTables::add_draw(const SequenceWork& work) {
  DHS_CHECK(std::ssize(logit_rows_) < limits_.max_sequences &&
                std::ssize(work.masked_tokens) <= limits_.max_masked,
            "more than ", limits_.max_sequences, " draws, or ", work.masked_tokens.size(),
            " masked tokens");
  const SamplingParams& sampling = *work.sampling;
  const auto first_masked = std::ssize(masked_tokens_);
  masked_tokens_.insert(masked_tokens_.end(), work.masked_tokens.begin(), work.masked_tokens.end());
  logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
  row_sampling_.push_back(
      {.temperature = sampling.temperature,
       .top_p = sampling.top_p,
       .min_p = sampling.min_p,
       .top_k = sampling.top_k,
       .seed = work.seed,
       .sequence_idx = 0,
       .position = static_cast<uint32_t>(work.first_position + work.tokens.size()),
       .num_logprobs = sampling.num_top_logprobs,
       .masked_tokens = device_.masked_tokens.data + first_masked,
       .num_masked_tokens = static_cast<int32_t>(work.masked_tokens.size())});
}

void BatchTables::upload_blocks(const SequenceMemory& memory) {
  const int32_t row = memory.index();
  DHS_CHECK(row >= 0 && row < limits_.max_sequences, "request index ", row, ", limit ",
            limits_.max_sequences);
  if (version_of_row_[row] == memory.version()) return;
  version_of_row_[row] = memory.version();
  const auto count = std::ssize(memory.blocks());
  DHS_CHECK(count <= limits_.max_num_blocks, count, " blocks, limit ", limits_.max_num_blocks);
  const Stream stream = device_handle_->stream();
  std::transform(memory.blocks().begin(), memory.blocks().end(), block_row_.begin(),
                 [](HostBlockId block) { return block.value; });
  uploader_.upload(std::span<const int32_t>(block_row_.data(), count), device_.block_table.row(row),
                   stream);
  uploader_.upload(memory.index_items(), device_.item_table.row(row), stream);
  if (limits_.has_draft_pages) {
    uploader_.upload(memory.draft_pages(), device_.page_table.row(row), stream);
  }
}

TokenBatch BatchTables::batch() const {
  const int64_t rows = num_rows();
  return {.tokens = used(device_.tokens, rows),
          .rows = {.sequence_of_row = used(device_.sequence_of_row, rows),
                   .positions = used(device_.positions, rows),
                   .block_table = device_.block_table,
                   .item_table = device_.item_table,
                   .page_table = device_.page_table,
                   .host_sequence_of_row = sequence_of_row_,
                   .host_positions = positions_},
          .logit_rows = used(device_.logit_rows, num_draws())};
}

// ---- Results ------------------------------------------------------------------------------------

BatchSamplingParams BatchTables::sampling(TensorView<const float, 2> logits) const {
  const int64_t draws = num_draws();
  return {.logits = logits,
          .rows = used(device_.row_sampling, draws),
          .tokens = used(device_.drawn, draws),
          .logprobs = used(device_.logprobs, draws),
          .top_tokens = view(device_.top_tokens.data, draws, limits_.max_logprobs),
          .top_logprobs = view(device_.top_logprobs.data, draws, limits_.max_logprobs)};
}

void BatchTables::queue_results(int place) {
  device_handle_->copy(host_results_.data() + place * results_.bytes(), results_.data(),
                       results_.bytes(), device_handle_->stream());
}

template <class T>
const T& BatchTables::in_place(int place, const T& original) const {
  const int64_t offset = reinterpret_cast<const std::byte*>(&original) - results_.data();
  return *reinterpret_cast<const T*>(host_results_.data() + place * results_.bytes() + offset);
}

TokenOutput BatchTables::result(int place, int64_t draw, int32_t num_logprobs) const {
  TokenOutput output{
      in_place(place, device_.drawn(draw)), in_place(place, device_.logprobs(draw)), {}};
  for (int64_t i = 0; i < num_logprobs; ++i) {
    const int32_t token = in_place(place, device_.top_tokens(draw, i));
    if (token < 0) break;
    output.top.push_back({token, in_place(place, device_.top_logprobs(draw, i))});
  }
  return output;
}

}  // namespace dhs
