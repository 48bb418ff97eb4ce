#include "engine/batch_tables.h"

#include <algorithm>

#include "engine/row_adjustments.h"

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
  for (auto* rows : {&tables.tokens_, &tables.positions_, &tables.sequence_of_row_,
                     &tables.draw_of_row_, &tables.next_tokens_}) {
    rows->reserve(limits.max_rows);
  }
  tables.logit_rows_.reserve(limits.max_logit_rows);
  tables.drafts_.reserve(limits.max_logit_rows);
  tables.row_sampling_.reserve(limits.max_logit_rows);
  for (auto* draws : {&tables.first_row_, &tables.position_of_draw_, &tables.sequence_of_draw_,
                      &tables.end_of_draw_, &tables.most_positions_}) {
    draws->reserve(limits.max_sequences + 1);
  }
  tables.proposal_sampling_.reserve(limits.max_sequences);
  tables.masked_tokens_.reserve(limits.max_sequences * limits.max_masked);
  tables.drafts_before_.reserve(limits.max_logit_rows);
  tables.adjustments_.reserve(limits.max_logit_rows * limits.max_adjusted);
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
  device_.next_tokens = carver.take<int32_t>(limits_.max_rows);
  device_.logit_rows = carver.take<int32_t>(limits_.max_logit_rows);
  device_.drafts = carver.take<int32_t>(limits_.max_logit_rows);
  device_.row_sampling = carver.take<RowSampling>(limits_.max_logit_rows);
  device_.first_row = carver.take<int32_t>(limits_.max_sequences + 1);
  device_.position_of_draw = carver.take<int32_t>(limits_.max_sequences);
  device_.sequence_of_draw = carver.take<int32_t>(limits_.max_sequences);
  device_.end_of_draw = carver.take<int32_t>(limits_.max_sequences);
  device_.proposal_sampling = carver.take<ProposalSampling>(limits_.max_sequences);
  device_.masked_tokens = carver.take<int32_t>(limits_.max_sequences * limits_.max_masked);
  device_.adjustments = carver.take<LogitAdjustment>(limits_.max_logit_rows * limits_.max_adjusted);
  device_.block_table = take_blocks();
  device_.item_table = take_blocks();
  if (limits_.has_draft_pages) device_.page_table = take_blocks();
}

void BatchTables::lay_out_results(ArenaCarver& carver) {
  const int64_t draws = limits_.max_sequences;
  const int64_t rows = limits_.max_logit_rows;
  const int64_t top = rows * limits_.max_logprobs;
  device_.newest = carver.take<int32_t>(draws);
  device_.newest_position = carver.take<int32_t>(draws);
  device_.num_accepted = carver.take<int32_t>(draws);
  device_.row_before_anchor = carver.take<int32_t>(draws);
  device_.drawn = carver.take<int32_t>(rows);
  device_.logprobs = carver.take<float>(rows);
  device_.top_tokens = view(carver.take<int32_t>(top).data, rows, limits_.max_logprobs);
  device_.top_logprobs = view(carver.take<float>(top).data, rows, limits_.max_logprobs);
}

// ---- A step's inputs ----------------------------------------------------------------------------

void BatchTables::lay_out(const RankPlan& plan, int64_t num_rows, const DrawnFromOf& drawn_from) {
  uploader_.begin_step();
  for (auto* table : {&tokens_, &positions_, &sequence_of_row_, &draw_of_row_, &next_tokens_,
                      &logit_rows_, &drafts_, &first_row_, &position_of_draw_, &sequence_of_draw_,
                      &end_of_draw_, &most_positions_, &masked_tokens_}) {
    table->clear();
  }
  row_sampling_.clear();
  adjustments_.clear();
  proposal_sampling_.clear();
  num_wanted_ = 0;
  for (const SequenceWork& work : plan.work) {
    upload_blocks(*work.memory);
    add_rows(work);
    if (work.wants_token) {
      add_draw(work, work.num_draft_tokens > 0 ? drawn_from(work) : DrawnFrom{});
    }
    num_wanted_ = std::max(num_wanted_, work.num_tokens_to_draft);
  }
  add_padding(num_rows);
  first_row_.push_back(static_cast<int32_t>(logit_rows_.size()));
  upload_tables();
}

