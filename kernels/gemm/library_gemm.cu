// library_gemm: calls into cuBLASLt, and the trial of what it offers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "dhisparse/tensor.h"
#include "kernels/cuda/launch.h"
#include "kernels/gemm/library_gemm.h"

namespace dhs::cuda {
namespace {

constexpr int64_t kMiddlingRows = 128;  // what algorithms are searched for
constexpr int kMaxNumCandidates = 8;
constexpr uint32_t kOperandAlignment = 16;

// The library's description of one product; destroyed with it.
class Description {
 public:
  // Column-major as the library sees it: out^T = w a^T, w turned.
  Description(const CublasLtApi& api, const LibraryOperands& operands) : api_(api) {
    const cublasOperation_t turned = CUBLAS_OP_T;
    const auto m = uint64_t(operands.m), n = uint64_t(operands.n), k = uint64_t(operands.k);
    is_complete_ =
        is_ok(api.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
        is_ok(api.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof(turned))) &&
        is_ok(api.layout_create(&w, CUDA_R_16BF, k, n, operands.k)) &&
        is_ok(api.layout_create(&a, CUDA_R_16BF, k, m, operands.k)) &&
        is_ok(api.layout_create(&out, CUDA_R_32F, n, m, operands.out_stride));
  }
  ~Description() {
    if (desc != nullptr) api_.desc_destroy(desc);
    for (cublasLtMatrixLayout_t layout : {w, a, out}) {
      if (layout != nullptr) api_.layout_destroy(layout);
    }
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  bool is_complete() const { return is_complete_; }

  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, a = nullptr, out = nullptr;

 private:
  static bool is_ok(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }

  const CublasLtApi& api_;
  bool is_complete_ = false;
};

// No workspace and no reduction between blocks: a block computes its outputs alone.
bool set_preferences(const CublasLtApi& api, cublasLtMatmulPreference_t preference) {
  const uint64_t no_workspace = 0;
  const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return api.preference_set(preference, attribute, &value, sizeof(value)) ==
           CUBLAS_STATUS_SUCCESS;
  };
  return set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, no_workspace) &&
         set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, no_reduction) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kOperandAlignment) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kOperandAlignment) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kOperandAlignment) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kOperandAlignment);
}

struct Candidates {
  cublasLtMatmulHeuristicResult_t results[kMaxNumCandidates];
  int count = 0;
};

Candidates find_candidates(const CublasLtApi& api, cublasLtHandle_t handle,
                           const Description& description) {
  Candidates found;
  cublasLtMatmulPreference_t preference = nullptr;
  if (api.preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return found;
  if (set_preferences(api, preference)) {
    const auto status = api.get_heuristic(handle, description.desc, description.w, description.a,
                                          description.out, description.out, preference,
                                          kMaxNumCandidates, found.results, &found.count);
    if (status != CUBLAS_STATUS_SUCCESS) found.count = 0;
  }
  api.preference_destroy(preference);
  return found;
}

bool splits_k(const CublasLtApi& api, const cublasLtMatmulAlgo_t& algorithm) {
  int32_t splits = 0;
  size_t written = 0;
  const auto status = api.algo_config_get(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                          sizeof(splits), &written);
  return status != CUBLAS_STATUS_SUCCESS || splits > 1;
}

}  // namespace

std::unique_ptr<LibraryGemm> LibraryGemm::make(const CublasLtApi& api, cublasLtHandle_t handle,
                                               int64_t n, int64_t k, const Trial& trial) {
  const Description description(api, {.m = kMiddlingRows, .n = n, .k = k, .out_stride = n});
  if (!description.is_complete()) return nullptr;
  std::unique_ptr<LibraryGemm> gemm(new LibraryGemm(api, handle));
  const Candidates found = find_candidates(api, handle, description);
  for (int i = 0; i < found.count; ++i) {
    const auto& candidate = found.results[i];
    if (candidate.state != CUBLAS_STATUS_SUCCESS || candidate.workspaceSize > 0) continue;
    if (splits_k(api, candidate.algo)) continue;
    gemm->algorithm_ = candidate.algo;
    if (trial(*gemm)) return gemm;
  }
  return nullptr;
}

