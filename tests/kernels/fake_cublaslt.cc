#include "kernels/fake_cublaslt.h"

#include <algorithm>
#include <cstring>

#include "dhisparse/tensor.h"
#include "kernels/test_memory.h"

namespace dhs::test {
namespace {

constexpr int64_t kBlock = 128;
constexpr size_t kAlignment = 16;
constexpr int32_t kScalar = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
constexpr int32_t kPerBlock = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
constexpr int32_t kPerColumns = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;

struct Scales {
  int32_t mode = kScalar;
  const float* data = nullptr;  // null: 1
};

struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale_type;
  cublasOperation_t turn_a = CUBLAS_OP_N;
  cublasOperation_t turn_b = CUBLAS_OP_N;
  Scales a, b;
};

// Column-major.
struct Layout {
  cudaDataType_t type;
  int64_t rows;
  int64_t columns;
  int64_t stride;
};

struct Described {
  const Operation& operation;
  const Layout &a, &b, &c, &d;
};

Described described(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  auto layout = [](cublasLtMatrixLayout_t made) -> const Layout& {
    return *reinterpret_cast<const Layout*>(made);
  };
  return {*reinterpret_cast<const Operation*>(desc), layout(a), layout(b), layout(c), layout(d)};
}

const FakeAlgorithm& algorithm_of(const cublasLtMatmulAlgo_t& algorithm) {
  return fake_library().algorithms.at(place_of(algorithm));
}

// ---- What the library accepts -------------------------------------------------------------------

int64_t size_of(cudaDataType_t type) {
  if (type == CUDA_R_8F_E4M3) return 1;
  return type == CUDA_R_16BF ? 2 : 4;
}

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kAlignment == 0; }

bool is_aligned(const Layout& layout) {
  return static_cast<size_t>(layout.stride * size_of(layout.type)) % kAlignment == 0 &&
         layout.stride >= layout.rows;
}

bool has_block_scales(const Operation& operation) {
  return operation.a.mode != kScalar || operation.b.mode != kScalar;
}

bool are_supported_scales(const Described& product) {
  const Scales &a = product.operation.a, &b = product.operation.b;
  if (!has_block_scales(product.operation)) return true;
  const bool are_modes = (a.mode == kPerColumns && b.mode == kPerColumns) ||
                         (a.mode == kPerBlock && b.mode == kPerColumns) ||
                         (a.mode == kPerColumns && b.mode == kPerBlock);
  return are_modes && product.a.type == CUDA_R_8F_E4M3 && product.d.rows % 4 == 0 &&
         product.d.columns % 4 == 0 && a.data != nullptr && is_aligned(a.data) &&
         b.data != nullptr && is_aligned(b.data);
}

// op(A) is A turned: [m, k], op(B) is B: [k, n].
bool is_supported(const Described& product) {
  const Operation& operation = product.operation;
  const bool are_types = (product.a.type == CUDA_R_16BF || product.a.type == CUDA_R_8F_E4M3) &&
                         product.b.type == product.a.type && product.d.type == CUDA_R_32F &&
                         product.c.type == CUDA_R_32F;
  const bool is_shape = product.a.rows == product.b.rows && product.d.rows == product.a.columns &&
                        product.d.columns == product.b.columns;
  return operation.compute == CUBLAS_COMPUTE_32F && operation.scale_type == CUDA_R_32F &&
         operation.turn_a == CUBLAS_OP_T && operation.turn_b == CUBLAS_OP_N && are_types &&
         is_shape && is_aligned(product.a) && is_aligned(product.b) && is_aligned(product.d) &&
         are_supported_scales(product);
}

// ---- What it computes ---------------------------------------------------------------------------

int64_t num_blocks(const Layout& layout) { return (layout.rows + kBlock - 1) / kBlock; }
int64_t by_four(int64_t count) { return (count + 3) / 4 * 4; }

template <class T>
std::vector<T> downloaded(const void* data, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  copy(values.data(), data, values.size() * sizeof(T));
  return values;
}

// An operand on the host: columns of k values, each block of which has a scale.
struct Operand {
  std::vector<float> values;  // [columns, k]
  std::vector<float> scales;  // [columns, blocks]
};

