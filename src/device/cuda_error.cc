#include "cuda_error.h"

#include <cstdlib>

#include "dhisparse/base.h"

namespace dhs {

std::string cuda_error_text(cudaError_t error) {
  return absl::StrCat(cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
}

void cuda_failed(cudaError_t error, const std::string& what) {
  log_error("cuda: ", what, ": ", cuda_error_text(error));
  std::abort();
}

}  // namespace dhs
