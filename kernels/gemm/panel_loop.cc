#include "kernels/gemm/panel_loop.h"

#include <algorithm>

#include "dhisparse/base.h"
#include "kernels/gemm/aligned_buffer.h"
#include "kernels/gemm/fp8_blocks.h"

namespace dhs {
namespace {

constexpr int kLanes = 16;

struct LoopWeights : PanelWeights {
  explicit LoopWeights(const std::byte* packed) : data(packed) {}
  const std::byte* data;
};

// One accumulation order for every output: lane l sums the terms i = l mod 16, then the lanes in a
// fixed tree.
float dot(const float* a, const float* w, int64_t k) {
  float lanes[kLanes] = {};
  const int64_t whole = k / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * w[i + lane];
  }
  for (int64_t i = whole; i < k; ++i) lanes[i - whole] += a[i] * w[i];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

class LoopKernel : public PanelKernel {
 public:
  LoopKernel(GemmMath math, int64_t columns, int64_t k) : math_(math), columns_(columns), k_(k) {}

  TileRule rule() const override { return TileRule::kOwnLoop; }
  int64_t packed_bytes() const override { return columns_ * row_bytes(); }

  std::unique_ptr<PanelWeights> pack(TensorView<const float, 2> w,
                                     std::byte* packed) const override {
    for (int64_t column = 0; column < columns_; ++column) {
      std::byte* row = packed + column * row_bytes();
      if (math_ == GemmMath::kF32) {
        std::memcpy(row, w.row(column), static_cast<size_t>(row_bytes()));
      } else {
        convert_to_bf16(w.row(column), k_, reinterpret_cast<Bf16*>(row));
      }
    }
    return std::make_unique<LoopWeights>(packed);
  }

  const float* run(const PanelWeights& weights, int tile_rows, const void* a) const override {
    thread_local AlignedBuffer scratch;  // one weight row | the rows of a in f32 | the result
    const int64_t num_floats = k_ + tile_rows * (k_ + columns_);
    DHS_CHECK(scratch.reserve(num_floats * 4), "no memory for ", num_floats, " floats of scratch");
    float* weight_row = reinterpret_cast<float*>(scratch.data());
    float* rows = weight_row + k_;
    float* out = rows + tile_rows * k_;
    const DType a_dtype = math_ == GemmMath::kBf16 ? DType::kBf16 : DType::kF32;
    const DType w_dtype = math_ == GemmMath::kF32 ? DType::kF32 : DType::kBf16;
    convert_to_f32(a_dtype, a, tile_rows * k_, rows);
    const std::byte* data = static_cast<const LoopWeights&>(weights).data;
    for (int64_t column = 0; column < columns_; ++column) {
      convert_to_f32(w_dtype, data + column * row_bytes(), k_, weight_row);
      for (int64_t row = 0; row < tile_rows; ++row) {
        out[row * columns_ + column] = dot(rows + row * k_, weight_row, k_);
      }
    }
    return out;
  }

 private:
  int64_t row_bytes() const { return k_ * (math_ == GemmMath::kF32 ? 4 : 2); }

  const GemmMath math_;
  const int64_t columns_;
  const int64_t k_;
};

// e4m3 [columns, k] | padding to a float | scales [column blocks, k blocks].
class Fp8Kernel : public PanelKernel {
 public:
  Fp8Kernel(int64_t columns, int64_t k) : columns_(columns), k_(k) {}

  TileRule rule() const override { return TileRule::kOwnLoop; }
  int64_t packed_bytes() const override {
    return scales_offset() + ceil_div(columns_, kFp8BlockRows) * num_blocks() * 4;
  }

  std::unique_ptr<PanelWeights> pack(TensorView<const float, 2> w,
                                     std::byte* packed) const override {
    quantize_weights(w, reinterpret_cast<F8E4m3*>(packed), k_,
                     reinterpret_cast<float*>(packed + scales_offset()), num_blocks());
    return std::make_unique<LoopWeights>(packed);
  }

  const float* run(const PanelWeights& weights, int tile_rows, const void* a) const override {
    thread_local AlignedBuffer scratch;  // one weight row | the result
    const int64_t num_floats = k_ + tile_rows * columns_;
    DHS_CHECK(scratch.reserve(num_floats * 4), "no memory for ", num_floats, " floats of scratch");
    float* weight_row = reinterpret_cast<float*>(scratch.data());
    float* out = weight_row + k_;
    const std::byte* data = static_cast<const LoopWeights&>(weights).data;
    const auto* q = reinterpret_cast<const F8E4m3*>(data);
    const auto* scales = reinterpret_cast<const float*>(data + scales_offset());
    for (int64_t column = 0; column < columns_; ++column) {
      for (int64_t i = 0; i < k_; ++i) weight_row[i] = e4m3::decode(q[column * k_ + i]);
      const float* column_scales = scales + column / kFp8BlockRows * num_blocks();
      for (int64_t row = 0; row < tile_rows; ++row) {
        const float* values = static_cast<const float*>(a) + row * k_;
        out[row * columns_ + column] = scaled_dot(values, weight_row, column_scales);
      }
    }
    return out;
  }

 private:
  int64_t num_blocks() const { return ceil_div(k_, kFp8BlockColumns); }
  int64_t scales_offset() const { return round_up(columns_ * k_, 4); }

  float scaled_dot(const float* a, const float* w, const float* scales) const {
    float sum = 0;
    for (int64_t block = 0; block < num_blocks(); ++block) {
      const int64_t first = block * kFp8BlockColumns;
      sum += dot(a + first, w + first, std::min(kFp8BlockColumns, k_ - first)) * scales[block];
    }
    return sum;
  }

  const int64_t columns_;
  const int64_t k_;
};

}  // namespace

std::unique_ptr<PanelKernel> make_fp8_kernel(int64_t columns, int64_t k) {
  return std::make_unique<Fp8Kernel>(columns, k);
}

std::unique_ptr<PanelKernel> make_loop_kernel(GemmMath math, int64_t columns, int64_t k) {
  return std::make_unique<LoopKernel>(math, columns, k);
}

}  // namespace dhs
