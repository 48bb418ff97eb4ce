// How fast the emulator is, per core. Says nothing about how fast a GPU would be.
//
// Processor time, not wall time: other load on the machine should not show.
//
// Usage: speed_<variant> [scale]    scale divides the work, for the slower variants
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <vector>

#include "simt/kernels/examples.cuh"
#include "simt/kernels/timing.cuh"

namespace simt {
namespace {

double processor_seconds(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return double(std::clock() - begin) / CLOCKS_PER_SEC;
}

void measure_barriers(int scale) {
  int count = 0;
  const ScopedBuffer buffer(&count, sizeof count, "count");
  const int blocks = 16;
  const int iterations = 2000 / scale;
  for (int threads : {32, 256, 1024}) {
    const double time = processor_seconds(
        [&] { launch(timing::barriers, blocks, threads, 0, nullptr, &count, iterations); });
    const double barriers = double(blocks) * iterations;
    std::printf("barriers, %4d threads: %7.2f M arrivals/s, %9.0f barriers/s\n", threads,
                barriers * threads / time * 1e-6, barriers / time);
  }
}

void measure_shuffles(int scale) {
  int sink = 0;
  const ScopedBuffer buffer(&sink, sizeof sink, "sink");
  const int blocks = 64;
  const int threads = 256;
  const int iterations = 2000 / scale;
  const double time = processor_seconds(
      [&] { launch(timing::shuffles, blocks, threads, 0, nullptr, &sink, iterations); });
  std::printf("shuffles: %7.2f M lane-operations/s\n",
              double(blocks) * threads * iterations / time * 1e-6);
}

void measure_threads(int scale) {
  const int n = (1 << 20) / scale;
  std::vector<float> x(n);
  const ScopedBuffer buffer(x, "x");
  const double time =
      processor_seconds([&] { launch(timing::scale, n / 256, 256, 0, nullptr, x.data(), n); });
  std::printf("threads without barriers: %7.2f M/s\n", n / time * 1e-6);
}

void measure_block_sum(int scale) {
  const int n = (1 << 20) / scale;
  std::vector<float> x(n, 1.0f);
  float sum = 0;
  const ScopedBuffer x_buffer(x, "x");
  const ScopedBuffer sum_buffer(&sum, sizeof sum, "sum");
  const double time = processor_seconds(
      [&] { launch(examples::block_sum, 512 / scale, 256, 0, nullptr, x.data(), &sum, n); });
  std::printf("block_sum of %d: %7.2f ms\n", n, time * 1e3);
}

void measure_gemm() {
  const int m = 64;
  const int n = 64;
  const int k = 256;
  std::vector<__nv_bfloat16> a(m * k);
  std::vector<__nv_bfloat16> b(n * k);
  std::vector<float> c(m * n);
  const ScopedBuffer a_buffer(a, "a");
  const ScopedBuffer b_buffer(b, "b");
  const ScopedBuffer c_buffer(c, "c");
  const double time = processor_seconds([&] {
    launch(examples::gemm_bf16, dim3(n / 8, m / 16), 32, examples::kGemmSharedBytes, nullptr,
           a.data(), b.data(), c.data(), n, k);
  });
  std::printf("gemm_bf16: %7.3f GFLOP/s\n", 2.0 * m * n * k / time * 1e-9);
}

}  // namespace
}  // namespace simt

int main(int argc, char** argv) {
  const int scale = argc > 1 ? std::atoi(argv[1]) : 1;
  simt::measure_barriers(scale);
  simt::measure_shuffles(scale);
  simt::measure_threads(scale);
  simt::measure_block_sum(scale);
  simt::measure_gemm();
}
