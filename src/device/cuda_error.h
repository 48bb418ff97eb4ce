// Errors of the CUDA runtime that nobody can recover from.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace dhs {

// "out of memory (cudaErrorMemoryAllocation)".
std::string cuda_error_text(cudaError_t error);

// Logs what was being done and stops the process: after a failed launch or copy no byte on the
// device can be trusted.
[[noreturn]] void cuda_failed(cudaError_t error, const std::string& what);

inline void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) cuda_failed(error, what);
}

}  // namespace dhs