bool LibraryGemm::run(const LibraryOperands& operands, Stream stream) const {
  const Description description(api_, operands);
  if (!description.is_complete()) return false;
  const float one = 1, zero = 0;
  const auto status = api_.matmul(handle_, description.desc, &one, operands.w, description.w,
                                  operands.a, description.a, &zero, operands.out, description.out,
                                  operands.out, description.out, &algorithm_, nullptr, 0,
                                  static_cast<cudaStream_t>(stream.handle));
  return status == CUBLAS_STATUS_SUCCESS;
}

// ---- Rounding rows: a thread per eight columns, 128 threads, grid (column blocks, rows). --------

namespace {

constexpr int kRoundThreads = 128;
constexpr int kColumnsPerThread = 8;

__global__ void __launch_bounds__(kRoundThreads) round_rows_kernel(RoundRows rows) {
  const int64_t first = (int64_t{blockIdx.x} * kRoundThreads + threadIdx.x) * kColumnsPerThread;
  if (first >= rows.padded_k) return;
  for (int64_t row = blockIdx.y; row < rows.m; row += gridDim.y) {
    const float* from = rows.from + row * rows.from_stride;
    auto* to = static_cast<__nv_bfloat16*>(rows.to) + row * rows.padded_k;
    for (int64_t i = first; i < first + kColumnsPerThread; ++i) {
      to[i] = __float2bfloat16_rn(i < rows.k ? from[i] : 0.0f);
    }
  }
}

}  // namespace

void launch_round_rows(const RoundRows& rows, Stream stream) {
  constexpr int64_t kColumns = kRoundThreads * kColumnsPerThread;
  constexpr int64_t kMaxGridRows = 65535;
  const int64_t column_blocks = (rows.padded_k + kColumns - 1) / kColumns;
  launch("gemm_round_rows", round_rows_kernel,
         {.grid = {unsigned(column_blocks), unsigned(std::min(rows.m, kMaxGridRows))},
          .block = kRoundThreads},
         stream, rows);
}

// ---- The trial ----------------------------------------------------------------------------------

namespace {

constexpr int64_t kTrialRows = 200;

// Device memory that is there while the trial runs; null data when there is none.
template <class T>
struct TrialArray {
  explicit TrialArray(int64_t count) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, static_cast<size_t>(count) * sizeof(T)) != cudaSuccess) {
      cudaGetLastError();
    } else {
      data = static_cast<T*>(memory);
    }
  }
  ~TrialArray() {
    if (data != nullptr) check(cudaFree(data), "gemm trial");
  }
  TrialArray(const TrialArray&) = delete;
  TrialArray& operator=(const TrialArray&) = delete;
  T* data = nullptr;
};

std::vector<float> downloaded(const float* data, int64_t count, Stream stream) {
  std::vector<float> values(static_cast<size_t>(count));
  const auto handle = static_cast<cudaStream_t>(stream.handle);
  check(cudaMemcpyAsync(values.data(), data, values.size() * sizeof(float), cudaMemcpyDeviceToHost,
                        handle),
        "gemm trial");
  check(cudaStreamSynchronize(handle), "gemm trial");
  return values;
}

std::vector<float> trial_rows(int64_t k) {
  std::vector<float> rows(static_cast<size_t>(kTrialRows * k));
  uint32_t state = 1;  // of a linear congruential generator
  for (float& value : rows) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return rows;
}

bool is_close(const std::vector<float>& x, const std::vector<float>& y) {
  float largest = 0;
  for (float value : y) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < y.size(); ++i) {
    if (!(std::fabs(x[i] - y[i]) <= 1e-4f * largest)) return false;
  }
  return true;
}

}  // namespace