// Rows at no position, each with a draw that nobody reads.
void BatchTables::add_padding(int64_t num_rows) {
  const int64_t num_padding = num_rows - std::ssize(positions_);
  DHS_CHECK(num_padding >= 0 && num_rows <= limits_.max_rows, "step of ", positions_.size(),
            " rows laid out as ", num_rows, ", limit ", limits_.max_rows);
  tokens_.insert(tokens_.end(), num_padding, 0);
  next_tokens_.insert(next_tokens_.end(), num_padding, 0);
  positions_.insert(positions_.end(), num_padding, -1);
  sequence_of_row_.insert(sequence_of_row_.end(), num_padding, 0);
  draw_of_row_.insert(draw_of_row_.end(), num_padding, -1);
  for (int64_t i = 0; i < num_padding; ++i) {
    first_row_.push_back(static_cast<int32_t>(logit_rows_.size()));
    logit_rows_.push_back(-1);
  }
  drafts_.insert(drafts_.end(), num_padding, -1);
  row_sampling_.insert(row_sampling_.end(), num_padding, RowSampling{});
  position_of_draw_.insert(position_of_draw_.end(), num_padding, -1);
  end_of_draw_.insert(end_of_draw_.end(), num_padding, 0);
  most_positions_.insert(most_positions_.end(), num_padding, -1);
  sequence_of_draw_.insert(sequence_of_draw_.end(), num_padding, 0);
  proposal_sampling_.insert(proposal_sampling_.end(), num_padding, ProposalSampling{});
}

void BatchTables::upload_tables() {
  const Stream stream = device_handle_->stream();
  auto upload = [&](const auto& table, auto* to) {
    uploader_.upload(std::span(table), to, stream);
  };
  upload(tokens_, device_.tokens.data);
  upload(positions_, device_.positions.data);
  upload(sequence_of_row_, device_.sequence_of_row.data);
  upload(draw_of_row_, device_.draw_of_row.data);
  upload(next_tokens_, device_.next_tokens.data);
  upload(logit_rows_, device_.logit_rows.data);
  upload(drafts_, device_.drafts.data);
  upload(row_sampling_, device_.row_sampling.data);
  upload(first_row_, device_.first_row.data);
  upload(position_of_draw_, device_.position_of_draw.data);
  upload(sequence_of_draw_, device_.sequence_of_draw.data);
  upload(end_of_draw_, device_.end_of_draw.data);
  upload(proposal_sampling_, device_.proposal_sampling.data);
  upload(masked_tokens_, device_.masked_tokens.data);
  upload(adjustments_, device_.adjustments.data);
}

void BatchTables::add_rows(const SequenceWork& work) {
  for (size_t i = 0; i < work.tokens.size(); ++i) {
    tokens_.push_back(work.tokens[i]);
    positions_.push_back(work.first_position + static_cast<int32_t>(i));
    sequence_of_row_.push_back(work.memory->index());
    draw_of_row_.push_back(-1);
    next_tokens_.push_back(i + 1 < work.tokens.size() ? work.tokens[i + 1] : work.next_token);
  }
  if (work.previous_draw.has_value()) draw_of_row_.back() = *work.previous_draw;
}

// A draw has a row for each draft that it verifies, and one for the token behind them.
void BatchTables::add_draw(const SequenceWork& work, const DrawnFrom& drawn_from) {
  const int64_t num_rows = 1 + int64_t{work.num_draft_tokens};
  DHS_CHECK(std::ssize(position_of_draw_) < limits_.max_sequences &&
                std::ssize(logit_rows_) + num_rows <= limits_.max_logit_rows &&
                std::ssize(work.masked_tokens) <= limits_.max_masked,
            "more than ", limits_.max_sequences, " draws or ", limits_.max_logit_rows,
            " rows of them, or ", work.masked_tokens.size(), " masked tokens");
  masked_tokens_.insert(masked_tokens_.end(), work.masked_tokens.begin(), work.masked_tokens.end());
  first_row_.push_back(static_cast<int32_t>(logit_rows_.size()));
  const auto position =
      static_cast<int32_t>(work.first_position + std::ssize(work.tokens) - work.num_draft_tokens);
  position_of_draw_.push_back(position);
  most_positions_.push_back(position + work.num_draft_tokens);
  sequence_of_draw_.push_back(work.memory->index());
  end_of_draw_.push_back(static_cast<int32_t>(work.memory->device_tokens()));
  const float draft_temperature = work.sampling->is_repeatable ? 0 : work.sampling->temperature;
  proposal_sampling_.push_back({.temperature = draft_temperature, .seed = work.seed});
  drafts_before_.clear();
  for (int64_t i = 0; i < num_rows; ++i) add_logit_row(work, drawn_from, i);
}

