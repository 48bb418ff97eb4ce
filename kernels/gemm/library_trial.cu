#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/gemm/gemm_config.h"
#include "kernels/gemm/library_product.h"
#include "kernels/gemm/library_trial.h"

namespace dhs::cuda {
namespace {

constexpr char kOp[] = "gemm trial";
constexpr int64_t kDifferentRows = 200;  // later ones repeat them
constexpr int64_t kRowCounts[] = {1,  2,  3,   4,   7,   8,   15,  16,  17,  31,  33,
                                  64, 65, 100, 127, 128, 129, 190, 256, 511, 1024};
constexpr int64_t kRowsForValues = 32;

// Of the largest result nearby. fp8: Hopper's tensor cores keep some 14 bits of a sum of 32 fp8
// products (DeepSeek-V3, section 3.5.2), our kernels all that f32 has.
float tolerance(GemmPrecision precision) {
  return precision == GemmPrecision::kFp8 ? 1e-3f : 1e-4f;
}

// Device memory that is there while the trial runs; null data when there is none.
struct TrialFloats {
  explicit TrialFloats(int64_t count) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, static_cast<size_t>(count) * sizeof(float)) != cudaSuccess) {
      cudaGetLastError();  // told by the result; not an error of the next launch
    } else {
      data = static_cast<float*>(memory);
    }
  }
  ~TrialFloats() {
    if (data != nullptr) check(cudaFree(data), kOp);
  }
  TrialFloats(const TrialFloats&) = delete;
  TrialFloats& operator=(const TrialFloats&) = delete;
  float* data = nullptr;
};

// Rows of a and their results, in device memory. Row i is the same as row i % kDifferentRows.
class TrialRows {
 public:
  TrialRows(const LibraryMatrix& matrix, int64_t num_rows, Stream stream)
      : k_(matrix.k), n_(matrix.n), stream_(stream), a_(num_rows * k_), out_(num_rows * n_) {
    if (!are_there()) return;
    const std::vector<float> values = make(std::min(num_rows, kDifferentRows), k_);
    for (int64_t row = 0; row < num_rows; row += kDifferentRows) {
      const int64_t count = std::min(kDifferentRows, num_rows - row) * k_;
      check(cudaMemcpyAsync(a_.data + row * k_, values.data(), count * sizeof(float),
                            cudaMemcpyHostToDevice, handle()),
            kOp);
    }
    check(cudaStreamSynchronize(handle()), kOp);
  }
  bool are_there() const { return a_.data != nullptr && out_.data != nullptr; }

  TensorView<const float, 2> a(int64_t first, int64_t count) const {
    return {a_.data + first * k_, {count, k_}, {k_, 1}};
  }
  TensorView<float, 2> out(int64_t count) const { return {out_.data, {count, n_}, {n_, 1}}; }
  // The first `count` results, once they are there.
  std::vector<float> results(int64_t count) const {
    std::vector<float> values(static_cast<size_t>(count * n_));
    check(cudaMemcpyAsync(values.data(), out_.data, values.size() * sizeof(float),
                          cudaMemcpyDeviceToHost, handle()),
          kOp);
    check(cudaStreamSynchronize(handle()), kOp);
    return values;
  }

 private:
  static std::vector<float> make(int64_t num_rows, int64_t k) {
    std::vector<float> rows(static_cast<size_t>(num_rows * k));
    uint32_t state = 1;  // of a linear congruential generator
    for (size_t i = 0; i < rows.size(); ++i) {
      state = state * 1664525u + 1013904223u;
      const int64_t row = static_cast<int64_t>(i) / k;
      const int64_t block = static_cast<int64_t>(i) % k / kFp8BlockColumns;
      const int halvings = static_cast<int>((5 * row + 3 * block) % 7);
      rows[i] = std::ldexp(static_cast<float>(static_cast<int32_t>(state)), -31 - halvings);
    }
    return rows;
  }
  cudaStream_t handle() const { return static_cast<cudaStream_t>(stream_.handle); }

  const int64_t k_, n_;
  const Stream stream_;
  const TrialFloats a_, out_;
};

// x and y: [rows, n]. False where one is not finite.
bool are_close(const std::vector<float>& x, const std::vector<float>& y, int64_t n, float within) {
  for (size_t row = 0; row < y.size(); row += static_cast<size_t>(n)) {
    const size_t row_end = row + static_cast<size_t>(n);
    for (size_t first = row; first < row_end; first += kFp8BlockRows) {
      const size_t end = std::min(first + kFp8BlockRows, row_end);
      float largest = 0;
      for (size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(y[i]));
      for (size_t i = first; i < end; ++i) {
        if (!(std::fabs(x[i] - y[i]) <= within * largest)) return false;
      }
    }
  }
  return true;
}

// Of a matrix of zeros, which shows nothing.
bool are_zeros(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

}  // namespace

bool keeps_row_bits(const LibraryGemm& gemm, const LibraryMatrix& matrix, Stream stream) {
  const int64_t n = matrix.n, most = max_library_rows(matrix);
  const TrialRows rows(matrix, std::max(most, kDifferentRows), stream);
  if (!rows.are_there()) return false;
  auto product = [&](int64_t first, int64_t count, std::vector<float>& results) {
    const auto out = rows.out(count);
    if (!run_library_product(gemm, matrix, rows.a(first, count), out, stream)) return false;
    results = rows.results(count);
    return true;
  };
  std::vector<float> all, some;
  if (!product(0, kDifferentRows, all) || are_zeros(all)) return false;
  auto keeps = [&](int64_t first, int64_t count) {
    if (!product(first, count, some)) return false;
    for (int64_t i = 0; i < count; ++i) {
      const float* same_row = &all[static_cast<size_t>((first + i) % kDifferentRows * n)];
      const float* row = &some[static_cast<size_t>(i * n)];
      if (std::memcmp(row, same_row, static_cast<size_t>(n) * sizeof(float)) != 0) return false;
    }
    return true;
  };
  for (int64_t count : kRowCounts) {
    if (count > kDifferentRows) {
      if (count < most && !keeps(0, count)) return false;
      continue;
    }
    const int64_t last = kDifferentRows - count;
    if (!keeps(0, count) || !keeps(last / 3, count) || !keeps(last, count)) return false;
  }
  return keeps(0, most);
}

bool agrees_with_own(const LibraryGemm& gemm, const LibraryMatrix& matrix, const OwnProduct& own,
                     Stream stream) {
  const TrialRows rows(matrix, kRowsForValues, stream);
  if (!rows.are_there()) return false;
  const auto a = rows.a(0, kRowsForValues);
  const auto out = rows.out(kRowsForValues);
  if (!run_library_product(gemm, matrix, a, out, stream)) return false;
  const std::vector<float> got = rows.results(kRowsForValues);
  own(a, out);
  const std::vector<float> want = rows.results(kRowsForValues);
  return are_close(got, want, matrix.n, tolerance(matrix.precision));
}

}  // namespace dhs::cuda