bool library_keeps_bits(const LibraryGemm& gemm, const LibraryOperands& shape,
                        const OwnProduct& own_product, Stream stream) {
  const int64_t n = shape.n, k = shape.k;
  const TrialArray<float> a(kTrialRows * k), out(kTrialRows * n);
  const TrialArray<Bf16> rounded(kTrialRows * k);
  if (a.data == nullptr || out.data == nullptr || rounded.data == nullptr) return false;
  const std::vector<float> rows = trial_rows(k);
  check(cudaMemcpyAsync(a.data, rows.data(), rows.size() * sizeof(float), cudaMemcpyHostToDevice,
                        static_cast<cudaStream_t>(stream.handle)),
        "gemm trial");
  launch_round_rows({.from = a.data,
                     .from_stride = k,
                     .m = kTrialRows,
                     .k = k,
                     .to = rounded.data,
                     .padded_k = k},
                    stream);
  auto product = [&](int64_t first, int64_t m, std::vector<float>& values) {
    LibraryOperands operands = shape;
    operands.m = m;
    operands.a = rounded.data + first * k;
    operands.out = out.data;
    operands.out_stride = n;
    if (!gemm.run(operands, stream)) return false;
    values = downloaded(out.data, m * n, stream);
    return true;
  };
  std::vector<float> all, some;
  if (!product(0, kTrialRows, all)) return false;
  for (int64_t m : {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100, 127, 128, 129, 190}) {
    for (int64_t first : {int64_t{0}, (kTrialRows - m) / 3, kTrialRows - m}) {
      if (!product(first, m, some)) return false;
      if (std::memcmp(some.data(), all.data() + first * n, some.size() * sizeof(float)) != 0) {
        return false;
      }
    }
  }
  own_product(kTrialRows, a.data, out.data);
  return is_close(all, downloaded(out.data, kTrialRows * n, stream));
}

#if defined(__CUDACC__)

namespace {

struct LibraryShape {
  int64_t n;
  int64_t k;
  std::unique_ptr<LibraryGemm> gemm;  // null: no algorithm passed
};

// What a device's shapes share; never destroyed, since matrices point into it.
struct DeviceLibrary {
  int device;
  CublasLtApi api;
  cublasLtHandle_t handle = nullptr;  // null: no library
  std::vector<LibraryShape> shapes;
};

DeviceLibrary& library_of(int device) {
  static auto& devices = *new std::vector<std::unique_ptr<DeviceLibrary>>;
  for (const auto& known : devices) {
    if (known->device == device) return *known;
  }
  devices.push_back(std::make_unique<DeviceLibrary>());
  DeviceLibrary& library = *devices.back();
  library.device = device;
  if (load_cublaslt(load_library_symbol, library.api) &&
      library.api.create(&library.handle) != CUBLAS_STATUS_SUCCESS) {
    library.handle = nullptr;
  }
  return library;
}

}  // namespace

const LibraryGemm* library_gemm_for(const LibraryOperands& shape, const OwnProduct& own_product,
                                    Stream stream) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  int device = 0;
  check(cudaGetDevice(&device), "cublasLt");
  DeviceLibrary& library = library_of(device);
  if (library.handle == nullptr) return nullptr;
  for (const LibraryShape& known : library.shapes) {
    if (known.n == shape.n && known.k == shape.k) return known.gemm.get();
  }
  const LibraryGemm::Trial trial = [&](const LibraryGemm& gemm) {
    return library_keeps_bits(gemm, shape, own_product, stream);
  };
  auto gemm = LibraryGemm::make(library.api, library.handle, shape.n, shape.k, trial);
  library.shapes.push_back({shape.n, shape.k, std::move(gemm)});
  return library.shapes.back().gemm.get();
}

#else  // under emulation the library would look for a real device

const LibraryGemm* library_gemm_for(const LibraryOperands&, const OwnProduct&, Stream) {
  return nullptr;
}

#endif

}  // namespace dhs::cuda
