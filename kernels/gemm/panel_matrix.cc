#include "kernels/gemm/panel_matrix.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "dhisparse/base.h"
#include "dhisparse/device.h"

namespace dhs {
namespace {

// Panels of about this many weights: a few microseconds of work for one row, so that threads share
// even small matrices evenly, and long against the cost of a call into the library (0.3 us).
constexpr int64_t kPanelElements = 128 << 10;
// A multiple of the library's column block, and of the rows of w that share a scale.
constexpr int64_t kPanelColumnMultiple = 64;
constexpr int64_t kFp8PanelColumnMultiple = kFp8BlockRows;

// Rates of one core, only to decide whether threads are worth waking (about 5 us): never bits.
constexpr double kBytesPerUs = 60e3;
constexpr double kFlopsPerUs = 400e3;

int64_t panel_columns(GemmMath math, int64_t n, int64_t k) {
  const int64_t multiple = math == GemmMath::kFp8 ? kFp8PanelColumnMultiple : kPanelColumnMultiple;
  return std::min(n, std::max(multiple, kPanelElements / k / multiple * multiple));
}

}  // namespace

PanelMatrix::PanelMatrix(const PackedShape& shape, GemmMath math, std::optional<TileRule> rule)
    : PackedMatrix(shape), math_(math), panel_columns_(panel_columns(math, shape.n, shape.k)) {
  full_ = choose_kernel(rule, panel_columns_);
  const int64_t last_columns = columns_of(num_panels() - 1);
  tail_ = last_columns == panel_columns_ ? full_ : choose_kernel(rule, last_columns);
  full_bytes_ = round_up(full_->packed_bytes(), 64);
  matrix_bytes_ = (num_panels() - 1) * full_bytes_ + tail_->packed_bytes();
  if (shape.count > 1) matrix_bytes_ = round_up(matrix_bytes_, 64);
}

const PanelKernel* PanelMatrix::choose_kernel(std::optional<TileRule> rule, int64_t columns) {
  if (!rule.has_value()) return &PanelKernel::get(math_, columns, k());
  owned_kernels_.push_back(PanelKernel::make_with_rule(math_, *rule, columns, k()));
  return owned_kernels_.back().get();
}

bool PanelMatrix::reserve() {
  panels_.resize(static_cast<size_t>(shape().count * num_panels()));
  return storage_.reserve(bytes());
}

int64_t PanelMatrix::num_panels() const { return ceil_div(n(), panel_columns_); }

int64_t PanelMatrix::columns_of(int64_t panel) const {
  return std::min(panel_columns_, n() - panel * panel_columns_);
}

bool PanelMatrix::uses_any_tile() const {
  if (math_ == GemmMath::kFp8) return true;  // one loop, for rows one by one
  return full_->rule() == TileRule::kAnyTile && tail_->rule() == TileRule::kAnyTile;
}

bool PanelMatrix::pack(int64_t index, TensorView<const float, 2> w, Stream /*stream*/) {
  std::atomic<bool> packed{true};
  std::byte* storage = storage_.data() + index * matrix_bytes_;
  parallel_for(num_panels(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      TensorView<const float, 2> part = w;
      part.data = w.row(panel * panel_columns_);
      part.sizes[0] = columns_of(panel);
      auto& weights = panels_[static_cast<size_t>(index * num_panels() + panel)];
      weights = kernel_of(panel).pack(part, storage + panel * full_bytes_);
      if (weights == nullptr) packed = false;
    }
  });
  return packed;
}

int64_t PanelMatrix::padded_rows(int64_t num_rows) const {
  auto rows_of = [&](const PanelKernel& kernel) {
    return round_up(num_rows, kernel.tile_rows_for(num_rows));
  };
  return std::max(rows_of(*full_), rows_of(*tail_));
}

void PanelMatrix::run_panel(int64_t index, int64_t panel, const std::byte* a,
                            TensorView<float, 2> out) const {
  const PanelKernel& kernel = kernel_of(panel);
  const PanelWeights* weights = panels_[static_cast<size_t>(index * num_panels() + panel)].get();
  DHS_CHECK(weights != nullptr, "matrix ", index, " was never packed");
  const int64_t num_rows = out.sizes[0];
  const int64_t columns = columns_of(panel);
  const int64_t row_bytes = k() * row_element_bytes(math_);
  const int tile_rows = kernel.tile_rows_for(num_rows);
  for (int64_t first = 0; first < num_rows; first += tile_rows) {
    const float* result = kernel.run(*weights, tile_rows, a + first * row_bytes);
    const int64_t end = std::min<int64_t>(first + tile_rows, num_rows);
    for (int64_t row = first; row < end; ++row) {
      std::memcpy(out.row(row) + panel * panel_columns_, result + (row - first) * columns,
                  static_cast<size_t>(columns) * sizeof(float));
    }
  }
}

double PanelMatrix::us(int64_t num_rows) const {
  const double elements = static_cast<double>(n()) * static_cast<double>(k());
  const double bytes = static_cast<double>(matrix_bytes_);
  return std::max(bytes / kBytesPerUs, 2 * elements * static_cast<double>(num_rows) / kFlopsPerUs);
}

}  // namespace dhs
