// Files of selections: what query rows of a running engine selected, recorded and read back.
// docs/FORMATS.md has the bytes.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "dhisparse/base.h"

namespace dhs {

// What one query row of one index group selected.
struct TracedSelection {
  RequestId request;
  uint64_t step = 0;  // the engine's, or calls of next()
  int32_t group = 0;
  Position query = 0;               // of the query row
  std::vector<Position> positions;  // ascending, distinct, <= query
};

struct TraceShape {
  int32_t num_groups = 0;
  int32_t top_k = 0;
};

// Writes a trace. Buffered; a file whose writer was not closed holds a prefix of what was appended.
class TraceWriter {
 public:
  static absl::StatusOr<TraceWriter> create(const std::string& path, TraceShape shape);

  // INVALID_ARGUMENT when the selection breaks its contract; errors of the file system as they are.
  absl::Status append(const TracedSelection& selection);
  absl::Status close();
  int64_t num_bytes() const { return num_bytes_; }  // appended, the header's too

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  TraceWriter(std::string path, TraceShape shape, File file);

  std::string path_;
  TraceShape shape_;
  File file_;
  int64_t num_bytes_ = 0;
  std::string frame_;  // scratch
};

// Reads a trace. Damage is DATA_LOSS naming the file, the byte where the damaged part begins, what
// is wrong and what to do.
class TraceReader {
 public:
  static absl::StatusOr<TraceReader> open(const std::string& path);

  const TraceShape& shape() const { return shape_; }
  // False at the end of the file; `selection` is then as it was. After damage it is unspecified.
  absl::StatusOr<bool> next(TracedSelection& selection);

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  TraceReader(std::string path, File file);
  absl::StatusOr<size_t> read(std::string& bytes, size_t begin);

  std::string path_;
  TraceShape shape_;
  File file_;
  int64_t offset_ = 0;  // of the next frame
  std::string frame_;   // scratch
};

}  // namespace dhs
