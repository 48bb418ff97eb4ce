#include "simt/emu/dynamic_shared.h"

#include "simt/emu/garbage.h"

namespace simt {

void DynamicShared::resize(size_t bytes) {
  if (begin_ != nullptr && bytes == bytes_) {
    return;
  }
#if DHS_SIMT_ASAN
  __asan_unpoison_memory_region(storage_.data(), storage_.size());
#endif
  storage_.resize(bytes + kSharedSlackBytes + kAlignment);
  const auto base = reinterpret_cast<uintptr_t>(storage_.data());
  const uintptr_t aligned = (base + kAlignment - 1) & ~(kAlignment - 1);
  begin_ = storage_.data() + (aligned - base);
  bytes_ = bytes;
#if DHS_SIMT_ASAN
  __asan_poison_memory_region(begin_ + bytes, kSharedSlackBytes);
#endif
}

void DynamicShared::fill_with_garbage() { simt::fill_with_garbage(begin_, bytes_); }

AddressRange DynamicShared::range() const {
  const auto begin = reinterpret_cast<uintptr_t>(begin_);
  return {begin, begin + bytes_};
}

}  // namespace simt
