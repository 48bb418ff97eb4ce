#include "sim/recorded_load.h"

#include <algorithm>
#include <map>

#include "dhisparse/base.h"

namespace dhs::sim {
namespace {

constexpr int64_t kMaxBytes = int64_t{8} << 30;

// What is known of a query row; the whole row has all groups.
struct Row {
  std::vector<int32_t> selections;  // [num_groups, top_k]
  int32_t num_groups = 0;
};
using RowsOfRequest = std::map<Position, Row>;

absl::Status too_large(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": its selections take more than the limit of ", kMaxBytes,
                   " bytes of memory; lower residency.trace_limit and record again"));
}

void keep(const TracedSelection& selection, TraceShape shape, Row& row) {
  if (row.selections.empty()) row.selections.assign(int64_t{shape.num_groups} * shape.top_k, -1);
  int32_t* place = row.selections.data() + int64_t{selection.group} * shape.top_k;
  if (*place < 0) ++row.num_groups;
  std::fill_n(place, shape.top_k, -1);
  std::copy(selection.positions.begin(), selection.positions.end(), place);
}

}  // namespace

absl::StatusOr<RecordedLoad> RecordedLoad::read(const std::string& path) {
  DHS_ASSIGN_OR_RETURN(TraceReader reader, TraceReader::open(path));
  RecordedLoad load;
  load.shape_ = reader.shape();
  const int64_t row_bytes =
      int64_t{load.shape_.num_groups} * load.shape_.top_k * int64_t{sizeof(int32_t)};
  std::map<uint64_t, RowsOfRequest> rows;  // in the order in which requests came
  int64_t num_rows = 0;
  TracedSelection selection;
  while (true) {
    DHS_ASSIGN_OR_RETURN(const bool is_any, reader.next(selection));
    if (!is_any) break;
    Row& row = rows[selection.request.value][selection.query];
    num_rows += row.selections.empty() ? 1 : 0;
    if (num_rows * row_bytes > kMaxBytes) return too_large(path);
    keep(selection, load.shape_, row);
  }
  for (auto& [id, rows_of_request] : rows) {
    Request request{.first_tokens = rows_of_request.begin()->first};
    for (auto& [query, row] : rows_of_request) {
      if (row.num_groups < load.shape_.num_groups) break;
      if (query != request.first_tokens + request.num_rows) break;
      request.selections.insert(request.selections.end(), row.selections.begin(),
                                row.selections.end());
      ++request.num_rows;
      row.selections = {};
    }
    if (request.num_rows > 0 && request.first_tokens > 0) {
      load.requests_.push_back(std::move(request));
    }
  }
  if (load.requests_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no request has a query row of all ", load.shape_.num_groups,
                     " index groups; record again, with requests that decode"));
  }
  return load;
}

int64_t RecordedLoad::longest_prompt() const {
  int64_t longest = 0;
  for (const Request& request : requests_) {
    longest = std::max<int64_t>(longest, request.first_tokens);
  }
  return longest;
}

int64_t RecordedLoad::most_rows() const {
  int64_t most = 0;
  for (const Request& request : requests_) most = std::max(most, request.num_rows);
  return most;
}

void RecordedLoad::copy(int64_t request, int64_t row, TensorView<int32_t, 2> selection) const {
  const Request& from = requests_[request];
  DHS_CHECK(row >= 0 && row < from.num_rows, "row ", row, " of ", from.num_rows);
  const int64_t size = int64_t{shape_.num_groups} * shape_.top_k;
  std::copy_n(from.selections.data() + row * size, size, selection.data);
}

}  // namespace dhs::sim
