// gpu_bench [--tiny] [--out FOLDER] [--section NAME]...: prints a row per measured call.
#include <cstdio>
#include <set>
#include <string>

#include "meter.h"

namespace dhs::bench {
namespace {

struct Section {
  const char* name;
  void (*run)(const Bench& bench);
};

constexpr Section kSections[] = {
    {"gather", bench_gather},     {"resolve", bench_resolve}, {"append", bench_append},
    {"index", bench_index_score}, {"top_k", bench_top_k},     {"attention", bench_attention},
    {"fused", bench_fused},       {"gemm", bench_gemm},       {"slice", bench_slice},
};

struct Arguments {
  bool is_tiny = false;
  std::string folder;
  std::set<std::string> sections;  // empty: all
};

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--tiny") {
      arguments.is_tiny = true;
    } else if (argument == "--out" && i + 1 < argc) {
      arguments.folder = argv[++i];
    } else if (argument == "--section" && i + 1 < argc) {
      arguments.sections.insert(argv[++i]);
    } else {
      return false;
    }
  }
  return true;
}

// False when a section measured nothing.
bool run_sections(const Arguments& arguments, const Bench& bench) {
  bool all_measured = true;
  for (const Section& section : kSections) {
    if (!arguments.sections.empty() && !arguments.sections.contains(section.name)) continue;
    const int64_t before = bench.report.num_rows();
    section.run(bench);
    bench.device.synchronize();
    if (bench.report.num_rows() > before) continue;
    std::fprintf(stderr, "section %s measured nothing\n", section.name);
    all_measured = false;
  }
  return all_measured;
}

int run_bench(const Arguments& arguments) {
  constexpr int kNoGpu = 77;
  const DeviceConfig config{
      .backend = BackendKind::kCuda,
      .memory_bytes = arguments.is_tiny ? int64_t{1} << 20 : int64_t{8} << 30,
      .scratch_bytes = arguments.is_tiny ? int64_t{1} << 20 : int64_t{256} << 20};
  auto device = open_device(config);
  if (!device.ok()) {
    std::printf("no GPU: %s\n", std::string(device.status().message()).c_str());
    return kNoGpu;
  }
  const std::string machine = (*device)->description();
  std::printf("%s\n", machine.c_str());
  Report report(limits_of(machine));
  Meter meter((*device)->stream(), arguments.is_tiny);
  bool is_good = run_sections(arguments, {**device, meter, report, arguments.is_tiny});
  if (!arguments.folder.empty() && !report.write(arguments.folder, machine)) {
    std::fprintf(stderr, "cannot write into %s\n", arguments.folder.c_str());
    is_good = false;
  }
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace dhs::bench

int main(int argc, char** argv) {
  dhs::bench::Arguments arguments;
  if (!dhs::bench::parse(argc, argv, arguments)) {
    std::fprintf(stderr, "usage: gpu_bench [--tiny] [--out FOLDER] [--section NAME]...\n");
    return 2;
  }
  return dhs::bench::run_bench(arguments);
}
