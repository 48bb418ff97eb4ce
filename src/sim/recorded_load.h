// The requests of a trace file (trace_file.h), each with what its decoding rows selected.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dhisparse/tensor.h"
#include "dhisparse/trace_file.h"

namespace dhs::sim {

class RecordedLoad {
 public:
  // INVALID_ARGUMENT when no request has a whole query row, or when they take too much memory.
  static absl::StatusOr<RecordedLoad> read(const std::string& path);

  TraceShape shape() const { return shape_; }
  int64_t num_requests() const { return std::ssize(requests_); }
  // Tokens before the first query row, and query rows. A position that is recorded again (its draft
  // was rejected) counts once; what follows a gap is left out.
  int32_t first_tokens(int64_t request) const { return requests_[request].first_tokens; }
  int64_t num_rows(int64_t request) const { return requests_[request].num_rows; }
  int64_t longest_prompt() const;
  int64_t most_rows() const;

  // [num_groups, top_k] positions, -1 padded.
  void copy(int64_t request, int64_t row, TensorView<int32_t, 2> selection) const;

 private:
  struct Request {
    int32_t first_tokens = 0;
    int64_t num_rows = 0;
    std::vector<int32_t> selections;  // [num_rows, num_groups, top_k]
  };

  TraceShape shape_;
  std::vector<Request> requests_;
};

// The recorded request that a simulated one is: by turns.
inline int64_t recorded_request(const RecordedLoad& load, RequestId request) {
  return static_cast<int64_t>(request.value - 1) % load.num_requests();
}

}  // namespace dhs::sim
