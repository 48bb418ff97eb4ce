// The rows that a run prints as they come, and writes at its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "machine.h"

namespace dhs::bench {

// What one call moves and computes at least.
struct Work {
  double memory_bytes = 0;  // of device memory
  double link_bytes = 0;    // from host memory
  double bf16_flops = 0;
  double fp8_flops = 0;
};

struct Row {
  std::string section;
  std::string what;
  double us = 0;  // median
  Work work;
  std::string note;  // "87.2 % hit"
};

class Report {
 public:
  explicit Report(std::optional<Limits> limits) : limits_(limits) {}

  void add(Row row);
  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }
  // table.md and results.json; false when a file cannot be written.
  bool write(const std::string& folder, const std::string& machine) const;

 private:
  std::string rates(const Row& row) const;
  std::string share_of_limit(const Row& row) const;

  const std::optional<Limits> limits_;
  std::vector<Row> rows_;
};

}  // namespace dhs::bench
