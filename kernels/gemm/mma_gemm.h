// mma_gemm: the tensor core kernel for bf16 and fp8 weights.
//
// Block: kThreads threads compute BLOCK_M x BLOCK_N outputs; warps share them as WARPS_M x WARPS_N.
// Weights come in stages of 128 bytes a row by asynchronous copies, kStages deep. bf16: rows of a
// are f32, go through registers one stage ahead and are rounded on the way into shared memory. fp8:
// rows come quantised from scratch, like weights; both widen to bf16 in registers, exactly.
// Shared memory: see kSharedBytes; rows are padded so that fragments load without bank conflicts.
//
// Bound by reading weights (n * k * element bytes per row tile) up to some 64 rows, then by the
// tensor cores: 2 m n k FLOPs.
//
// Order of k: 16 columns per instruction in rising order; fp8 scales each block of 128 columns and
// adds it to its stretch; stretches are added in rising order.
#pragma once

#include <cstring>

#include "kernels/cuda/cp_async.h"
#include "kernels/cuda/mma.h"
#include "kernels/gemm/f8_pairs.h"
#include "kernels/gemm/gemm_problem.h"

namespace dhs::cuda {

template <GemmPrecision kPrecision, GemmTile kTile, int kWarpsM, int kWarpsN, int kStagesDeep>
struct MmaTile {
  static constexpr bool kFp8 = kPrecision == GemmPrecision::kFp8;
  static constexpr int BLOCK_M = tile_block_m(kPrecision, kTile);
  static constexpr int BLOCK_N = tile_block_n(kPrecision, kTile);
  static constexpr int BLOCK_K = static_cast<int>(stage_columns(kPrecision));
  static constexpr int WARPS_N = kWarpsN;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int WARP_M = BLOCK_M / kWarpsM;
  static constexpr int WARP_N = BLOCK_N / kWarpsN;
  static constexpr int kMmaM = WARP_M / 16;
  static constexpr int kMmaN = WARP_N / 8;
  static constexpr int kStages = kStagesDeep;
  static constexpr int kStagesOfA = kFp8 ? kStages : 2;
  // Eight rows of a fragment must fall into different banks: four bytes a lane for fp8, eight for
  // bf16.
  static constexpr int kRowStride = static_cast<int>(kStageBytes) + (kFp8 ? 16 : 32);
  static constexpr int kStageBytesW = BLOCK_N * kRowStride;
  static constexpr int kStageBytesA = BLOCK_M * kRowStride;
  static constexpr int kSharedBytes = kStages * kStageBytesW + kStagesOfA * kStageBytesA;
  static constexpr int kVectors = static_cast<int>(kStageBytes) / 16;  // of a staged row
  // float4 of a per thread and stage, for bf16.
  static constexpr int kLoadsOfA = kFp8 ? 0 : BLOCK_M * BLOCK_K / 4 / kThreads;
};

using MmaBf16Rows16 = MmaTile<GemmPrecision::kBf16, GemmTile::kRows16, 1, 4, 4>;
using MmaBf16Rows64 = MmaTile<GemmPrecision::kBf16, GemmTile::kRows64, 2, 2, 4>;
using MmaBf16Rows128 = MmaTile<GemmPrecision::kBf16, GemmTile::kRows128, 2, 4, 3>;
using MmaFp8Rows16 = MmaTile<GemmPrecision::kFp8, GemmTile::kRows16, 1, 4, 4>;
using MmaFp8Rows64 = MmaTile<GemmPrecision::kFp8, GemmTile::kRows64, 2, 2, 3>;
using MmaFp8Rows128 = MmaTile<GemmPrecision::kFp8, GemmTile::kRows128, 4, 2, 3>;

// The sums of one thread: [mma row tile][mma column tile][register of the fragment].
template <class Tile>
struct Sums {
  float values[Tile::kMmaM][Tile::kMmaN][4];

