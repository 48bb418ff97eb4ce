#include <cuda_runtime_api.h>

#include "cuda_backend.h"
#include "cuda_error.h"
#include "dhisparse/base.h"

namespace dhs {
namespace {

// The current device becomes `from`.
absl::Status enable(int from, int to) {
  int possible = 0;
  cudaError_t error = cudaDeviceCanAccessPeer(&possible, from, to);
  if (error == cudaSuccess) error = cudaSetDevice(from);
  if (error == cudaSuccess && possible == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("GPU ", from, " cannot address the memory of GPU ", to,
                     "; choose GPUs that NVLink or one PCIe switch connects"));
  }
  if (error == cudaSuccess) error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // it has been heard
  if (error == cudaErrorPeerAccessAlreadyEnabled) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("peer access of GPU ", from, " to GPU ", to, ": ", cuda_error_text(error)));
}

absl::Status enable_all(const std::vector<int>& ordinals) {
  for (int from : ordinals) {
    for (int to : ordinals) {
      if (from != to) DHS_RETURN_IF_ERROR(enable(from, to));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status enable_cuda_peer_access(const std::vector<int>& ordinals) {
  int current = 0;
  if (const cudaError_t error = cudaGetDevice(&current); error != cudaSuccess) {
    cudaGetLastError();  // it has been heard
    return absl::FailedPreconditionError(absl::StrCat("no GPU: ", cuda_error_text(error)));
  }
  const absl::Status status = enable_all(ordinals);
  check_cuda(cudaSetDevice(current), "choose the device");
  return status;
}

}  // namespace dhs
