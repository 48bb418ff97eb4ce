// Ranks on GPUs through NCCL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dhisparse/communicator.h"

namespace dhs {

// As make_nccl_communicators, with the library named: tests bring their own.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> open_nccl_group_of(
    const std::string& library, const std::vector<int>& ordinals);

}  // namespace dhs
