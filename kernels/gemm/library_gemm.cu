// library_gemm: the library's descriptions of a product, and the choice among its algorithms.
#include "kernels/cuda/cuda.h"
#include "kernels/gemm/library_gemm.h"

namespace dhs::cuda {
namespace {

constexpr int64_t kMiddlingRows = 128;  // what algorithms are searched for
constexpr int kMaxNumCandidates = 8;
constexpr uint32_t kOperandAlignment = 16;

bool is_ok(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }

// The library's description of one product; destroyed with it.
class Description {
 public:
  // Column-major as the library sees it: out^T = w a^T, w turned.
  Description(const CublasLtApi& api, const LibraryMatrix& matrix, const LibraryRows& rows)
      : api_(api) {
    const bool is_fp8 = matrix.precision == GemmPrecision::kFp8;
    const cudaDataType_t type = is_fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const auto m = uint64_t(rows.m), n = uint64_t(matrix.n), k = uint64_t(matrix.padded_k);
    is_complete_ = is_ok(api.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
                   set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T) &&
                   (!is_fp8 || set_scales(matrix.scales, rows.scales)) &&
                   is_ok(api.layout_create(&w, type, k, n, matrix.padded_k)) &&
                   is_ok(api.layout_create(&a, type, k, m, matrix.padded_k)) &&
                   is_ok(api.layout_create(&out, CUDA_R_32F, n, m, matrix.n));
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
  template <class T>
  bool set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return is_ok(api_.desc_set(desc, attribute, &value, sizeof(value)));
  }
  // The library's A is w with a scale per 128 x 128 block, its B is a with one per 128 columns.
  bool set_scales(const float* w_scales, const float* a_scales) {
    constexpr int32_t kPerBlock = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    constexpr int32_t kPerColumns = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    return set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kPerBlock) &&
           set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kPerColumns) &&
           set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, w_scales) &&
           set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a_scales);
  }

  const CublasLtApi& api_;
  bool is_complete_ = false;
};

// Rows to ask about: an address that nobody follows stands for any that is there later.
LibraryRows rows_to_ask_about(const LibraryMatrix& matrix, int64_t m) {
  return {.m = m, .a = matrix.w, .scales = matrix.scales};
}

// No workspace and no reduction between blocks: a block computes its outputs alone.
bool set_preferences(const CublasLtApi& api, cublasLtMatmulPreference_t preference) {
  const uint64_t no_workspace = 0;
  const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return is_ok(api.preference_set(preference, attribute, &value, sizeof(value)));
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
  if (!is_ok(api.preference_create(&preference))) return found;
  if (set_preferences(api, preference)) {
    const auto status = api.get_heuristic(handle, description.desc, description.w, description.a,
                                          description.out, description.out, preference,
                                          kMaxNumCandidates, found.results, &found.count);
    if (!is_ok(status)) found.count = 0;
  }
  api.preference_destroy(preference);
  return found;
}

bool splits_k(const CublasLtApi& api, const cublasLtMatmulAlgo_t& algorithm) {
  int32_t splits = 0;
  size_t written = 0;
  const auto status = api.algo_config_get(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                          sizeof(splits), &written);
  return !is_ok(status) || splits > 1;
}

}  // namespace

std::unique_ptr<LibraryGemm> LibraryGemm::make(const CublasLtApi& api, cublasLtHandle_t handle,
                                               const LibraryMatrix& matrix, const Trial& trial) {
  const Description description(api, matrix, rows_to_ask_about(matrix, kMiddlingRows));
  if (!description.is_complete()) return nullptr;
  std::unique_ptr<LibraryGemm> gemm(new LibraryGemm(api, handle));
  const Candidates found = find_candidates(api, handle, description);
  for (int i = 0; i < found.count; ++i) {
    const auto& candidate = found.results[i];
    if (!is_ok(candidate.state) || splits_k(api, candidate.algo)) continue;
    gemm->algorithm_ = candidate.algo;
    if (gemm->accepts_every_row_count(matrix) && trial(*gemm)) return gemm;
  }
  return nullptr;
}

bool LibraryGemm::accepts(const LibraryMatrix& matrix, int64_t m) const {
  const Description description(api_, matrix, rows_to_ask_about(matrix, m));
  cublasLtMatmulHeuristicResult_t result{};
  return description.is_complete() &&
         is_ok(api_.algo_check(handle_, description.desc, description.w, description.a,
                               description.out, description.out, &algorithm_, &result)) &&
         is_ok(result.state) && result.workspaceSize == 0;
}

bool LibraryGemm::accepts_every_row_count(const LibraryMatrix& matrix) const {
  const int64_t step = library_row_step(matrix.precision);
  for (int64_t m = step; m <= max_library_rows(matrix); m += step) {
    if (!accepts(matrix, m)) return false;
  }
  return true;
}

bool LibraryGemm::run(const LibraryMatrix& matrix, const LibraryRows& rows, Stream stream) const {
  const Description description(api_, matrix, rows);
  if (!description.is_complete()) return false;
  const float one = 1, zero = 0;
  return is_ok(api_.matmul(handle_, description.desc, &one, matrix.w, description.w, rows.a,
                           description.a, &zero, rows.out, description.out, rows.out,
                           description.out, &algorithm_, nullptr, 0,
                           static_cast<cudaStream_t>(stream.handle)));
}

}  // namespace dhs::cuda
