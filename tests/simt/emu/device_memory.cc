#include "simt/emu/device_memory.h"

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "simt/emu/access_checker.h"
#include "simt/emu/garbage.h"

namespace simt {
namespace {

constexpr size_t kAlignment = 256;
constexpr int kFreedGarbage = 0xDD;
constexpr size_t kMaxQuarantineBytes = 64 << 20;

const char* maker_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::device:
      return "cudaMalloc ";
    case MemoryKind::pinned:
      return "cudaHostAlloc ";
    case MemoryKind::registered:
      return "cudaHostRegister ";
  }
  return "";
}

uintptr_t address_of(const void* data) { return reinterpret_cast<uintptr_t>(data); }

}  // namespace

cudaError_t DeviceMemory::allocate(void** data, size_t bytes, MemoryKind kind, int device) {
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  const bool fits = kind != MemoryKind::device ||
                    bytes <= options().device_memory_bytes - device_bytes_in_use(device);
  if (!fits || posix_memalign(data, kAlignment, bytes) != 0) {
    *data = nullptr;
    return cudaErrorMemoryAllocation;
  }
  fill_with_garbage(*data, bytes);
  const uintptr_t begin = address_of(*data);
  Allocation& allocation = allocations_[begin];
  allocation = {
      {begin, begin + bytes}, kind, device, maker_of(kind) + std::to_string(++num_allocated_)};
  buffers().add(allocation.range, allocation.name);
  return cudaSuccess;
}

cudaError_t DeviceMemory::release(void* data, MemoryKind kind) {
  if (data == nullptr) return cudaSuccess;
  const auto found = allocations_.find(address_of(data));
  if (found == allocations_.end() || found->second.kind != kind) return cudaErrorInvalidValue;
  const Allocation allocation = std::move(found->second);
  allocations_.erase(found);
  buffers().retire(allocation.range.begin);
  put_into_quarantine(allocation);
  return cudaSuccess;
}

void DeviceMemory::put_into_quarantine(const Allocation& allocation) {
  void* data = reinterpret_cast<void*>(allocation.range.begin);
  const size_t bytes = allocation.range.end - allocation.range.begin;
  std::memset(data, kFreedGarbage, bytes);
#if DHS_SIMT_ASAN
  __asan_poison_memory_region(data, bytes);
#endif
  quarantine_.push_back(allocation);
  quarantine_bytes_ += bytes;
  while (quarantine_bytes_ > kMaxQuarantineBytes) release_oldest();
}

void DeviceMemory::release_oldest() {
  const AddressRange oldest = quarantine_.front().range;
  void* data = reinterpret_cast<void*>(oldest.begin);
  quarantine_.pop_front();
  quarantine_bytes_ -= oldest.end - oldest.begin;
  buffers().forget_retired(oldest.begin);
#if DHS_SIMT_ASAN
  __asan_unpoison_memory_region(data, oldest.end - oldest.begin);
#endif
  std::free(data);
}

cudaError_t DeviceMemory::add_registered(void* data, size_t bytes) {
  if (data == nullptr || bytes == 0) return cudaErrorInvalidValue;
  const uintptr_t begin = address_of(data);
  const auto next = allocations_.lower_bound(begin);
  const bool hits_next = next != allocations_.end() && next->first < begin + bytes;
  if (hits_next || find(begin) != nullptr) return cudaErrorHostMemoryAlreadyRegistered;
  Allocation& allocation = allocations_[begin];
  allocation = {{begin, begin + bytes},
                MemoryKind::registered,
                0,
                maker_of(MemoryKind::registered) + std::to_string(++num_allocated_)};
  buffers().add(allocation.range, allocation.name);
  return cudaSuccess;
}

cudaError_t DeviceMemory::remove_registered(void* data) {
  const auto found = allocations_.find(address_of(data));
  if (found == allocations_.end() || found->second.kind != MemoryKind::registered) {
    return cudaErrorHostMemoryNotRegistered;
  }
  // Not retired: it is the host's, which may use it for anything.
  buffers().remove(found->first);
  allocations_.erase(found);
  return cudaSuccess;
}

size_t DeviceMemory::device_bytes_in_use(int device) const {
  size_t bytes = 0;
  for (const auto& [begin, allocation] : allocations_) {
    const bool counts = allocation.kind == MemoryKind::device && allocation.device == device;
    bytes += counts ? allocation.range.end - begin : 0;
  }
  return bytes;
}

const Allocation* DeviceMemory::find(uintptr_t address) const {
  const auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  const Allocation& candidate = std::prev(next)->second;
  return candidate.range.contains(address) ? &candidate : nullptr;
}

std::optional<std::string> DeviceMemory::fault_of(const void* data, size_t bytes,
                                                  bool device_side) const {
  const uintptr_t begin = address_of(data);
  if (bytes == 0 || buffers().find(begin, bytes) != nullptr) return std::nullopt;
  const std::string what = std::to_string(bytes) + " bytes at " + buffers().describe(begin);
  // Ordinary host memory is no allocation of ours, so only its overlap with one can be judged.
  const bool touches_allocation = find(begin) != nullptr || buffers().is_retired(begin);
  if (device_side || touches_allocation) return what;
  return std::nullopt;
}

std::string DeviceMemory::leaks() const {
  std::string text;
  for (const auto& [begin, allocation] : allocations_) {
    text +=
        "'" + allocation.name + "' of " + std::to_string(allocation.range.end - begin) + " bytes; ";
  }
  return text;
}

}  // namespace simt
