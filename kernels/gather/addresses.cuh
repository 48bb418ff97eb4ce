// Where records lie, for kernels: the addresses of HostRecords::at and ChunkedItems::at without
// divisions, whose branches would keep a thread's loads from being in flight together. Made on the
// host, passed to kernels by value.
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/gather/gather.h"

namespace dhs::cuda {

// Division of non-negative numbers by one that only the host knows. Exact while dividend * divisor
// < 2^64.
class Divisor {
 public:
  explicit Divisor(int64_t divisor)
      : divisor_(divisor),
        magic_(divisor == 1 ? 0 : ~uint64_t{0} / static_cast<uint64_t>(divisor) + 1),
        identity_(divisor == 1 ? ~uint64_t{0} : 0) {}

  __device__ __forceinline__ int64_t quotient(int64_t dividend) const {
    const auto n = static_cast<uint64_t>(dividend);
    return static_cast<int64_t>(__umul64hi(n, magic_) + (n & identity_));
  }
  __device__ __forceinline__ int64_t remainder(int64_t dividend) const {
    return dividend - quotient(dividend) * divisor_;
  }

 private:
  int64_t divisor_;
  uint64_t magic_;     // 2^64 / divisor, rounded up
  uint64_t identity_;  // all ones for divisor 1, whose magic number has 65 bits
};

class ItemAddresses {
 public:
  explicit ItemAddresses(const ChunkedItems& items)
      : items_(items), per_chunk_(items.items_per_chunk) {}

  __device__ __forceinline__ std::byte* at(int64_t item) const {
    const int64_t offset = items_.chunk_offset[per_chunk_.quotient(item)];
    return items_.pool + offset + per_chunk_.remainder(item) * items_.item_bytes;
  }

 private:
  ChunkedItems items_;
  Divisor per_chunk_;
};

class HostRecordAddresses {
 public:
  explicit HostRecordAddresses(const HostRecords& host)
      : host_(host), block_tokens_(host.block_tokens) {}

  __device__ __forceinline__ std::byte* at(int64_t host_row) const {
    return host_.base + block_tokens_.quotient(host_row) * host_.block_bytes + host_.group_offset +
           block_tokens_.remainder(host_row) * host_.record_bytes;
  }

 private:
  HostRecords host_;
  Divisor block_tokens_;
};

}  // namespace dhs::cuda
