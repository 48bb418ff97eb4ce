#include "engine/selection_recorder.h"

#include <algorithm>

namespace dhs {

absl::StatusOr<std::unique_ptr<SelectionRecorder>> SelectionRecorder::create(Device& device,
                                                                             TraceShape shape,
                                                                             Options options) {
  absl::StatusOr<TraceWriter> writer = TraceWriter::create(options.path, shape);
  if (!writer.ok()) {
    return absl::Status(writer.status().code(),
                        absl::StrCat("residency.trace: ", writer.status().message()));
  }
  const int64_t num_entries = shape.num_groups * options.max_rows * shape.top_k;
  DHS_ASSIGN_OR_RETURN(MemoryRange memory,
                       device.allocate_host(num_entries * int64_t{sizeof(int32_t)}));
  std::unique_ptr<SelectionRecorder> recorder(
      new SelectionRecorder(device, std::move(options), shape, *std::move(writer)));
  recorder->selections_ = view(reinterpret_cast<int32_t*>(memory.data()), int64_t{shape.num_groups},
                               recorder->options_.max_rows, int64_t{shape.top_k});
  recorder->memory_ = std::move(memory);
  log_info("residency.trace: recording selections into ", recorder->options_.path);
  return recorder;
}

SelectionRecorder::SelectionRecorder(Device& device, Options options, TraceShape shape,
                                     TraceWriter writer)
    : device_(device), options_(std::move(options)), shape_(shape), writer_(std::move(writer)) {}

SelectionRecorder::~SelectionRecorder() {
  if (writer_.has_value()) stop("the engine stops");
}

void SelectionRecorder::stop(const char* why) {
  const absl::Status closed = writer_->close();
  if (!closed.ok()) log_error("residency.trace: ", closed.message());
  log_info("residency.trace: ", writer_->num_bytes(), " bytes of ", num_steps_, " steps: ", why);
  writer_.reset();
}

void SelectionRecorder::begin_step(const RankPlan& plan) {
  rows_.clear();
  for (const SequenceWork& work : plan.work) {
    if (work.num_prompt_tokens > 0) break;  // prompt chunks come last
    for (int64_t i = 0; i < std::ssize(work.tokens); ++i) {
      if (std::ssize(rows_) == options_.max_rows) return;
      rows_.push_back({work.request, work.first_position + static_cast<Position>(i)});
    }
  }
}

void SelectionRecorder::copy(int group, TensorView<const int32_t, 2> selection) {
  if (!writer_.has_value() || rows_.empty()) return;
  DHS_CHECK(selection.sizes[0] >= std::ssize(rows_) && selection.strides[0] == shape_.top_k,
            "a selection of ", selection.sizes[0], " rows for ", rows_.size());
  const int64_t bytes = std::ssize(rows_) * shape_.top_k * int64_t{sizeof(int32_t)};
  device_.copy(&selections_(group, 0, 0), selection.data, bytes, device_.stream());
}

void SelectionRecorder::write_step() {
  if (!writer_.has_value() || rows_.empty()) return;
  ++num_steps_;
  for (int64_t row = 0; row < std::ssize(rows_); ++row) {
    for (int group = 0; group < shape_.num_groups; ++group) {
      const absl::Status written = write_row(group, row);
      if (!written.ok()) log_error("residency.trace: ", written.message());
      if (!written.ok()) return stop("it cannot be written");
    }
  }
  if (writer_->num_bytes() >= options_.max_bytes) stop("residency.trace_limit is reached");
}

absl::Status SelectionRecorder::write_row(int group, int64_t row) {
  selection_.request = rows_[row].request;
  selection_.step = num_steps_;
  selection_.group = group;
  selection_.query = rows_[row].query;
  selection_.positions.clear();
  for (int32_t i = 0; i < shape_.top_k; ++i) {
    const int32_t position = selections_(group, row, i);
    if (position >= 0) selection_.positions.push_back(position);
  }
  std::sort(selection_.positions.begin(), selection_.positions.end());
  return writer_->append(selection_);
}

}  // namespace dhs
