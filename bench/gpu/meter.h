// What the sections share: memory, random contents and timing on the device's stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/kv_row/kv_row.h"
#include "report.h"

namespace dhs::bench {

// Times calls by two events around a run of them, so that what the host does between two launches
// is hidden as in a step. The first run warms up; the result is the median of the others.
class Meter {
 public:
  explicit Meter(Stream stream, bool is_tiny);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // call(i) queues call number i; numbers rise from 0 and never repeat, so that calls can take
  // turns with data that is not in L2. Microseconds of one call.
  double median_us(const std::function<void(int64_t)>& call);

 private:
  double run_us(const std::function<void(int64_t)>& call, int64_t first, int64_t count);

  const cudaStream_t stream_;
  const int num_runs_;
  const int64_t max_calls_;  // of one run
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

struct Bench {
  Device& device;
  Meter& meter;
  Report& report;
  bool is_tiny = false;  // shapes for emulation: what is tested is that the code runs

  Stream stream() const { return device.stream(); }
  // A shape on a GPU, or its stand-in.
  int64_t pick(int64_t real, int64_t tiny) const { return is_tiny ? tiny : real; }

  // Stops the program when the machine has no more.
  MemoryRange device_memory(int64_t bytes) const;
  MemoryRange host_memory(int64_t bytes) const;
  template <class T>
  MemoryRange uploaded(const std::vector<T>& values) const {
    return uploaded_bytes(values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  }
  // `bytes` of device memory that hold the pattern over and over.
  MemoryRange repeated(const std::vector<std::byte>& pattern, int64_t bytes) const;
  template <class T>
  std::vector<T> downloaded(const T* from, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    download_bytes(from, count * static_cast<int64_t>(sizeof(T)), values.data());
    return values;
  }

 private:
  MemoryRange uploaded_bytes(const void* from, int64_t bytes) const;
  void download_bytes(const void* from, int64_t bytes, void* to) const;
};

// Encoded rows and index key pages of random contents.
std::vector<std::byte> random_rows(const RowLayout& layout, int64_t count);
std::vector<std::byte> random_pages(const IndexKeyLayout& layout, int64_t count);
// 0, 1, 2, ...
std::vector<int32_t> rising(int64_t count);

// Standard normal values, repeating after a few million: contents, not statistics.
std::vector<float> normal_floats(int64_t count, uint32_t seed, float scale = 1.0f);

// More than any L2: calls that take turns over so many bytes read device memory.
inline constexpr int64_t kBeyondL2Bytes = int64_t{256} << 20;

void bench_gather(const Bench& bench);
void bench_resolve(const Bench& bench);
void bench_append(const Bench& bench);
void bench_index_score(const Bench& bench);
void bench_top_k(const Bench& bench);
void bench_attention(const Bench& bench);
void bench_fused(const Bench& bench);
void bench_gemm(const Bench& bench);
void bench_slice(const Bench& bench);

}  // namespace dhs::bench