  __device__ __forceinline__ void clear() {
    for (auto& row : values) {
      for (auto& tile : row) {
        for (float& value : tile) value = 0;
      }
    }
  }
  __device__ __forceinline__ void add(const Sums& other) {
    for (int i = 0; i < Tile::kMmaM; ++i) {
      for (int j = 0; j < Tile::kMmaN; ++j) {
        for (int r = 0; r < 4; ++r) values[i][j][r] += other.values[i][j][r];
      }
    }
  }
};

// One stage of rows by asynchronous copies. Rows from `num_rows` on repeat the last one: what they
// give is not stored.
template <class Tile, int kRows>
__device__ __forceinline__ void copy_stage(std::byte* shared, const std::byte* rows,
                                           int64_t row_bytes, int64_t num_rows) {
  for (int i = threadIdx.x; i < kRows * Tile::kVectors; i += Tile::kThreads) {
    const int row = i / Tile::kVectors;
    const int byte = i % Tile::kVectors * 16;
    const int64_t source_row = row < num_rows ? row : num_rows - 1;
    simt::cp_async_16(shared + row * Tile::kRowStride + byte, rows + source_row * row_bytes + byte);
  }
}

// bf16: the stage of a at column k0, in registers; zeros beyond the rows and columns there are.
template <class Tile>
__device__ __forceinline__ void load_rows(const GemmProblem& p, const TilePlace& place, int64_t k0,
                                          float4 (&loaded)[Tile::kLoadsOfA]) {
  constexpr int kVectorsOfRow = Tile::BLOCK_K / 4;
  for (int i = 0; i < Tile::kLoadsOfA; ++i) {
    const int index = threadIdx.x + i * Tile::kThreads;
    const int64_t row = place.row_begin + index / kVectorsOfRow;
    const int64_t column = k0 + index % kVectorsOfRow * 4;
    loaded[i] = make_float4(0, 0, 0, 0);
    if (row >= place.row_end || column >= p.k) continue;
    const float* from = p.a + row * p.a_row_stride + place.head * p.a_head_stride + column;
    if (p.a_is_aligned && column + 4 <= p.k) {
      loaded[i] = *reinterpret_cast<const float4*>(from);
      continue;
    }
    loaded[i].x = from[0];
    if (column + 1 < p.k) loaded[i].y = from[1];
    if (column + 2 < p.k) loaded[i].z = from[2];
    if (column + 3 < p.k) loaded[i].w = from[3];
  }
}

__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

template <class Tile>
__device__ __forceinline__ void store_rows(std::byte* shared,
                                           const float4 (&loaded)[Tile::kLoadsOfA]) {
  constexpr int kVectorsOfRow = Tile::BLOCK_K / 4;
  for (int i = 0; i < Tile::kLoadsOfA; ++i) {
    const int index = threadIdx.x + i * Tile::kThreads;
    std::byte* to = shared + index / kVectorsOfRow * Tile::kRowStride + index % kVectorsOfRow * 8;
    *reinterpret_cast<uint2*>(to) =
        make_uint2(bf16_pair(loaded[i].x, loaded[i].y), bf16_pair(loaded[i].z, loaded[i].w));
  }
}

// Four neighbouring columns of one row: half a fragment's registers. Which column goes into which
// register does not matter as long as both operands agree.
template <class Tile>
__device__ __forceinline__ void load_four(const std::byte* shared, uint32_t& low, uint32_t& high) {
  if constexpr (Tile::kFp8) {
    f8_to_bf16_pairs(*reinterpret_cast<const uint32_t*>(shared), low, high);
  } else {
    const uint2 four = *reinterpret_cast<const uint2*>(shared);
    low = four.x;
    high = four.y;
  }
}

// sums += the stage's product. `a` and `w` are the warp's first rows.
template <class Tile>
__device__ __forceinline__ void multiply_stage(const std::byte* a, const std::byte* w,
                                               Sums<Tile>& sums) {
  constexpr int kBytesOfFour = Tile::kFp8 ? 4 : 8;
  const int group = threadIdx.x % 32 / 4;
  const int lane_byte = threadIdx.x % 4 * kBytesOfFour;
  for (int step = 0; step < Tile::BLOCK_K / 16; ++step) {
    const int byte = step * 4 * kBytesOfFour + lane_byte;
    uint32_t a_registers[Tile::kMmaM][4];
    for (int i = 0; i < Tile::kMmaM; ++i) {
      const std::byte* upper = a + (i * 16 + group) * Tile::kRowStride + byte;
      load_four<Tile>(upper, a_registers[i][0], a_registers[i][2]);
      load_four<Tile>(upper + 8 * Tile::kRowStride, a_registers[i][1], a_registers[i][3]);
    }
    for (int j = 0; j < Tile::kMmaN; ++j) {
      uint32_t w_registers[2];
      load_four<Tile>(w + (j * 8 + group) * Tile::kRowStride + byte, w_registers[0],
                      w_registers[1]);
      for (int i = 0; i < Tile::kMmaM; ++i) {
        simt::mma_m16n8k16_bf16(sums.values[i][j], a_registers[i], w_registers);
      }
    }
  }
}

// fp8: stretch += block's sums, scaled. The scales of weights are one for the whole tile.
template <class Tile>
__device__ __forceinline__ void add_scaled(const GemmProblem& p, const TilePlace& place,
                                           int64_t block, const Sums<Tile>& sums,
                                           Sums<Tile>& stretch) {
  const int64_t row_blocks = (p.n + kFp8BlockRows - 1) / kFp8BlockRows;
  const int64_t w_row = place.matrix * row_blocks + place.column_begin / kFp8BlockRows;
  const float w_scale = p.w_scales[w_row * p.w_scale_stride + block];
  const int warp_row = threadIdx.x / 32 / Tile::WARPS_N * Tile::WARP_M;
  for (int i = 0; i < Tile::kMmaM * 2; ++i) {
    const int half = i % 2;
    int64_t row = place.row_begin + warp_row + i * 8 + threadIdx.x % 32 / 4;
    if (row >= place.row_end) row = place.row_end - 1;
    const int64_t a_row = (row - p.first_row) * p.num_heads + place.head;
    const float scale = p.a_scales[a_row * p.num_blocks + block] * w_scale;
    for (int j = 0; j < Tile::kMmaN; ++j) {
      const float* from = sums.values[i / 2][j] + half * 2;
      float* to = stretch.values[i / 2][j] + half * 2;
      to[0] = fmaf(from[0], scale, to[0]);
      to[1] = fmaf(from[1], scale, to[1]);
    }
  }
}

template <class Tile>
__device__ __forceinline__ void store_sums(const GemmProblem& p, const TilePlace& place,
                                           const Sums<Tile>& sums) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const TileTarget target = tile_target(p, place);
  const int64_t first_row = place.row_begin + warp / Tile::WARPS_N * Tile::WARP_M + lane / 4;
  const int64_t first_column =
      place.column_begin + warp % Tile::WARPS_N * Tile::WARP_N + lane % 4 * 2;
  for (int i = 0; i < Tile::kMmaM; ++i) {
    for (int half = 0; half < 2; ++half) {
      const int64_t row = first_row + i * 16 + half * 8;
      if (row >= place.row_end) continue;
      float* to = target.data + row * target.row_stride;
      for (int j = 0; j < Tile::kMmaN; ++j) {
        const int64_t column = first_column + j * 8;
        if (column < p.n) to[column] = sums.values[i][j][half * 2];
        if (column + 1 < p.n) to[column + 1] = sums.values[i][j][half * 2 + 1];
      }
    }
  }
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads) mma_gemm_kernel(GemmProblem p) {
  DHS_DYN_SHARED(std::byte, shared);
  TilePlace place;
  if (!place_tile(p, Tile::BLOCK_M, Tile::BLOCK_N, place)) return;
  std::byte* shared_a = shared + Tile::kStages * Tile::kStageBytesW;

  const int64_t k_begin = place.first_stretch * p.stretch;
  const int64_t k_limit = place.end_stretch * p.stretch;
  const int64_t k_end = k_limit < p.k ? k_limit : p.k;
  const int64_t num_steps = (k_end - k_begin + Tile::BLOCK_K - 1) / Tile::BLOCK_K;
  const int64_t steps_of_stretch = p.stretch / Tile::BLOCK_K;

  const std::byte* w = p.weights + (place.matrix * p.n + place.column_begin) * p.row_bytes +
                       k_begin * kStageBytes / Tile::BLOCK_K;
  const int64_t q_row_bytes = p.num_heads * p.row_bytes;
  [[maybe_unused]] const std::byte* q = nullptr;
  if constexpr (Tile::kFp8) {
    q = reinterpret_cast<const std::byte*>(p.q) + (place.row_begin - p.first_row) * q_row_bytes +
        place.head * p.row_bytes + k_begin;
  }

  auto fetch = [&](int64_t step) {
    if (step < num_steps) {
      const int slot = static_cast<int>(step % Tile::kStages);
      copy_stage<Tile, Tile::BLOCK_N>(shared + slot * Tile::kStageBytesW, w + step * kStageBytes,
                                      p.row_bytes, p.n - place.column_begin);
      if constexpr (Tile::kFp8) {
        copy_stage<Tile, Tile::BLOCK_M>(shared_a + slot * Tile::kStageBytesA,
                                        q + step * kStageBytes, q_row_bytes,
                                        place.row_end - place.row_begin);
      }
    }
    simt::cp_async_commit_group();
  };

  // Prologue: all stages but one on their way.
  for (int step = 0; step < Tile::kStages - 1; ++step) fetch(step);
  [[maybe_unused]] float4 loaded[Tile::kFp8 ? 1 : Tile::kLoadsOfA];
  if constexpr (!Tile::kFp8) {
    load_rows<Tile>(p, place, k_begin, loaded);
    store_rows<Tile>(shared_a, loaded);
  }

  const int warp = threadIdx.x / 32;
  const int a_offset = warp / Tile::WARPS_N * Tile::WARP_M * Tile::kRowStride;
  const int w_offset = warp % Tile::WARPS_N * Tile::WARP_N * Tile::kRowStride;
  Sums<Tile> sums, stretch, total;
  sums.clear();
  stretch.clear();
  total.clear();
  int64_t stretch_end = steps_of_stretch;
  for (int64_t step = 0; step < num_steps; ++step) {
    if constexpr (!Tile::kFp8) {
      if (step + 1 < num_steps) {
        load_rows<Tile>(p, place, k_begin + (step + 1) * Tile::BLOCK_K, loaded);
      }
    }
    // This step's stage is there for all, and all are done with the slot that is filled next.
    simt::cp_async_wait_group<Tile::kStages - 2>();
    __syncthreads();
    fetch(step + Tile::kStages - 1);
    const int slot_w = static_cast<int>(step % Tile::kStages);
    const int slot_a = static_cast<int>(step % Tile::kStagesOfA);
    multiply_stage<Tile>(shared_a + slot_a * Tile::kStageBytesA + a_offset,
                         shared + slot_w * Tile::kStageBytesW + w_offset, sums);
    if constexpr (Tile::kFp8) {
      add_scaled<Tile>(p, place, k_begin / Tile::BLOCK_K + step, sums, stretch);
      sums.clear();
    } else if (step + 1 < num_steps) {
      store_rows<Tile>(shared_a + static_cast<int>((step + 1) % 2) * Tile::kStageBytesA, loaded);
    }
    if (step + 1 == stretch_end || step + 1 == num_steps) {
      Sums<Tile>& done = Tile::kFp8 ? stretch : sums;
      total.add(done);
      done.clear();
      stretch_end += steps_of_stretch;
    }
  }
  store_sums<Tile>(p, place, total);
}

}  // namespace dhs::cuda
