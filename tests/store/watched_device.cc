#include "watched_device.h"

#include <gtest/gtest.h>

#include "kernels/test_memory.h"

namespace dhs {

WatchedDevice::WatchedDevice()
    : device_(*open_device(
          {.backend = test::kOnCuda ? BackendKind::kCuda : BackendKind::kCpu, .num_threads = 2})) {}

absl::Status WatchedDevice::next() {
  const int index = num_reservations_++;
  if (refused_ == index) return absl::ResourceExhaustedError(absl::StrCat("refused ", index));
  return absl::OkStatus();
}

absl::StatusOr<MemoryRange> WatchedDevice::allocate(int64_t bytes) {
  DHS_RETURN_IF_ERROR(next());
  DHS_ASSIGN_OR_RETURN(MemoryRange range, device_->allocate(bytes));
  device_reservations_.push_back({range.data(), bytes});
  return range;
}

absl::StatusOr<MemoryRange> WatchedDevice::allocate_host(int64_t bytes) {
  DHS_RETURN_IF_ERROR(next());
  DHS_ASSIGN_OR_RETURN(MemoryRange range, device_->allocate_host(bytes));
  host_reservations_.push_back({range.data(), bytes});
  return range;
}

std::byte* WatchedDevice::device_memory(int64_t bytes) const {
  std::byte* found = nullptr;
  for (const Reservation& reservation : device_reservations_) {
    if (reservation.bytes != bytes) continue;
    EXPECT_EQ(found, nullptr) << "two device reservations of " << bytes << " bytes";
    found = reservation.data;
  }
  EXPECT_NE(found, nullptr) << "no device reservation of " << bytes << " bytes";
  return found;
}

}  // namespace dhs
