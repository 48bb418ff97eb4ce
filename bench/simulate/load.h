// What query rows selected, step after step: what the trace suite runs row caches on.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dhisparse/trace.h"
#include "dhisparse/trace_file.h"
#include "trace/cache_policies.h"

namespace dhs::bench {

struct QueryRow {
  int32_t request = 0;
  Position position = 0;            // its own: the row that is written
  std::vector<Position> positions;  // ascending, distinct
  bool operator==(const QueryRow&) const = default;
};
using LoadStep = std::vector<QueryRow>;

struct Load {
  std::string name;
  std::string about;  // sizes and seeds, or the file
  int32_t num_requests = 0;
  int32_t rows_each = 0;  // of a request: a multiple of a host block
  int32_t top_k = 0;
  std::vector<std::vector<LoadStep>> groups;  // [group][step]

  int64_t num_steps() const { return groups.empty() ? 0 : std::ssize(groups[0]); }
  // A request's position among the rows of all of them.
  int32_t host_row(int32_t request, Position position) const {
    return request * rows_each + position;
  }
  // The same steps with one request's query rows alone.
  Load of_request(int32_t request) const;
};

struct LoadShape {
  std::string name;
  std::vector<SelectionProfile> profiles;  // of each request; equal but for the locality
  int32_t context = 0;                     // tokens of a request before its first step
  int num_steps = 0;
  uint64_t seed = 0;  // of the first request; the others count on
};
// One query row of every request in every step.
Load draw_load(const LoadShape& shape);

// A trace file's selections, by the step they were made in; a step that lacks a group's selections
// is none of that group's query rows. INVALID_ARGUMENT when there are none, or their rows too many
// to be told apart; errors of the reader as they are.
absl::StatusOr<Load> read_load(const std::string& path);
// As a trace file that read_load() makes the same steps of.
absl::Status write_load(const Load& load, const std::string& path);

// The steps of a group as passes over one row cache.
std::vector<trace::Pass> passes_of(const Load& load, int group);

}  // namespace dhs::bench
