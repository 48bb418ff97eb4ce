// panel_matrix: the CPU's packed matrices, cut into column panels by their shape alone.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/gemm/aligned_buffer.h"
#include "kernels/gemm/packed_matrix.h"
#include "kernels/gemm/panel_kernel.h"

namespace dhs {

class PanelMatrix : public PackedMatrix {
 public:
  // `rule` forces a tile rule; nullopt takes what verification found.
  PanelMatrix(const PackedShape& shape, GemmMath math, std::optional<TileRule> rule);

  // False when the memory is not there.
  bool reserve();
  bool pack(int64_t index, TensorView<const float, 2> w, Stream stream) override;
  int64_t bytes() const override { return shape().count * matrix_bytes_; }
  bool uses_any_tile() const override;

  GemmMath math() const { return math_; }
  int64_t n() const { return shape().n; }
  int64_t k() const { return shape().k; }
  int64_t num_panels() const;  // of one matrix

  // Rows that a run of `num_rows` must be padded to, with zeros, for every panel's tiles.
  int64_t padded_rows(int64_t num_rows) const;
  // out[0, num_rows) of the panel's columns, from rows as PanelKernel::run wants them.
  void run_panel(int64_t index, int64_t panel, const std::byte* a, TensorView<float, 2> out) const;
  // About how long one matrix takes on one core.
  double us(int64_t num_rows) const;

 private:
  const PanelKernel& kernel_of(int64_t panel) const {
    return panel + 1 < num_panels() ? *full_ : *tail_;
  }
  int64_t columns_of(int64_t panel) const;
  const PanelKernel* choose_kernel(std::optional<TileRule> rule, int64_t columns);

  const GemmMath math_;
  const int64_t panel_columns_;
  std::vector<std::unique_ptr<PanelKernel>> owned_kernels_;  // only with a forced rule
  const PanelKernel* full_;                                  // of every panel but the last
  const PanelKernel* tail_;                                  // of the last panel
  int64_t full_bytes_;                                       // of a panel but the last
  int64_t matrix_bytes_;
  AlignedBuffer storage_;
  std::vector<std::unique_ptr<PanelWeights>> panels_;  // [count * num_panels]
};

}  // namespace dhs
