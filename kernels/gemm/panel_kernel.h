// panel_kernel: the library's matmul for one column panel of a matrix, hidden behind plain types.
//
// A panel is `columns` rows of w (output columns) times the full k; with kFp8 it starts at a block
// of scales. A PanelKernel holds everything that depends on the shape only: the packed layout, one
// compiled primitive per row tile, and the verdict on whether those primitives agree bit for bit.
// Kernels live as long as the process and
// are shared by all matrices with panels of that shape. All work is done on the calling thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "dhisparse/tensor.h"

namespace dhs {

// How the operands meet. kBf16Widened: bf16 storage, expanded to f32 panel by panel and multiplied
// in f32, for CPUs without bf16 dot products. kFp8: e4m3 storage and its block scales; the rows are
// f32 that quantize has rounded.
enum class GemmMath { kF32, kBf16, kBf16Widened, kFp8 };

// Of the rows that PanelKernel::run takes.
constexpr int64_t row_element_bytes(GemmMath math) { return math == GemmMath::kBf16 ? 2 : 4; }

// Which row tiles may be used. kOwnLoop: the library disagreed with itself or has no kernel.
enum class TileRule { kAnyTile, kFixedTile, kOwnLoop };

inline constexpr std::array<int, 10> kTileRows = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64};
inline constexpr int kFixedTileRows = 16;

// Weights of one panel inside a matrix's storage, plus the library's handle on them.
class PanelWeights {
 public:
  virtual ~PanelWeights() = default;
};

class PanelKernel {
 public:
  virtual ~PanelKernel() = default;

  // The kernel for the shape; the first call compiles and verifies it. Thread-safe.
  static const PanelKernel& get(GemmMath math, int64_t columns, int64_t k);
  // A private kernel held to `rule` whatever verification says: for tests of the slower rules.
  static std::unique_ptr<PanelKernel> make_with_rule(GemmMath math, TileRule rule, int64_t columns,
                                                     int64_t k);

  virtual TileRule rule() const = 0;
  virtual int64_t packed_bytes() const = 0;
  // Fills packed[0, packed_bytes()), 64-byte aligned, which must outlive the result. Null when the
  // library ran out of memory.
  virtual std::unique_ptr<PanelWeights> pack(TensorView<const float, 2> w,
                                             std::byte* packed) const = 0;
  // a: [tile_rows, k] dense, bf16 for kBf16 and f32 otherwise (kBf16Widened: already rounded to
  // bf16; kFp8: already quantised and scaled back). Returns [tile_rows, columns] dense, in scratch
  // of this thread that is valid until the next call. tile_rows is what tile_rows_for() said.
  virtual const float* run(const PanelWeights& weights, int tile_rows, const void* a) const = 0;

  // The tile that `num_rows` rows (1 to kGemmTileRows) are computed in; may be smaller than
  // num_rows.
  int tile_rows_for(int64_t num_rows) const;
};

}  // namespace dhs
