// Records what decoding rows select into a trace file (trace.h), until the file has reached its
// limit. What cannot be written ends the recording with a line in the log, never a step.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <vector>

#include "dhisparse/device.h"
#include "dhisparse/step.h"
#include "dhisparse/trace_file.h"

namespace dhs {

class SelectionRecorder {
 public:
  struct Options {
    std::string path;
    int64_t max_bytes = 0;
    int64_t max_rows = 0;  // that can decode in a step
  };
  // Reserves host memory for the selections of a step; `device` must outlive the recorder.
  static absl::StatusOr<std::unique_ptr<SelectionRecorder>> create(Device& device, TraceShape shape,
                                                                   Options options);
  ~SelectionRecorder();

  // The rows of the step that is queued next. One step at a time.
  void begin_step(const RankPlan& plan);
  // Queues a copy of a group's selection, [rows, top_k], decoding rows first.
  void copy(int group, TensorView<const int32_t, 2> selection);
  // Once the device has passed the step.
  void write_step();

 private:
  struct Row {
    RequestId request;
    Position query = 0;
  };

  SelectionRecorder(Device& device, Options options, TraceShape shape, TraceWriter writer);
  absl::Status write_row(int group, int64_t row);
  void stop(const char* why);

  Device& device_;
  const Options options_;
  const TraceShape shape_;
  std::optional<TraceWriter> writer_;  // while it records
  MemoryRange memory_;
  TensorView<int32_t, 3> selections_;  // [num_groups, max_rows, top_k]
  std::vector<Row> rows_;              // of the step
  uint64_t num_steps_ = 0;
  TracedSelection selection_;  // scratch
};

}  // namespace dhs
