// The rows of the trace suite: printed as they come, written at its end.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <string>
#include <vector>

#include "load.h"

namespace dhs::bench {

struct SuiteRow {
  std::string load;
  std::string table;  // policies, sharing or groups
  std::string policy;
  int multiple = 0;    // row cache rows, in top_k of a request that runs
  int64_t rows = 0;    // the row cache's
  int64_t missed = 0;  // summed over passes and groups
  int64_t needed = 0;  // distinct rows of every pass

  double fetched_percent() const {
    return needed == 0 ? 0 : 100 * static_cast<double>(missed) / static_cast<double>(needed);
  }
};

class SuiteRows {
 public:
  void begin_load(const Load& load);
  void add(SuiteRow row);
  // trace_suite.csv and trace_suite.json.
  absl::Status write(const std::string& folder) const;

 private:
  std::string csv() const;
  std::string json() const;

  std::vector<std::pair<std::string, std::string>> loads_;  // name, about
  std::vector<SuiteRow> rows_;
};

}  // namespace dhs::bench
