#include "kernels/gemm/panel_verify.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "dhisparse/base.h"
#include "kernels/gemm/aligned_buffer.h"

namespace dhs {
namespace {

// A repeatable value in (-1, 1) with a full mantissa.
float noise(uint64_t i) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>(static_cast<int64_t>(x >> 39) - (1 << 24)) * 0x1p-24f;
}

std::vector<std::byte> noise_rows(GemmMath math, int64_t rows, int64_t k) {
  const int64_t element_bytes = row_element_bytes(math);
  std::vector<std::byte> bytes(static_cast<size_t>(rows * k * element_bytes));
  for (int64_t i = 0; i < rows * k; ++i) {
    const float value = noise(static_cast<uint64_t>(i) + (uint64_t{1} << 40));
    const Bf16 narrow = f32_to_bf16(value);
    const float wide = math == GemmMath::kF32 ? value : bf16_to_f32(narrow);
    std::memcpy(bytes.data() + i * element_bytes,
                element_bytes == 2 ? static_cast<const void*>(&narrow) : &wide,
                static_cast<size_t>(element_bytes));
  }
  return bytes;
}

// A kernel with packed noise and what it gives for `most` rows of noise, computed in one tile.
class RowTrials {
 public:
  RowTrials(const PanelKernel& kernel, GemmMath math, int most, TensorView<const float, 2> w)
      : kernel_(kernel),
        columns_(w.sizes[0]),
        most_(most),
        rows_(noise_rows(math, most, w.sizes[1])) {
    DHS_CHECK(packed_.reserve(kernel.packed_bytes()), "no memory for ", kernel.packed_bytes(),
              " bytes");
    weights_ = kernel.pack(w, packed_.data());
    tile_.resize(rows_.size());
    row_bytes_ = static_cast<int64_t>(rows_.size()) / most;
    if (weights_ == nullptr) return;
    const float* all = kernel.run(*weights_, most, rows_.data());
    expected_.assign(all, all + most * columns_);
  }

  bool agree(int tile_rows) {
    constexpr int kTrials = 5;
    for (int trial = 0; trial < kTrials; ++trial) {
      if (!agree_once(tile_rows, trial * (most_ - tile_rows) / (kTrials - 1), trial)) return false;
    }
    return true;
  }

 private:
  // Rows from `first` on, turned by a multiple of `trial`; odd trials leave half the tile as
  // padding.
  bool agree_once(int tile_rows, int first, int trial) {
    if (weights_ == nullptr) return false;
    const int num_live = trial % 2 == 0 ? tile_rows : (tile_rows + 1) / 2;
    auto row_at = [&](int place) { return first + (place + 3 * trial) % tile_rows; };
    std::fill(tile_.begin(), tile_.end(), std::byte{0});
    for (int place = 0; place < num_live; ++place) {
      std::memcpy(tile_.data() + place * row_bytes_, rows_.data() + row_at(place) * row_bytes_,
                  static_cast<size_t>(row_bytes_));
    }
    const float* out = kernel_.run(*weights_, tile_rows, tile_.data());
    for (int place = 0; place < num_live; ++place) {
      const float* want = expected_.data() + row_at(place) * columns_;
      const size_t bytes = static_cast<size_t>(columns_) * sizeof(float);
      if (std::memcmp(out + place * columns_, want, bytes) != 0) return false;
    }
    return true;
  }

  const PanelKernel& kernel_;
  const int64_t columns_;
  const int most_;
  const std::vector<std::byte> rows_;
  int64_t row_bytes_ = 0;
  AlignedBuffer packed_;
  std::unique_ptr<PanelWeights> weights_;  // null: the library could not pack
  std::vector<float> expected_;
  std::vector<std::byte> tile_;
};

}  // namespace

TileRule verified_rule(const PanelKernel& kernel, GemmMath math, int64_t columns, int64_t k) {
  std::vector<float> w(static_cast<size_t>(columns * k));
  for (size_t i = 0; i < w.size(); ++i) w[i] = noise(i);
  const TensorView<const float, 2> w_view = view<const float>(w.data(), columns, k);
  RowTrials any(kernel, math, kTileRows.back(), w_view);
  if (std::all_of(kTileRows.begin(), kTileRows.end(), [&](int rows) { return any.agree(rows); })) {
    return TileRule::kAnyTile;
  }
  RowTrials fixed(kernel, math, kFixedTileRows, w_view);
  return fixed.agree(kFixedTileRows) ? TileRule::kFixedTile : TileRule::kOwnLoop;
}

}  // namespace dhs
