// device_library: cuBLASLt on one device, and what its matrices have learnt about it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "kernels/gemm/library_gemm.h"
#include "kernels/gemm/library_trial.h"

namespace dhs::cuda {

// Thread-safe; calls wait for each other.
class DeviceLibrary {
 public:
  DeviceLibrary(const CublasLtApi& api, cublasLtHandle_t handle) : api_(api), handle_(handle) {}

  // The algorithm for the matrix, whose values are there; null: it stays with our own kernels. The
  // first matrix of a shape finds the algorithm, and whether that keeps the bits of rows; each one
  // has to agree with `own` for itself, since what its scales are decides whether a wrong one
  // shows. Waits for the stream, on which nothing is being captured. Lives as long as this.
  const LibraryGemm* find(const LibraryMatrix& matrix, const OwnProduct& own, Stream stream);

 private:
  struct Shape {
    GemmPrecision precision;
    int64_t n;
    int64_t padded_k;
    std::unique_ptr<LibraryGemm> gemm;  // null: no algorithm passed
  };
  const Shape* known(const LibraryMatrix& matrix) const;

  const CublasLtApi api_;
  cublasLtHandle_t handle_;
  std::mutex mutex_;
  std::vector<Shape> shapes_;  // guarded by mutex_
};

// Of the current device, loaded the first time that it is asked for; lives as long as the process.
// Null when there is none, and under emulation.
DeviceLibrary* library_of_current_device();

}  // namespace dhs::cuda
