// Products of decode steps with GLM-5's matrices, by our own kernels and by cuBLASLt. Calls take
// turns with copies of a matrix, so that weights come from device memory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/gemm/gemm.h"
#include "meter.h"

namespace dhs::bench {
namespace {

struct Shape {
  const char* name;
  int64_t n;
  int64_t k;
};

constexpr Shape kShapes[] = {{"query and KV down", 2752, 6144},
                             {"query up", 20480, 2048},
                             {"attention output", 6144, 16384},
                             {"expert gate and up", 4096, 6144},
                             {"dense gate and up", 24576, 6144}};
constexpr Shape kTinyShapes[] = {{"tiny", 40, 72}};

const char* name_of(GemmPrecision precision) {
  return precision == GemmPrecision::kFp8 ? "fp8" : "bf16";
}

// by_library: none when cuBLASLt does not take the shape.
std::vector<PackedMatrixPtr> pack_copies(const Bench& bench, GemmPrecision precision,
                                         bool by_library, const Shape& shape) {
  const auto w = normal_floats(shape.n * shape.k, 51, 0.02f);
  const int64_t bytes = shape.n * shape.k * (precision == GemmPrecision::kFp8 ? 1 : 2);
  const int64_t num_copies =
      bench.is_tiny ? 2 : std::clamp<int64_t>(kBeyondL2Bytes / 2 / bytes, 1, 4);
  std::vector<PackedMatrixPtr> copies;
  for (int64_t i = 0; i < num_copies; ++i) {
    auto copy = make_packed_matrix(
        {.precision = precision, .n = shape.n, .k = shape.k, .prefers_library = by_library},
        bench.stream());
    const auto values = view<const float>(w.data(), shape.n, shape.k);
    if (copy == nullptr || !pack_into(*copy, 0, values, bench.stream())) {
      log_error("no device memory for a matrix of ", shape.n, " x ", shape.k);
      std::exit(1);
    }
    if (by_library && !packed_matrix_uses_library(*copy)) return {};
    copies.push_back(std::move(copy));
  }
  return copies;
}

void bench_rows(const Bench& bench, const Shape& shape, const std::vector<PackedMatrixPtr>& copies,
                int64_t m) {
  const MemoryRange a = bench.uploaded(normal_floats(m * shape.k, 52));
  const MemoryRange out = bench.device_memory(m * shape.n * 4);
  const double us = bench.meter.median_us([&](int64_t turn) {
    launch_gemm({.weights = copies[turn % std::ssize(copies)].get(),
                 .a = view(a.as<const float>(), m, shape.k),
                 .out = view(out.as<float>(), m, shape.n)},
                bench.stream());
  });
  const GemmPrecision precision = packed_shape(*copies.front()).precision;
  const auto flops = 2.0 * static_cast<double>(m * shape.n * shape.k);
  const bool is_fp8 = precision == GemmPrecision::kFp8;
  bench.report.add(
      {.section = "gemm",
       .what = std::string(name_of(precision)) + " " + shape.name + ", " + std::to_string(m) +
               " x " + std::to_string(shape.n) + " x " + std::to_string(shape.k) +
               (packed_matrix_uses_library(*copies.front()) ? ", cuBLASLt" : ""),
       .us = us,
       .work = {.memory_bytes = static_cast<double>(packed_matrix_bytes(*copies.front())) +
                                4.0 * static_cast<double>(m * (shape.n + shape.k)),
                .bf16_flops = is_fp8 ? 0 : flops,
                .fp8_flops = is_fp8 ? flops : 0}});
}

void bench_shape(const Bench& bench, const Shape& shape) {
  for (GemmPrecision precision : {GemmPrecision::kBf16, GemmPrecision::kFp8}) {
    for (bool by_library : {false, true}) {
      const auto copies = pack_copies(bench, precision, by_library, shape);
      if (copies.empty()) continue;
      for (int64_t m : {1, 4, 16, 64}) {
        if (!bench.is_tiny || m <= 4) bench_rows(bench, shape, copies, m);
      }
    }
  }
}

}  // namespace

void bench_gemm(const Bench& bench) {
  if (bench.is_tiny) return bench_shape(bench, kTinyShapes[0]);
  for (const Shape& shape : kShapes) bench_shape(bench, shape);
}

}  // namespace dhs::bench
