#include "dhisparse/upload.h"

#include <cstring>

namespace dhs {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

absl::StatusOr<Uploader> Uploader::create(Device& device, int64_t bytes_per_step) {
  Uploader uploader;
  uploader.device_ = &device;
  uploader.half_bytes_ = round_up(bytes_per_step, kAlignment);
  DHS_ASSIGN_OR_RETURN(uploader.staging_, device.allocate_host(2 * uploader.half_bytes_));
  return uploader;
}

void Uploader::begin_step() {
  half_ = 1 - half_;
  used_ = 0;
}

void Uploader::upload_bytes(const void* from, int64_t bytes, void* to, Stream stream) {
  if (bytes == 0) return;
  DHS_CHECK(used_ + bytes <= half_bytes_, "uploads of ", used_ + bytes, " bytes in one step, ",
            half_bytes_, " reserved");
  std::byte* staged = staging_.data() + half_ * half_bytes_ + used_;
  used_ += round_up(bytes, kAlignment);
  std::memcpy(staged, from, static_cast<size_t>(bytes));
  device_->copy(to, staged, bytes, stream);
}

}  // namespace dhs
