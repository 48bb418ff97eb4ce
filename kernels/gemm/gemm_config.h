// gemm_config: which tile computes a product on CUDA. Pure functions of sizes known to the host.
//
// Bits. k is cut into stretches by the matrix's shape alone. An output is the sum of its stretches'
// sums in rising order; a stretch's sum goes over k in rising order. Tiles and the way stretches
// are spread over blocks change the speed, never the order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/gemm.h"

namespace dhs {

// Rows of a tile. kRows128 is 64 rows for f32, which has no larger one.
enum class GemmTile { kRows16, kRows64, kRows128 };
inline constexpr GemmTile kGemmTiles[] = {GemmTile::kRows16, GemmTile::kRows64, GemmTile::kRows128};

constexpr int tile_block_m(GemmPrecision precision, GemmTile tile) {
  if (tile == GemmTile::kRows16) return 16;
  return tile == GemmTile::kRows64 || precision == GemmPrecision::kF32 ? 64 : 128;
}

constexpr int tile_block_n(GemmPrecision precision, GemmTile tile) {
  return precision == GemmPrecision::kBf16 && tile == GemmTile::kRows128 ? 128 : 64;
}

// Bytes of a weight row that a tile stages at a time; rows are padded with zeros to a multiple.
inline constexpr int64_t kStageBytes = 128;

constexpr int64_t weight_bytes(GemmPrecision precision) {
  if (precision == GemmPrecision::kFp8) return 1;
  return precision == GemmPrecision::kBf16 ? 2 : 4;
}

constexpr int64_t stage_columns(GemmPrecision precision) {
  return kStageBytes / weight_bytes(precision);
}

constexpr int64_t ceil_quotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements of k in a stretch: few rows of a small matrix still give every multiprocessor work.
constexpr int64_t stretch_columns(int64_t n, int64_t k) {
  constexpr int64_t kBlocksWanted = 512;  // a fixed number: bits must not depend on the GPU
  constexpr int64_t kLeastColumns = 256;
  const int64_t wanted = ceil_quotient(kBlocksWanted, ceil_quotient(n, 64));
  const int64_t count = std::max<int64_t>(1, std::min(wanted, k / kLeastColumns));
  return ceil_quotient(ceil_quotient(k, count), kFp8BlockColumns) * kFp8BlockColumns;
}

struct GemmDesc {
  GemmPrecision precision = GemmPrecision::kBf16;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t num_heads = 1;   // products side by side
  int64_t num_groups = 0;  // matrices that share the m rows; 0: not grouped
  int64_t num_sms = 1;
  int64_t partial_floats = 0;  // scratch for the sums of stretches
};

struct GemmConfig {
  GemmTile tile = GemmTile::kRows16;
  // Each block computes one stretch and a second kernel adds them up; otherwise a block computes
  // them all. The same bits.
  bool splits_k = false;
};

constexpr int64_t num_stretches(const GemmDesc& desc) {
  return ceil_quotient(desc.k, stretch_columns(desc.n, desc.k));
}

// Most row tiles there can be: groups end in tiles that are not full.
constexpr int64_t num_row_tiles(const GemmDesc& desc, int block_m) {
  if (desc.num_groups == 0) return ceil_quotient(desc.m, block_m);
  const int64_t groups = std::min(desc.num_groups, desc.m);
  return groups + (desc.m - groups) / block_m;
}

constexpr int64_t num_tiles(const GemmDesc& desc, GemmTile tile) {
  return num_row_tiles(desc, tile_block_m(desc.precision, tile)) *
         ceil_quotient(desc.n, tile_block_n(desc.precision, tile)) * desc.num_heads;
}

constexpr int64_t partial_floats_of(const GemmDesc& desc) {
  return num_stretches(desc) * desc.m * desc.num_heads * desc.n;
}

constexpr GemmConfig pick_config(const GemmDesc& desc) {
  GemmConfig config;
  // Rows that meet one matrix, as far as the host knows.
  const int64_t rows = desc.num_groups == 0 ? desc.m : ceil_quotient(desc.m, desc.num_groups);
  if (rows > 16) config.tile = GemmTile::kRows64;
  if (rows > 64 && num_tiles(desc, GemmTile::kRows128) >= desc.num_sms) {
    config.tile = GemmTile::kRows128;
  }
  config.splits_k = num_stretches(desc) > 1 && num_tiles(desc, config.tile) < 2 * desc.num_sms &&
                    partial_floats_of(desc) <= desc.partial_floats;
  return config;
}

}  // namespace dhs
