#include "bench/kernels/machine_limits.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <thread>

#include "dhisparse/device.h"

namespace dhs {
namespace {

constexpr int64_t kBufferBytes = int64_t{256} << 20;
constexpr int64_t kPieceBytes = int64_t{512} << 10;
constexpr int64_t kWindowBytes = int64_t{64}
                                 << 20;  // timed at once; each is cold when its turn comes
constexpr int kNumPasses = 256;  // short ones: the best falls between what else the machine does
constexpr int64_t kNumFmaRounds = 1 << 16;
constexpr int kNumAccumulators = 16;  // enough to cover latency x ports on every known core

std::atomic<float> g_sink;  // keeps the compiler from dropping the loops

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double best_rate(double work, const std::function<void(int pass)>& body) {
  double best = 0;
  for (int pass = 0; pass < kNumPasses; ++pass) {
    // A thread that has just slept is scheduled at once even on a busy machine.
    if (pass % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    best = std::max(best, work / seconds([&] { body(pass); }));
  }
  return best;
}

// Calls body(offset, bytes) for every piece of the window that is due in `pass`.
void for_window(int pass, const std::function<void(int64_t offset, int64_t bytes)>& body) {
  const int64_t start = pass % (kBufferBytes / kWindowBytes) * kWindowBytes;
  parallel_for(kWindowBytes / kPieceBytes, 1, [&](int64_t begin, int64_t end) {
    body(start + begin * kPieceBytes, (end - begin) * kPieceBytes);
  });
}

uint64_t read_base(const std::byte* data, int64_t bytes) {
  uint64_t sum[4] = {};
  for (int64_t i = 0; i + 32 <= bytes; i += 32) {
    uint64_t words[4];
    std::memcpy(words, data + i, sizeof(words));
    for (int lane = 0; lane < 4; ++lane) sum[lane] += words[lane];
  }
  return sum[0] + sum[1] + sum[2] + sum[3];
}

__attribute__((target("avx512f"))) uint64_t read_avx512(const std::byte* data, int64_t bytes) {
  __m512i sum[4] = {};
  for (int64_t i = 0; i + 256 <= bytes; i += 256) {
    for (int lane = 0; lane < 4; ++lane) {
      _mm_prefetch(reinterpret_cast<const char*>(data + i + 4096 + lane * 64), _MM_HINT_T0);
      sum[lane] = _mm512_add_epi64(sum[lane], _mm512_loadu_si512(data + i + lane * 64));
    }
  }
  const __m512i total =
      _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
  uint64_t lanes[8];
  _mm512_storeu_si512(lanes, total);
  return std::accumulate(lanes, lanes + 8, uint64_t{0});
}

__attribute__((target("avx2,fma"))) float fma_avx2(int64_t rounds) {
  __m256 acc[kNumAccumulators];
  for (auto& a : acc) a = _mm256_set1_ps(1.0f);
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(1e-3f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) a = _mm256_fmadd_ps(a, factor, term);
  }
  __m256 total = acc[0];
  for (auto& a : acc) total = _mm256_add_ps(total, a);
  return _mm256_cvtss_f32(total);
}

__attribute__((target("avx512f"))) float fma_avx512(int64_t rounds) {
  __m512 acc[kNumAccumulators];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(1e-3f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) a = _mm512_fmadd_ps(a, factor, term);
  }
  __m512 total = acc[0];
  for (auto& a : acc) total = _mm512_add_ps(total, a);
  return _mm512_cvtss_f32(total);
}

__attribute__((target("avx512f,avx512bf16"))) float dot_avx512bf16(int64_t rounds) {
  __m512 acc[kNumAccumulators];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512bh a16 = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(-0.5f));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) a = _mm512_dpbf16_ps(a, a16, a16);
  }
  __m512 total = acc[0];
  for (auto& a : acc) total = _mm512_add_ps(total, a);
  return _mm512_cvtss_f32(total);
}

// FLOPs per second of `kernel` on every thread at once; `lanes` multiply-adds per accumulator.
double flops_per_s(float (*kernel)(int64_t), int lanes) {
  const int num_threads = num_kernel_threads();
  const double work = 2.0 * lanes * kNumAccumulators * kNumFmaRounds * num_threads;
  return best_rate(work, [&](int) {
    parallel_for(num_threads, 1, [&](int64_t, int64_t) { g_sink = kernel(kNumFmaRounds); });
  });
}

MachineLimits measure() {
  MachineLimits limits;
  const std::align_val_t alignment{4096};
  struct Release {
    void operator()(std::byte* p) const { operator delete[](p, std::align_val_t{4096}); }
  };
  // One page of slack: the reader prefetches past its piece.
  std::unique_ptr<std::byte, Release> source(
      static_cast<std::byte*>(operator new[](kBufferBytes + 8192, alignment)));
  std::unique_ptr<std::byte, Release> target(
      static_cast<std::byte*>(operator new[](kBufferBytes + 8192, alignment)));
  std::memset(source.get(), 1, kBufferBytes + 8192);
  std::memset(target.get(), 2, kBufferBytes + 8192);

  const auto read = cpu_supports(CpuIsa::kAvx512) ? read_avx512 : read_base;
  limits.read_bytes_per_s = best_rate(kWindowBytes, [&](int pass) {
    for_window(pass, [&](int64_t offset, int64_t bytes) {
      g_sink = static_cast<float>(read(source.get() + offset, bytes));
    });
  });
  limits.copy_bytes_per_s = best_rate(kWindowBytes, [&](int pass) {
    for_window(pass, [&](int64_t offset, int64_t bytes) {
      std::memcpy(target.get() + offset, source.get() + offset, static_cast<size_t>(bytes));
    });
  });
  if (cpu_supports(CpuIsa::kAvx512)) {
    limits.f32_flops_per_s = flops_per_s(fma_avx512, 16);
  } else if (cpu_supports(CpuIsa::kAvx2)) {
    limits.f32_flops_per_s = flops_per_s(fma_avx2, 8);
  }
  if (cpu_supports(CpuIsa::kAvx512Bf16)) {
    limits.bf16_flops_per_s = flops_per_s(dot_avx512bf16, 32);
  }
  return limits;
}

double limit_of(LimitKind kind) {
  const MachineLimits& limits = machine_limits();
  switch (kind) {
    case LimitKind::kRead:
      return limits.read_bytes_per_s;
    case LimitKind::kCopy:
      return limits.copy_bytes_per_s;
    case LimitKind::kF32:
      return limits.f32_flops_per_s;
    case LimitKind::kBf16:
      return limits.bf16_flops_per_s;
  }
  return 0;
}

}  // namespace

const MachineLimits& machine_limits() {
  static const MachineLimits limits = measure();
  return limits;
}

void report_against_limit(benchmark::State& state, LimitKind kind, double work_per_iteration) {
  const bool is_bytes = kind == LimitKind::kRead || kind == LimitKind::kCopy;
  const double total = work_per_iteration * static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters[is_bytes ? "GB_s" : "GFLOP_s"] = Counter(total * 1e-9, Counter::kIsRate);
  const double limit = limit_of(kind);
  if (limit <= 0) return;
  state.counters["limit"] = limit * 1e-9;
  state.counters["pct"] = Counter(100 * total / limit, Counter::kIsRate);
}

}  // namespace dhs
