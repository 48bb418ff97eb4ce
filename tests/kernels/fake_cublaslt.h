// cuBLASLt as its documentation describes it: products are computed on the host from nothing but
// the descriptions, so that a wrong type, layout, scale mode or address shows in the results or is
// refused. Tests plant faults in its algorithms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/gemm/cublaslt_api.h"

namespace dhs::test {

struct FakeAlgorithm {
  // As the library lists it.
  cublasStatus_t state = CUBLAS_STATUS_SUCCESS;
  int32_t splits = 1;

  // Counts of rows that it asks workspace for; that its check refuses; that its check accepts and a
  // product refuses.
  std::optional<int64_t> rows_with_workspace;
  std::optional<int64_t> refused_rows;
  std::optional<int64_t> rows_refused_late;
  // From this count of rows on it adds blocks of k in falling order.
  std::optional<int64_t> reversed_from_rows;
  // In this block of 128 rows of w, the second block of columns is scaled as in the first 128 rows.
  std::optional<int64_t> misscaled_row_block;
};

struct FakeLibrary {
  std::vector<FakeAlgorithm> algorithms;
  bool can_describe = true;
  bool knows_block_scales = true;  // 12.9 and newer
  int num_alive = 0;               // descriptions that were made and not destroyed
  int num_products = 0;
};
// What the functions of the table work with.
FakeLibrary& fake_library();

// The place of an algorithm in the library's list.
size_t place_of(const cublasLtMatmulAlgo_t& algorithm);

cuda::CublasLtApi fake_cublaslt();

}  // namespace dhs::test
