#include "model/device_weights.h"

#include <algorithm>
#include <cstring>

namespace dhs {
namespace {

constexpr int64_t kStagingBytes = int64_t{4} << 20;

}  // namespace

absl::StatusOr<WeightUploader> WeightUploader::create(Device& device) {
  DHS_ASSIGN_OR_RETURN(MemoryRange staging, device.allocate_host(kStagingBytes));
  return WeightUploader(&device, std::move(staging));
}

absl::StatusOr<MemoryRange> WeightUploader::upload(const void* from, int64_t bytes) {
  DHS_ASSIGN_OR_RETURN(MemoryRange range, device_->allocate(bytes));
  for (int64_t done = 0; done < bytes; done += kStagingBytes) {
    const int64_t piece = std::min(kStagingBytes, bytes - done);
    std::memcpy(staging_.data(), static_cast<const std::byte*>(from) + done,
                static_cast<size_t>(piece));
    device_->copy(range.data() + done, staging_.data(), piece, stream());
    device_->synchronize();
  }
  return range;
}

}  // namespace dhs
