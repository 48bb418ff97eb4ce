// wgmma: which products the warps of a block have issued and not yet waited for, which bytes of
// shared memory they read, and their arithmetic.
//
// A warp computes 16 of a product's 64 rows, at its own wait: hardware promises no more. Until then
// nothing has been read, so a missing wait, or operands that change too early, show in the result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <source_location>
#include <vector>

#include "simt/emu/runtime.h"

namespace simt {

// One warp's part of a product. `product.d` stands for no lane: each has its own.
struct IssuedProduct {
  WarpgroupProduct product;
  std::array<float*, kWarpSize> d{};
  std::source_location where;
  bool is_committed = false;
};

class WarpgroupProducts {
 public:
  // Warp w of the block computes rows [16 * (w % 4), +16).
  static constexpr unsigned kWarps = 4;  // of a warpgroup
  static constexpr unsigned kRows = 16;  // of a warp

  void begin_block(unsigned num_warps);

  // Returns what is wrong, or null. A wrong product is not kept.
  const char* issue(unsigned warp, const IssuedProduct& product);
  void fence(unsigned warp) { warps_[warp].is_fenced = true; }
  void commit(unsigned warp);
  // A wait: takes the warp's committed products one by one, in the order of their issue. Null when
  // there is none left.
  const IssuedProduct* next_committed(unsigned warp);
  void pop(unsigned warp) { warps_[warp].queue.pop_front(); }
  // What is wrong when all threads have exited, or null.
  const char* unfinished() const;

 private:
  struct Warp {
    std::deque<IssuedProduct> queue;
    size_t num_issued = 0;
    bool is_fenced = false;
  };

  std::vector<Warp> warps_;
  // What the fastest warp of each warpgroup has issued: the others must do the same.
  std::vector<std::vector<WarpgroupProduct>> issued_;
};

// Lists the 16-byte vectors that warp `warp` reads, by their distance from the start of shared
// memory.
void list_operand_vectors(const WarpgroupProduct& product, unsigned warp,
                          std::vector<uint32_t>& vectors);

// Precondition: the listed vectors lie in shared memory.
void compute(const IssuedProduct& issued, unsigned warp, const std::byte* shared);

}  // namespace simt
