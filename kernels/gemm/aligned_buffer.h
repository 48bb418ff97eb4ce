// aligned_buffer: memory that only grows, 64-byte aligned; in huge pages from 2 MiB on, where the
// system grants them (first touch of small pages is what loading a model would otherwise wait for).
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace dhs {

class AlignedBuffer {
 public:
  // Makes room for `bytes`, dropping what was there if it must move. False when memory ran out.
  bool reserve(int64_t bytes) {
    if (bytes <= bytes_) return true;
    constexpr int64_t kHugePage = int64_t{2} << 20;
    const int64_t alignment = bytes >= kHugePage ? kHugePage : 64;
    const int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
    data_.reset();
    bytes_ = 0;
    data_.reset(static_cast<std::byte*>(
        std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded))));
    if (data_ == nullptr) return false;
    if (alignment == kHugePage) {
      madvise(data_.get(), static_cast<size_t>(rounded), MADV_HUGEPAGE);  // a hint; may be refused
    }
    bytes_ = rounded;
    return true;
  }

  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t bytes_ = 0;
};

}  // namespace dhs
