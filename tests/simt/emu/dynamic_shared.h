// The dynamic shared memory of one block.
#pragma once

#include <cstddef>
#include <vector>

#include "simt/emu/fiber.h"

namespace simt {

// Room after the dynamic shared memory that belongs to nobody, so that overruns land in it.
inline constexpr size_t kSharedSlackBytes = 256;

// The launch's dynamic shared memory, at its exact size.
class DynamicShared {
 public:
  void resize(size_t bytes);
  void fill_with_garbage();
  std::byte* data() const { return begin_; }
  AddressRange range() const;

 private:
  static constexpr size_t kAlignment = 1024;

  std::vector<std::byte> storage_;
  std::byte* begin_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace simt
