#include "load.h"

#include <absl/strings/str_format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "dhisparse/base.h"

namespace dhs::bench {
namespace {

QueryRow query_row(int32_t request, const int32_t* selected, int32_t top_k) {
  QueryRow row = {.request = request, .positions = {selected, selected + top_k}};
  std::erase(row.positions, -1);
  row.position = row.positions.back();
  return row;
}

std::string locality_of(const SelectionProfile& profile) {
  const Locality& locality = profile.locality;
  return absl::StrFormat("%.4g/%.4g/%.4g", locality.at_k, locality.at_2k, locality.at_4k);
}

// Requests and steps of a file, numbered from zero by their first selection.
class Numbers {
 public:
  int32_t of(uint64_t name) {
    return numbers_.emplace(name, static_cast<int32_t>(numbers_.size())).first->second;
  }
  int32_t count() const { return static_cast<int32_t>(numbers_.size()); }

 private:
  std::map<uint64_t, int32_t> numbers_;
};

}  // namespace

Load Load::of_request(int32_t request) const {
  Load own = {.name = name,
              .about = about,
              .num_requests = num_requests,
              .rows_each = rows_each,
              .top_k = top_k};
  own.groups.resize(groups.size());
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const LoadStep& step : groups[group]) {
      LoadStep& rows = own.groups[group].emplace_back();
      std::copy_if(step.begin(), step.end(), std::back_inserter(rows),
                   [&](const QueryRow& row) { return row.request == request; });
    }
  }
  return own;
}

Load draw_load(const LoadShape& shape) {
  const SelectionProfile& first = shape.profiles.front();
  Load load = {.name = shape.name,
               .num_requests = static_cast<int32_t>(std::ssize(shape.profiles)),
               .rows_each = static_cast<int32_t>(
                   round_up(int64_t{shape.context} + shape.num_steps, kHostBlockTokens)),
               .top_k = first.top_k};
  load.about = absl::StrCat("drawn: requests ", load.num_requests, ", index groups ",
                            first.num_groups, ", top_k ", first.top_k, ", context ", shape.context,
                            ", steps ", shape.num_steps, ", seed ", shape.seed,
                            ", missed at k/2k/4k ", locality_of(first));
  if (load.num_requests > 1) {
    absl::StrAppend(&load.about, " (first request) to ", locality_of(shape.profiles.back()));
  }
  load.groups.assign(first.num_groups, std::vector<LoadStep>(shape.num_steps));
  std::vector<int32_t> selected(static_cast<size_t>(first.num_groups) * first.top_k);
  for (int32_t request = 0; request < load.num_requests; ++request) {
    const SelectionModel model(shape.profiles[request]);
    SelectionGenerator generator(model, shape.seed + request, shape.context);
    for (int step = 0; step < shape.num_steps; ++step) {
      generator.next(view(selected.data(), first.num_groups, first.top_k));
      for (int32_t group = 0; group < first.num_groups; ++group) {
        load.groups[group][step].push_back(
            query_row(request, selected.data() + int64_t{group} * first.top_k, first.top_k));
      }
    }
  }
  return load;
}

absl::StatusOr<Load> read_load(const std::string& path) {
  DHS_ASSIGN_OR_RETURN(TraceReader reader, TraceReader::open(path));
  Load load = {.name = "recorded", .top_k = reader.shape().top_k};
  load.groups.resize(reader.shape().num_groups);
  Numbers requests;
  Numbers steps;
  TracedSelection selection;
  int64_t num_tokens = 0;  // of the longest request
  while (true) {
    DHS_ASSIGN_OR_RETURN(const bool is_any, reader.next(selection));
    if (!is_any) break;
    const auto step = static_cast<size_t>(steps.of(selection.step));
    std::vector<LoadStep>& group = load.groups[selection.group];
    if (group.size() <= step) group.resize(step + 1);
    group[step].push_back({.request = requests.of(selection.request.value),
                           .position = selection.query,
                           .positions = selection.positions});
    num_tokens = std::max<int64_t>(num_tokens, int64_t{selection.query} + 1);
  }
  if (steps.count() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": it holds no selection; record again"));
  }
  load.num_requests = requests.count();
  for (auto& group : load.groups) group.resize(steps.count());
  const int64_t rows_each = round_up(num_tokens, kHostBlockTokens);
  const int64_t num_rows = rows_each * load.num_requests;
  if (num_rows > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", load.num_requests, " requests of up to ", num_tokens,
                     " tokens are ", num_rows, " rows, more than 2^31; record fewer requests"));
  }
  load.rows_each = static_cast<int32_t>(rows_each);
  load.about = absl::StrCat("recorded in ", path, ": requests ", load.num_requests,
                            ", index groups ", load.groups.size(), ", top_k ", load.top_k,
                            ", longest context ", num_tokens, ", steps ", load.num_steps());
  return load;
}

absl::Status write_load(const Load& load, const std::string& path) {
  const TraceShape shape = {static_cast<int32_t>(std::ssize(load.groups)), load.top_k};
  DHS_ASSIGN_OR_RETURN(TraceWriter writer, TraceWriter::create(path, shape));
  for (int64_t step = 0; step < load.num_steps(); ++step) {
    for (int32_t group = 0; group < shape.num_groups; ++group) {
      for (const QueryRow& row : load.groups[group][step]) {
        DHS_RETURN_IF_ERROR(writer.append({.request = RequestId(row.request),
                                           .step = static_cast<uint64_t>(step),
                                           .group = group,
                                           .query = row.position,
                                           .positions = row.positions}));
      }
    }
  }
  return writer.close();
}

std::vector<trace::Pass> passes_of(const Load& load, int group) {
  std::vector<trace::Pass> passes;
  std::vector<int32_t> written;
  for (const LoadStep& step : load.groups[group]) {
    trace::Pass& pass = passes.emplace_back();
    written.clear();
    for (const QueryRow& row : step) {
      for (Position p : row.positions) pass.rows.push_back(load.host_row(row.request, p));
      written.push_back(load.host_row(row.request, row.position));
    }
    std::sort(pass.rows.begin(), pass.rows.end());
    pass.rows.erase(std::unique(pass.rows.begin(), pass.rows.end()), pass.rows.end());
    std::sort(written.begin(), written.end());
    std::erase_if(pass.rows, [&](int32_t row) {
      return std::binary_search(written.begin(), written.end(), row);
    });
    pass.rows.insert(pass.rows.end(), written.begin(), written.end());
    pass.num_written = std::ssize(written);
  }
  return passes;
}

}  // namespace dhs::bench
