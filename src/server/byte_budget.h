// A limit on bytes that several threads take and give back.
#pragma once

#include <atomic>
#include <cstdint>

namespace dhs {

class ByteBudget {
 public:
  explicit ByteBudget(int64_t limit) : limit_(limit) {}

  // False, and nothing is taken, when the limit would be exceeded.
  bool try_take(int64_t bytes) {
    if (taken_.fetch_add(bytes) + bytes <= limit_) return true;
    taken_ -= bytes;
    return false;
  }
  void give_back(int64_t bytes) { taken_ -= bytes; }

 private:
  const int64_t limit_;
  std::atomic<int64_t> taken_{0};
};

}  // namespace dhs
