#include "simt/emu/warpgroup_products.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

namespace simt {
namespace {

constexpr int kDepth = 16;  // values of k in a product
constexpr int kMaxColumns = 256;
constexpr int kRows = WarpgroupProducts::kRows;
constexpr uint32_t kLineBytes = 128;

// The fields of a descriptor, in bytes.
struct Descriptor {
  uint32_t start;
  uint32_t leading;
  uint32_t stride;
  uint32_t base_offset;
  uint32_t swizzle;  // 1: 128 bytes
};

uint32_t field(uint64_t bits, int first, int count) {
  return static_cast<uint32_t>(bits >> first & ((uint64_t{1} << count) - 1));
}

Descriptor decode(uint64_t bits) {
  return {.start = field(bits, 0, 14) << 4,
          .leading = field(bits, 16, 14) << 4,
          .stride = field(bits, 32, 14) << 4,
          .base_offset = field(bits, 49, 3),
          .swizzle = field(bits, 62, 2)};
}

// Bits 4 to 6 of every address are those of the vector, exclusive or those of the line.
uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

// Lines of k: of element (line, k).
uint32_t k_line_address(const Descriptor& operand, int line, int k) {
  const auto at = static_cast<uint32_t>(line);
  return swizzled(operand.start + at / 8 * operand.stride + at % 8 * kLineBytes +
                  static_cast<uint32_t>(k) * 2);
}

// Lines of n: of element (k, column).
uint32_t n_line_address(const Descriptor& operand, int k, int column) {
  const auto line = static_cast<uint32_t>(k), at = static_cast<uint32_t>(column);
  return swizzled(operand.start + line / 8 * operand.stride + line % 8 * kLineBytes +
                  at / 64 * operand.leading + at % 64 * 2);
}

float bf16_at(const std::byte* shared, uint32_t address) {
  uint16_t bits;
  std::memcpy(&bits, shared + address, sizeof bits);
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

bool same_instruction(const WarpgroupProduct& a, const WarpgroupProduct& b) {
  return a.a == b.a && a.b == b.b && a.n == b.n && a.b_lines_hold_n == b.b_lines_hold_n &&
         a.accumulates == b.accumulates;
}

const char* problem_of(uint64_t bits) {
  const Descriptor operand = decode(bits);
  if (operand.swizzle != 1) return "wgmma operand without 128-byte swizzle, which is not emulated";
  if (operand.base_offset != 0) return "wgmma operand with a base offset, which is not emulated";
  return nullptr;
}

// Of one warp: 16 rows of A, B, and 16 rows of A * B. Too large for a fiber's stack.
struct Matrices {
  float a[kRows][kDepth];
  float b[kDepth][kMaxColumns];
  float sums[kRows][kMaxColumns];
};

int first_row_of(unsigned warp) {
  return static_cast<int>(warp % WarpgroupProducts::kWarps) * kRows;
}

void load(Matrices& matrices, const WarpgroupProduct& product, unsigned warp,
          const std::byte* shared) {
  const Descriptor a = decode(product.a), b = decode(product.b);
  for (int k = 0; k < kDepth; ++k) {
    for (int row = 0; row < kRows; ++row) {
      matrices.a[row][k] = bf16_at(shared, k_line_address(a, first_row_of(warp) + row, k));
    }
    for (int column = 0; column < product.n; ++column) {
      const uint32_t address =
          product.b_lines_hold_n ? n_line_address(b, k, column) : k_line_address(b, column, k);
      matrices.b[k][column] = bf16_at(shared, address);
    }
  }
}

}  // namespace

void WarpgroupProducts::begin_block(unsigned num_warps) {
  warps_.assign(num_warps, Warp{});
  issued_.assign(num_warps / kWarps, {});
}

const char* WarpgroupProducts::issue(unsigned warp, const IssuedProduct& product) {
  if (warp / kWarps >= issued_.size()) return "wgmma by a warp that is in no whole warpgroup";
  Warp& own = warps_[warp];
  if (!own.is_fenced) return "wgmma without wgmma.fence since the start or the last wait";
  if (const char* problem = problem_of(product.product.a)) return problem;
  if (const char* problem = problem_of(product.product.b)) return problem;
  auto& issued = issued_[warp / kWarps];
  if (own.num_issued == issued.size()) issued.push_back(product.product);
  if (!same_instruction(issued[own.num_issued], product.product)) {
    return "the warps of a warpgroup disagree on a wgmma";
  }
  ++own.num_issued;
  own.queue.push_back(product);
  return nullptr;
}

void WarpgroupProducts::commit(unsigned warp) {
  for (IssuedProduct& product : warps_[warp].queue) product.is_committed = true;
}

const IssuedProduct* WarpgroupProducts::next_committed(unsigned warp) {
  Warp& own = warps_[warp];
  own.is_fenced = false;
  const bool is_done = own.queue.empty() || !own.queue.front().is_committed;
  return is_done ? nullptr : &own.queue.front();
}

const char* WarpgroupProducts::unfinished() const {
  for (size_t warp = 0; warp < warps_.size(); ++warp) {
    if (!warps_[warp].queue.empty()) return "a wgmma was never waited for";
    const size_t group = warp / kWarps;
    if (group < issued_.size() && warps_[warp].num_issued != issued_[group].size()) {
      return "not all warps of a warpgroup issued a wgmma";
    }
  }
  return nullptr;
}

void list_operand_vectors(const WarpgroupProduct& product, unsigned warp,
                          std::vector<uint32_t>& vectors) {
  const Descriptor a = decode(product.a), b = decode(product.b);
  vectors.clear();
  for (int k = 0; k < kDepth; k += 8) {
    for (int row = 0; row < kRows; ++row) {
      vectors.push_back(k_line_address(a, first_row_of(warp) + row, k));
    }
    for (int column = 0; !product.b_lines_hold_n && column < product.n; ++column) {
      vectors.push_back(k_line_address(b, column, k));
    }
  }
  for (int k = 0; product.b_lines_hold_n && k < kDepth; ++k) {
    for (int column = 0; column < product.n; column += 8) {
      vectors.push_back(n_line_address(b, k, column));
    }
  }
}

void compute(const IssuedProduct& issued, unsigned warp, const std::byte* shared) {
  const WarpgroupProduct& product = issued.product;
  const auto matrices = std::make_unique<Matrices>();
  load(*matrices, product, warp, shared);
  for (int row = 0; row < kRows; ++row) {
    float* sums = matrices->sums[row];
    for (int k = 0; k < kDepth; ++k) {
      const float a = matrices->a[row][k];
      for (int column = 0; column < product.n; ++column) sums[column] += a * matrices->b[k][column];
    }
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    float* d = issued.d[static_cast<size_t>(lane)];
    for (int i = 0; i < product.n / 2; ++i) {
      const float sum = matrices->sums[lane / 4 + i % 4 / 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
      d[i] = product.accumulates ? d[i] + sum : sum;
    }
  }
}

}  // namespace simt
