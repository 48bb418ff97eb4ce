#include "dhisparse/communicator.h"

#include "cuda_backend.h"

namespace dhs {

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> make_nccl_communicators(
    const std::vector<int>& ordinals) {
  if (&open_nccl_group == nullptr) return absl::FailedPreconditionError(kNoCudaInProgram);
  return open_nccl_group(ordinals);
}

absl::Status enable_peer_access(const std::vector<int>& ordinals) {
  if (&enable_cuda_peer_access == nullptr) return absl::FailedPreconditionError(kNoCudaInProgram);
  return enable_cuda_peer_access(ordinals);
}

}  // namespace dhs
