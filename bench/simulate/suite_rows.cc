#include "suite_rows.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

namespace dhs::bench {
namespace {

constexpr char kCommand[] = "sh bench/simulate/run.sh";

std::string quoted(const std::string& text) {
  std::string escaped = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped + "\"";
}

absl::Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

}  // namespace

void SuiteRows::begin_load(const Load& load) {
  std::printf("\n%s: %s\n%-10s %-22s %9s %8s %12s\n", load.name.c_str(), load.about.c_str(),
              "table", "policy", "multiple", "rows", "host-fetch %");
  loads_.emplace_back(load.name, load.about);
}

void SuiteRows::add(SuiteRow row) {
  std::printf("%-10s %-22s %8dx %8ld %12.2f\n", row.table.c_str(), row.policy.c_str(), row.multiple,
              row.rows, row.fetched_percent());
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

std::string SuiteRows::csv() const {
  std::string text = absl::StrCat("# ", kCommand, "\n");
  for (const auto& [name, about] : loads_) absl::StrAppend(&text, "# ", name, ": ", about, "\n");
  text += "load,table,policy,multiple,rows,missed,needed,host_fetch_percent\n";
  for (const SuiteRow& row : rows_) {
    absl::StrAppendFormat(&text, "%s,%s,%s,%d,%d,%d,%d,%.3f\n", row.load, row.table, row.policy,
                          row.multiple, row.rows, row.missed, row.needed, row.fetched_percent());
  }
  return text;
}

std::string SuiteRows::json() const {
  std::string text = absl::StrCat("{\"command\": ", quoted(kCommand), ",\n \"loads\": [");
  const char* separator = "\n";
  for (const auto& [name, about] : loads_) {
    absl::StrAppend(&text, separator, "  {\"name\": ", quoted(name), ", \"about\": ", quoted(about),
                    "}");
    separator = ",\n";
  }
  text += "],\n \"rows\": [";
  separator = "\n";
  for (const SuiteRow& row : rows_) {
    absl::StrAppendFormat(
        &text,
        "%s  {\"load\": %s, \"table\": %s, \"policy\": %s, \"multiple\": %d, \"rows\": %d, "
        "\"missed\": %d, \"needed\": %d, \"host_fetch_percent\": %.3f}",
        separator, quoted(row.load), quoted(row.table), quoted(row.policy), row.multiple, row.rows,
        row.missed, row.needed, row.fetched_percent());
    separator = ",\n";
  }
  return text + "]}\n";
}

absl::Status SuiteRows::write(const std::string& folder) const {
  DHS_RETURN_IF_ERROR(write_file(folder + "/trace_suite.csv", csv()));
  return write_file(folder + "/trace_suite.json", json());
}

}  // namespace dhs::bench
