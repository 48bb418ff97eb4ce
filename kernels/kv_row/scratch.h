// Working memory of a CPU kernel: aligned to cache lines, grows, never shrinks. Meant to be
// thread_local, so that after the first steps of a size no launch allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace dhs {

class Scratch {
 public:
  // At least `count` elements; what was there before is lost when it has to grow.
  template <class T>
  T* get(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (bytes > bytes_) {
      data_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
      bytes_ = bytes;
    }
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Deleter {
    void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
  };

  std::unique_ptr<std::byte, Deleter> data_;
  size_t bytes_ = 0;
};

}  // namespace dhs