std::vector<float> values_of(const Layout& layout, const void* data) {
  const int64_t count = layout.columns * layout.stride;
  std::vector<float> all;
  if (layout.type == CUDA_R_8F_E4M3) {
    for (F8E4m3 bits : downloaded<F8E4m3>(data, count)) all.push_back(f8e4m3_to_f32(bits));
  } else {
    for (Bf16 bits : downloaded<Bf16>(data, count)) all.push_back(bf16_to_f32(bits));
  }
  std::vector<float> dense;
  for (int64_t column = 0; column < layout.columns; ++column) {
    const auto begin = all.begin() + column * layout.stride;
    dense.insert(dense.end(), begin, begin + layout.rows);
  }
  return dense;
}

std::vector<float> scales_of(const Layout& layout, const Scales& scales) {
  const int64_t blocks = num_blocks(layout);
  if (scales.data == nullptr) return std::vector<float>(layout.columns * blocks, 1.0f);
  if (scales.mode == kScalar) {
    const float scale = downloaded<float>(scales.data, 1)[0];
    return std::vector<float>(layout.columns * blocks, scale);
  }
  // Per block: a block of columns has its blocks of k side by side, by fours. Per columns: a block
  // of k has its columns side by side.
  const bool is_per_block = scales.mode == kPerBlock;
  const int64_t row_blocks = (layout.columns + kBlock - 1) / kBlock;
  const int64_t stored = is_per_block ? by_four(blocks) * row_blocks : layout.columns * blocks;
  const auto all = downloaded<float>(scales.data, stored);
  std::vector<float> dense;
  for (int64_t column = 0; column < layout.columns; ++column) {
    for (int64_t block = 0; block < blocks; ++block) {
      dense.push_back(all[is_per_block ? column / kBlock * by_four(blocks) + block
                                       : block * layout.columns + column]);
    }
  }
  return dense;
}

float block_sum(const float* a, const float* b, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// One output; blocks in rising or in falling order.
struct OperandRow {
  const Operand& operand;
  int64_t row;
};
float dot(OperandRow a_row, OperandRow b_row, int64_t k, bool is_reversed) {
  const auto& [a, i] = a_row;
  const auto& [b, j] = b_row;
  const int64_t blocks = (k + kBlock - 1) / kBlock;
  float sum = 0;
  for (int64_t turn = 0; turn < blocks; ++turn) {
    const int64_t block = is_reversed ? blocks - 1 - turn : turn;
    const int64_t first = block * kBlock;
    const float scale = a.scales[i * blocks + block] * b.scales[j * blocks + block];
    sum += scale * block_sum(&a.values[i * k + first], &b.values[j * k + first],
                             std::min(kBlock, k - first));
  }
  return sum;
}

void misscale(Operand& w, int64_t row_block, int64_t blocks) {
  for (int64_t row = row_block * kBlock; row < (row_block + 1) * kBlock; ++row) {
    const auto place = static_cast<size_t>(row * blocks + 1);
    if (blocks > 1 && place < w.scales.size()) w.scales[place] = w.scales[1];
  }
}

struct Addresses {
  const void* a;
  const void* b;
  float* d;
};

void compute(const Described& product, const FakeAlgorithm& algorithm, float alpha,
             const Addresses& at) {
  const int64_t m = product.d.rows, n = product.d.columns, k = product.a.rows;
  Operand of_a{values_of(product.a, at.a), scales_of(product.a, product.operation.a)};
  const Operand of_b{values_of(product.b, at.b), scales_of(product.b, product.operation.b)};
  if (algorithm.misscaled_row_block) {
    misscale(of_a, *algorithm.misscaled_row_block, num_blocks(product.a));
  }
  const bool is_reversed = algorithm.reversed_from_rows && n >= *algorithm.reversed_from_rows;
  std::vector<float> column(static_cast<size_t>(m));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) {
      column[i] = alpha * dot({of_a, i}, {of_b, j}, k, is_reversed);
    }
    copy(at.d + j * product.d.stride, column.data(), column.size() * sizeof(float));
  }
}

// ---- The table ----------------------------------------------------------------------------------

template <class Handle, class Object>
cublasStatus_t give(Handle* handle, const Object& object) {
  if (!fake_library().can_describe) return CUBLAS_STATUS_ALLOC_FAILED;
  ++fake_library().num_alive;
  *handle = reinterpret_cast<Handle>(new Object(object));
  return CUBLAS_STATUS_SUCCESS;
}