void BatchTables::add_logit_row(const SequenceWork& work, const DrawnFrom& drawn_from,
                                int64_t row_of_draw) {
  const SamplingParams& sampling = *work.sampling;
  const int64_t num_behind = work.num_draft_tokens - row_of_draw;  // rows of the draw
  const int64_t row_of_work = std::ssize(work.tokens) - 1 - num_behind;
  RowSampling row{.temperature = sampling.temperature,
                  .top_p = sampling.top_p,
                  .min_p = sampling.min_p,
                  .top_k = sampling.top_k,
                  .seed = work.seed,
                  .sequence_idx = 0,
                  .position = static_cast<uint32_t>(work.first_position + row_of_work + 1),
                  .num_logprobs = sampling.num_top_logprobs};
  if (row_of_draw < work.num_masked_draws) {
    row.masked_tokens =
        device_.masked_tokens.data + std::ssize(masked_tokens_) - std::ssize(work.masked_tokens);
    row.num_masked_tokens = static_cast<int32_t>(work.masked_tokens.size());
  }
  adjust(work, row);
  if (num_behind > 0) {
    const int64_t from = row_of_draw * drawn_from.stride;
    row.draft_token = work.tokens[row_of_work + 1];
    row.num_proposed = drawn_from.num_proposed;
    if (drawn_from.tokens != nullptr) row.proposed_tokens = drawn_from.tokens + from;
    row.proposed_probabilities = drawn_from.probabilities + from;
    drafts_before_.insert(
        std::upper_bound(drafts_before_.begin(), drafts_before_.end(), row.draft_token),
        row.draft_token);
  }
  logit_rows_.push_back(static_cast<int32_t>(std::ssize(tokens_) - 1 - num_behind));
  drafts_.push_back(row.draft_token);
  row_sampling_.push_back(row);
}

void BatchTables::adjust(const SequenceWork& work, RowSampling& row) {
  const auto first = std::ssize(adjustments_);
  append_adjustments(*work.sampling, work.seen_tokens, drafts_before_, adjustments_);
  const auto count = std::ssize(adjustments_) - first;
  if (count == 0) return;
  DHS_CHECK(count <= limits_.max_adjusted, "request ", work.request.value, " adjusts ", count,
            " tokens, limit ", limits_.max_adjusted);
  DHS_CHECK(!work.sampling->has_penalties() || !work.previous_draw.has_value(), "request ",
            work.request.value, " has penalties, and its newest token is not known");
  row.adjustments = device_.adjustments.data + first;
  row.num_adjustments = static_cast<int32_t>(count);
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
          .logit_rows = used(device_.logit_rows, num_logit_rows())};
}

// ---- Results ------------------------------------------------------------------------------------

BatchSamplingParams BatchTables::sampling(TensorView<const float, 2> logits) const {
  const int64_t rows = num_logit_rows();
  return {.logits = logits,
          .rows = used(device_.row_sampling, rows),
          .tokens = used(device_.drawn, rows),
          .logprobs = used(device_.logprobs, rows),
          .top_tokens = view(device_.top_tokens.data, rows, limits_.max_logprobs),
          .top_logprobs = view(device_.top_logprobs.data, rows, limits_.max_logprobs)};
}

AcceptChainParams BatchTables::accept_chain() const {
  return {.first_row = used(device_.first_row, num_draws() + 1),
          .drafts = used(device_.drafts, num_logit_rows()),
          .drawn = used(device_.drawn, num_logit_rows()),
          .positions = used(device_.position_of_draw, num_draws()),
          .num_accepted = used(device_.num_accepted, num_draws()),
          .newest = used(device_.newest, num_draws()),
          .newest_position = used(device_.newest_position, num_draws())};
}

AnchorRowsParams BatchTables::anchor_rows() const {
  return {.logit_rows = used(device_.logit_rows, num_logit_rows()),
          .first_row = used(device_.first_row, num_draws() + 1),
          .num_accepted = used(device_.num_accepted, num_draws()),
          .newest = used(device_.newest, num_draws()),
          .row_before_anchor = used(device_.row_before_anchor, num_draws()),
          .next_tokens = used(device_.next_tokens, num_rows())};
}

DraftBlocks BatchTables::draft_blocks() const {
  return {.anchors = used(device_.newest, num_draws()),
          .anchor_positions = used(device_.newest_position, num_draws()),
          .row_before_anchor = used(device_.row_before_anchor, num_draws()),
          .sequence_of_block = used(device_.sequence_of_draw, num_draws()),
          .end_positions = used(device_.end_of_draw, num_draws()),
          .sampling = used(device_.proposal_sampling, num_draws()),
          .host_sequence_of_block = sequence_of_draw_,
          .host_most_positions = most_positions_,
          .num_wanted = num_wanted_};
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

int32_t BatchTables::num_accepted(int place, int64_t draw) const {
  return in_place(place, device_.num_accepted(draw));
}

TokenOutput BatchTables::result(int place, int64_t row, int32_t num_logprobs) const {
  TokenOutput output{
      in_place(place, device_.drawn(row)), in_place(place, device_.logprobs(row)), {}};
  for (int64_t i = 0; i < num_logprobs; ++i) {
    const int32_t token = in_place(place, device_.top_tokens(row, i));
    if (token < 0) break;
    output.top.push_back({token, in_place(place, device_.top_logprobs(row, i))});
  }
  return output;
}

}  // namespace dhs
