// A device, the CPU or an emulated GPU, with a record of every reservation: tests look at the bytes
// of both tiers, dirty them, and make a reservation fail.
#pragma once

#include <memory>
#include <vector>

#include "dhisparse/device.h"

namespace dhs {

class WatchedDevice final : public Device {
 public:
  struct Reservation {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };

  WatchedDevice();

  BackendKind kind() const override { return device_->kind(); }
  std::string description() const override { return device_->description(); }
  absl::StatusOr<MemoryRange> allocate(int64_t bytes) override;
  absl::StatusOr<MemoryRange> allocate_host(int64_t bytes) override;
  Stream stream() override { return device_->stream(); }
  Stream copy_stream() override { return device_->copy_stream(); }
  std::unique_ptr<Event> make_event() override { return device_->make_event(); }
  void copy(void* to, const void* from, int64_t bytes, Stream stream) override {
    device_->copy(to, from, bytes, stream);
  }
  void fill(void* to, std::byte value, int64_t bytes, Stream stream) override {
    device_->fill(to, value, bytes, stream);
  }
  void synchronize() override { device_->synchronize(); }
  bool has_graphs() const override { return device_->has_graphs(); }
  void begin_capture() override { device_->begin_capture(); }
  std::unique_ptr<Graph> end_capture() override { return device_->end_capture(); }
  void launch(const Graph& graph) override { device_->launch(graph); }

  const std::vector<Reservation>& device_reservations() const { return device_reservations_; }
  const std::vector<Reservation>& host_reservations() const { return host_reservations_; }
  // The device reservation of that size; fails the test unless there is exactly one.
  std::byte* device_memory(int64_t bytes) const;
  // Reservation number `index` (0-based, both kinds counted together) is refused.
  void refuse(int index) { refused_ = index; }
  int num_reservations() const { return num_reservations_; }

 private:
  absl::Status next();

  std::unique_ptr<Device> device_;
  std::vector<Reservation> device_reservations_;
  std::vector<Reservation> host_reservations_;
  int num_reservations_ = 0;
  std::optional<int> refused_;
};

}  // namespace dhs
