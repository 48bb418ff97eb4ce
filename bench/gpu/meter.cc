#include "meter.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

namespace dhs::bench {
namespace {

constexpr double kRunUs = 1000;  // that a run of calls is to last at least

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

MemoryRange or_stop(absl::StatusOr<MemoryRange> range) {
  if (range.ok()) return *std::move(range);
  log_error(range.status().ToString());
  std::exit(1);
}

}  // namespace

Meter::Meter(Stream stream, bool is_tiny)
    : stream_(static_cast<cudaStream_t>(stream.handle)),
      num_runs_(is_tiny ? 1 : 15),
      max_calls_(is_tiny ? 1 : 64) {
  check(cudaEventCreate(&begin_), "create an event");
  check(cudaEventCreate(&end_), "create an event");
}

Meter::~Meter() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

double Meter::run_us(const std::function<void(int64_t)>& call, int64_t first, int64_t count) {
  check(cudaEventRecord(begin_, stream_), "record an event");
  for (int64_t i = first; i < first + count; ++i) call(i);
  check(cudaEventRecord(end_, stream_), "record an event");
  check(cudaEventSynchronize(end_), "measured work");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin_, end_), "time between events");
  return std::max(1e3 * ms, 1e-3) / static_cast<double>(count);
}

double Meter::median_us(const std::function<void(int64_t)>& call) {
  run_us(call, 0, 1);
  const double estimate = run_us(call, 1, 1);
  const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(kRunUs / estimate), 1, max_calls_);
  std::vector<double> runs;
  for (int i = 0; i < num_runs_; ++i) runs.push_back(run_us(call, 2 + i * count, count));
  std::nth_element(runs.begin(), runs.begin() + num_runs_ / 2, runs.end());
  return runs[num_runs_ / 2];
}

MemoryRange Bench::device_memory(int64_t bytes) const { return or_stop(device.allocate(bytes)); }
MemoryRange Bench::host_memory(int64_t bytes) const { return or_stop(device.allocate_host(bytes)); }

MemoryRange Bench::uploaded_bytes(const void* from, int64_t bytes) const {
  MemoryRange to = device_memory(std::max<int64_t>(bytes, 1));
  device.synchronize();
  check(cudaMemcpy(to.data(), from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice), "upload");
  return to;
}

MemoryRange Bench::repeated(const std::vector<std::byte>& pattern, int64_t bytes) const {
  MemoryRange range = device_memory(bytes);
  int64_t done = std::min(bytes, std::ssize(pattern));
  device.synchronize();
  check(cudaMemcpy(range.data(), pattern.data(), static_cast<size_t>(done), cudaMemcpyHostToDevice),
        "upload");
  while (done < bytes) {
    const int64_t part = std::min(done, bytes - done);
    device.copy(range.data() + done, range.data(), part, stream());
    done += part;
  }
  device.synchronize();
  return range;
}

void Bench::download_bytes(const void* from, int64_t bytes, void* to) const {
  device.synchronize();
  check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost), "download");
}

std::vector<std::byte> random_rows(const RowLayout& layout, int64_t count) {
  const auto latents = normal_floats(count * layout.latent_dim, 1);
  const auto ropes = normal_floats(count * layout.rope_dim, 2);
  std::vector<std::byte> rows(static_cast<size_t>(count * layout.row_bytes()));
  for (int64_t i = 0; i < count; ++i) {
    encode_row(layout, &latents[i * layout.latent_dim], &ropes[i * layout.rope_dim],
               &rows[i * layout.row_bytes()]);
  }
  return rows;
}

std::vector<std::byte> random_pages(const IndexKeyLayout& layout, int64_t count) {
  const auto keys = normal_floats(count * layout.block_tokens * layout.index_dim, 3);
  std::vector<std::byte> pages(static_cast<size_t>(count * layout.page_bytes()));
  for (int64_t i = 0; i < count * layout.block_tokens; ++i) {
    encode_index_key(layout, &keys[i * layout.index_dim], static_cast<int>(i % layout.block_tokens),
                     &pages[i / layout.block_tokens * layout.page_bytes()]);
  }
  return pages;
}

std::vector<int32_t> rising(int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

std::vector<float> normal_floats(int64_t count, uint32_t seed, float scale) {
  constexpr int64_t kDistinct = (int64_t{4} << 20) - 3;  // odd: rows do not repeat in step
  std::vector<float> values(static_cast<size_t>(count));
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  const int64_t distinct = std::min(count, kDistinct);
  for (int64_t i = 0; i < distinct; ++i) values[i] = normal(generator);
  for (int64_t done = distinct; done < count; done += distinct) {
    std::memcpy(&values[done], &values[0],
                static_cast<size_t>(std::min(distinct, count - done)) * sizeof(float));
  }
  return values;
}

}  // namespace dhs::bench
