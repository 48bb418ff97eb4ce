#include "report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace dhs::bench {
namespace {

std::string number(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

// The least time that the work takes, and what it waits for.
struct Bound {
  double us = 0;
  const char* resource = "";
};

Bound bound_of(const Work& work, const Limits& limits) {
  const Bound bounds[] = {{work.memory_bytes / limits.memory_gbs * 1e-3, "memory"},
                          {work.link_bytes / limits.link_gbs * 1e-3, "link"},
                          {work.bf16_flops / limits.bf16_tflops * 1e-6, "bf16"},
                          {work.fp8_flops / limits.fp8_tflops * 1e-6, "fp8"}};
  return *std::max_element(std::begin(bounds), std::end(bounds),
                           [](const Bound& a, const Bound& b) { return a.us < b.us; });
}

// Texts of this program hold nothing that JSON would want escaped but quotes and backslashes.
std::string quoted(const std::string& text) {
  std::string escaped = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped + "\"";
}

}  // namespace

std::string Report::rates(const Row& row) const {
  const double flops = row.work.bf16_flops + row.work.fp8_flops;
  std::string text;
  auto append = [&](double value, const char* unit) {
    if (value <= 0) return;
    text += (text.empty() ? "" : ", ") + number(value, value < 10 ? 2 : 1) + " " + unit;
  };
  append(row.work.memory_bytes / row.us * 1e-3, "GB/s");
  append(row.work.link_bytes / row.us * 1e-3, "GB/s of link");
  append(flops / row.us * 1e-6, "TFLOP/s");
  return text.empty() ? "-" : text;
}

std::string Report::share_of_limit(const Row& row) const {
  if (!limits_.has_value()) return "-";
  const Bound bound = bound_of(row.work, *limits_);
  if (bound.us <= 0) return "-";
  return number(100 * bound.us / row.us, 0) + " % of " + bound.resource;
}

void Report::add(Row row) {
  std::printf("%-10s %-52s %10s us  %-34s %-16s %s\n", row.section.c_str(), row.what.c_str(),
              number(row.us, 1).c_str(), rates(row).c_str(), share_of_limit(row).c_str(),
              row.note.c_str());
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

bool Report::write(const std::string& folder, const std::string& machine) const {
  std::ofstream table(folder + "/bench.md");
  table << "# gpu_bench on " << machine << "\n\n"
        << "Medians. A share is that of the least time which the call's bytes and FLOPs allow.\n\n"
        << "| section | call | us | rate | of limit | |\n|---|---|---|---|---|---|\n";
  std::ofstream json(folder + "/bench.json");
  json << "{\"machine\": " << quoted(machine) << ", \"rows\": [";
  const char* separator = "\n";
  for (const Row& row : rows_) {
    table << "| " << row.section << " | " << row.what << " | " << number(row.us, 1) << " | "
          << rates(row) << " | " << share_of_limit(row) << " | " << row.note << " |\n";
    json << separator << "  {\"section\": " << quoted(row.section)
         << ", \"what\": " << quoted(row.what) << ", \"us\": " << number(row.us, 3)
         << ", \"memory_bytes\": " << number(row.work.memory_bytes, 0)
         << ", \"link_bytes\": " << number(row.work.link_bytes, 0)
         << ", \"bf16_flops\": " << number(row.work.bf16_flops, 0)
         << ", \"fp8_flops\": " << number(row.work.fp8_flops, 0)
         << ", \"of_limit\": " << quoted(share_of_limit(row)) << ", \"note\": " << quoted(row.note)
         << "}";
    separator = ",\n";
  }
  json << "\n]}\n";
  return table.good() && json.good();
}

}  // namespace dhs::bench