template <class Object, class Handle>
cublasStatus_t take_back(Handle handle) {
  delete reinterpret_cast<Object*>(handle);
  --fake_library().num_alive;
  return CUBLAS_STATUS_SUCCESS;
}

struct Preference {};

template <class T>
cublasStatus_t set_value(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_attribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                             const void* value, size_t bytes) {
  auto& operation = *reinterpret_cast<Operation*>(desc);
  const bool knows = fake_library().knows_block_scales;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set_value(operation.turn_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set_value(operation.turn_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set_value(operation.a.data, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set_value(operation.b.data, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return knows ? set_value(operation.a.mode, value, bytes) : CUBLAS_STATUS_INVALID_VALUE;
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return knows ? set_value(operation.b.mode, value, bytes) : CUBLAS_STATUS_INVALID_VALUE;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtListAlgorithms(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                      cublasLtMatmulPreference_t, int most,
                                      cublasLtMatmulHeuristicResult_t* results, int* count) {
  *count = 0;
  if (!is_supported(described(desc, a, b, c, d))) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto& algorithms = fake_library().algorithms;
  *count = std::min(most, static_cast<int>(algorithms.size()));
  for (int i = 0; i < *count; ++i) {
    results[i] = {};
    results[i].algo.data[0] = static_cast<uint64_t>(i);
    results[i].state = algorithms[i].state;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCheckAlgorithm(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                      const cublasLtMatmulAlgo_t* algo,
                                      cublasLtMatmulHeuristicResult_t* result) {
  const Described product = described(desc, a, b, c, d);
  const FakeAlgorithm& algorithm = algorithm_of(*algo);
  if (!is_supported(product)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algorithm.refused_rows == product.d.columns) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->workspaceSize = algorithm.rows_with_workspace == product.d.columns ? 1 : 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t tell_splits(const cublasLtMatmulAlgo_t* algorithm,
                           cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                           size_t bytes, size_t* written) {
  if (attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM || bytes != sizeof(int32_t)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(value, &algorithm_of(*algorithm).splits, sizeof(int32_t));
  *written = sizeof(int32_t);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMultiply(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                                const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                                cublasLtMatrixLayout_t c_layout, void* d,
                                cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                                void*, size_t, cudaStream_t) {
  const Described product = described(desc, a_layout, b_layout, c_layout, d_layout);
  const FakeAlgorithm& algorithm = algorithm_of(*algo);
  const bool is_plain = *static_cast<const float*>(beta) == 0 && c == d;
  const bool are_aligned = is_aligned(a) && is_aligned(b) && is_aligned(d);
  if (!is_plain || !are_aligned || !is_supported(product) ||
      algorithm.refused_rows == product.d.columns ||
      algorithm.rows_refused_late == product.d.columns) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  ++fake_library().num_products;
  // The host computes at once, so what was queued before is waited for.
  compute(product, algorithm, *static_cast<const float*>(alpha), {a, b, static_cast<float*>(d)});
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

FakeLibrary& fake_library() {
  static FakeLibrary library;
  return library;
}

size_t place_of(const cublasLtMatmulAlgo_t& algorithm) { return algorithm.data[0]; }

cuda::CublasLtApi fake_cublaslt() {
  cuda::CublasLtApi api;
  api.desc_create = [](cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                       cudaDataType_t scale_type) {
    return give(desc, Operation{.compute = compute, .scale_type = scale_type});
  };
  api.layout_create = [](cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                         uint64_t columns, int64_t stride) {
    return give(layout, Layout{type, int64_t(rows), int64_t(columns), stride});
  };
  api.preference_create = [](cublasLtMatmulPreference_t* made) { return give(made, Preference{}); };
  api.desc_destroy = [](cublasLtMatmulDesc_t made) { return take_back<Operation>(made); };
  api.layout_destroy = [](cublasLtMatrixLayout_t made) { return take_back<Layout>(made); };
  api.preference_destroy = [](cublasLtMatmulPreference_t made) {
    return take_back<Preference>(made);
  };
  api.desc_set = set_attribute;
  api.preference_set = [](cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                          const void*, size_t) { return CUBLAS_STATUS_SUCCESS; };
  api.get_heuristic = cublasLtListAlgorithms;
  api.algo_check = cublasLtCheckAlgorithm;
  api.algo_config_get = tell_splits;
  api.matmul = cublasLtMultiply;
  return api;
}

}  // namespace dhs::test
