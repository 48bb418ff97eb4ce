// Memory that the emulated device knows: what cudaMalloc and its kin hand out.
//
// Fresh memory is garbage. Freed memory is overwritten and not given out again for a while, so that
// its use shows. Every allocation is registered with the access checks under a name.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "simt/emu/fiber.h"

namespace simt {

enum class MemoryKind : uint8_t { device, pinned, registered };

struct Allocation {
  AddressRange range;
  MemoryKind kind = MemoryKind::device;
  int device = 0;
  std::string name;
};

class DeviceMemory {
 public:
  cudaError_t allocate(void** data, size_t bytes, MemoryKind kind, int device);
  // `kind`: pinned and device memory are freed by different functions.
  cudaError_t release(void* data, MemoryKind kind);
  cudaError_t add_registered(void* data, size_t bytes);
  cudaError_t remove_registered(void* data);

  size_t device_bytes_in_use(int device) const;
  // The allocation that `address` lies in.
  const Allocation* find(uintptr_t address) const;
  // What is wrong with touching these bytes from the device's or the host's side of a copy.
  std::optional<std::string> fault_of(const void* data, size_t bytes, bool device_side) const;
  // "'cudaMalloc 3' of 4096 bytes" for all that is left.
  std::string leaks() const;

 private:
  void put_into_quarantine(const Allocation& allocation);
  void release_oldest();

  std::map<uintptr_t, Allocation> allocations_;
  std::deque<Allocation> quarantine_;
  size_t quarantine_bytes_ = 0;
  uint64_t num_allocated_ = 0;
};

}  // namespace simt
