// What the CUDA objects bring into a program that links them. Weak: null in every other program.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <vector>

#include "dhisparse/communicator.h"
#include "dhisparse/device.h"

namespace dhs {

inline constexpr char kNoCudaInProgram[] = "this program was built without CUDA; use cpu or auto";

// FAILED_PRECONDITION says why no GPU can be used: the value, the limit and the remedy.
[[gnu::weak]] absl::StatusOr<std::unique_ptr<Device>> open_cuda_device(const DeviceConfig& config);

[[gnu::weak]] absl::Status enable_cuda_peer_access(const std::vector<int>& ordinals);

[[gnu::weak]] absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> open_nccl_group(
    const std::vector<int>& ordinals);

// Queues the copy, either end of either tier, and returns when it is done.
[[gnu::weak]] void copy_and_wait_cuda(void* to, const void* from, int64_t bytes, Stream stream);

}  // namespace dhs
