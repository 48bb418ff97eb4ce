#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/gemm/aligned_buffer.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_tables.h"
#include "kernels/gemm/panel_kernel.h"

namespace dhs {
namespace {

// Panels of about this many weights: a few microseconds of work for one row, so that threads share
// even small matrices evenly, and long against the cost of a call into the library (0.3 us).
constexpr int64_t kPanelElements = 128 << 10;
constexpr int64_t kPanelColumnMultiple = 64;  // the library's column block

// Rates of one core, only to decide whether threads are worth waking (about 5 us): never bits.
constexpr double kBytesPerUs = 60e3;
constexpr double kFlopsPerUs = 400e3;
constexpr double kSerialUs = 25;
constexpr double kPieceUs = 5;

int64_t panel_columns(int64_t n, int64_t k) {
  const int64_t columns = std::max(
      kPanelColumnMultiple, kPanelElements / k / kPanelColumnMultiple * kPanelColumnMultiple);
  return std::min(n, columns);
}

bool is_f32(GemmMath math) { return math == GemmMath::kF32; }

}  // namespace

class PackedMatrix {
 public:
  PackedMatrix(GemmMath math, int64_t n, int64_t k)
      : math_(math), n_(n), k_(k), panel_columns_(panel_columns(n, k)) {}

  bool pack(std::optional<TileRule> rule, TensorView<const float, 2> w);

  GemmMath math() const { return math_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t num_panels() const { return ceil_div(n_, panel_columns_); }
  int64_t bytes() const { return bytes_; }
  bool uses_any_tile() const {
    return full_->rule() == TileRule::kAnyTile && tail_->rule() == TileRule::kAnyTile;
  }

  // Rows that load_rows must provide, zeros after the live ones, for every panel's tiles.
  int64_t padded_rows(int64_t num_rows) const {
    auto rows_of = [&](const PanelKernel& kernel) {
      return round_up(num_rows, kernel.tile_rows_for(num_rows));
    };
    return std::max(rows_of(*full_), rows_of(*tail_));
  }

  // out[0, num_rows) of the panel's columns, from what load_rows returned.
  void run_panel(int64_t panel, int64_t num_rows, const std::byte* a,
                 TensorView<float, 2> out) const;

  double us(int64_t num_rows) const {
    const double elements = static_cast<double>(n_) * static_cast<double>(k_);
    return std::max(elements * (is_f32(math_) ? 4 : 2) / kBytesPerUs,
                    2 * elements * static_cast<double>(num_rows) / kFlopsPerUs);
  }

 private:
  const PanelKernel& kernel_of(int64_t panel) const {
    return panel + 1 < num_panels() ? *full_ : *tail_;
  }
  int64_t columns_of(int64_t panel) const {
    return std::min(panel_columns_, n_ - panel * panel_columns_);
  }
  void choose_kernels(std::optional<TileRule> rule);

  const GemmMath math_;
  const int64_t n_;
  const int64_t k_;
  const int64_t panel_columns_;
  int64_t bytes_ = 0;
  const PanelKernel* full_ = nullptr;                        // of every panel but the last
  const PanelKernel* tail_ = nullptr;                        // of the last panel
  std::vector<std::unique_ptr<PanelKernel>> owned_kernels_;  // only with a forced rule
  AlignedBuffer storage_;
  std::vector<std::unique_ptr<PanelWeights>> panels_;
};

void PackedMatrix::choose_kernels(std::optional<TileRule> rule) {
  auto choose = [&](int64_t columns) -> const PanelKernel* {
    if (!rule.has_value()) return &PanelKernel::get(math_, columns, k_);
    owned_kernels_.push_back(PanelKernel::make_with_rule(math_, *rule, columns, k_));
    return owned_kernels_.back().get();
  };
  full_ = choose(panel_columns_);
  const int64_t last_columns = columns_of(num_panels() - 1);
  tail_ = last_columns == panel_columns_ ? full_ : choose(last_columns);
}

bool PackedMatrix::pack(std::optional<TileRule> rule, TensorView<const float, 2> w) {
  choose_kernels(rule);
  const int64_t full_bytes = round_up(full_->packed_bytes(), 64);
  bytes_ = (num_panels() - 1) * full_bytes + tail_->packed_bytes();
  if (!storage_.reserve(bytes_)) return false;
  panels_.resize(static_cast<size_t>(num_panels()));
  std::atomic<bool> packed{true};
  parallel_for(num_panels(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      TensorView<const float, 2> part = w;
      part.data = w.row(panel * panel_columns_);
      part.sizes[0] = columns_of(panel);
      auto& weights = panels_[static_cast<size_t>(panel)];
      weights = kernel_of(panel).pack(part, storage_.data() + panel * full_bytes);
      if (weights == nullptr) packed = false;
    }
  });
  return packed;
}

void PackedMatrix::run_panel(int64_t panel, int64_t num_rows, const std::byte* a,
                             TensorView<float, 2> out) const {
  const PanelKernel& kernel = kernel_of(panel);
  const int64_t columns = columns_of(panel);
  const int64_t row_bytes = k_ * (math_ == GemmMath::kBf16 ? 2 : 4);
  const int tile_rows = kernel.tile_rows_for(num_rows);
  for (int64_t first = 0; first < num_rows; first += tile_rows) {
    const float* result =
        kernel.run(*panels_[static_cast<size_t>(panel)], tile_rows, a + first * row_bytes);
    const int64_t end = std::min<int64_t>(first + tile_rows, num_rows);
    for (int64_t row = first; row < end; ++row) {
      std::memcpy(out.row(row) + panel * panel_columns_, result + (row - first) * columns,
                  static_cast<size_t>(columns) * sizeof(float));
    }
  }
}

namespace {

// The rows as the matrix's arithmetic wants them, dense and zero-padded, in scratch of this thread.
const std::byte* load_rows(const PackedMatrix& matrix, TensorView<const float, 2> a) {
  thread_local AlignedBuffer scratch;
  const int64_t k = matrix.k();
  const int64_t num_rows = a.sizes[0];
  const int64_t padded_rows = matrix.padded_rows(num_rows);
  const int64_t element_bytes = matrix.math() == GemmMath::kBf16 ? 2 : 4;
  const int64_t bytes = padded_rows * k * element_bytes;
  DHS_CHECK(scratch.reserve(bytes), "no memory for ", bytes, " bytes of gemm scratch");
  for (int64_t row = 0; row < num_rows; ++row) {
    std::byte* target = scratch.data() + row * k * element_bytes;
    const float* source = a.row(row);
    if (matrix.math() == GemmMath::kBf16) {
      convert_to_bf16(source, k, reinterpret_cast<Bf16*>(target));
      continue;
    }
    std::memcpy(target, source, static_cast<size_t>(k) * sizeof(float));
    if (matrix.math() == GemmMath::kF32) continue;
    float* values = reinterpret_cast<float*>(target);
    for (int64_t i = 0; i < k; ++i) values[i] = bf16_to_f32(f32_to_bf16(values[i]));
  }
  std::memset(scratch.data() + num_rows * k * element_bytes, 0,
              static_cast<size_t>((padded_rows - num_rows) * k * element_bytes));
  return scratch.data();
}

template <class T>
TensorView<T, 2> row_range(TensorView<T, 2> rows, int64_t first, int64_t count) {
  rows.data = rows.row(first);
  rows.sizes[0] = count;
  return rows;
}

template <class T>
TensorView<T, 2> head_rows(TensorView<T, 3> x, int64_t head, int64_t first, int64_t count) {
  return {x.data + first * x.strides[0] + head * x.strides[1],
          {count, x.sizes[2]},
          {x.strides[0], x.strides[2]}};
}

// Items per piece: everything in one piece when waking threads would cost more than it saves.
int64_t grain_for(int64_t count, double total_us) {
  if (total_us < kSerialUs) return std::max<int64_t>(count, 1);
  const double item_us = total_us / static_cast<double>(count);
  return std::max<int64_t>(1, static_cast<int64_t>(kPieceUs / item_us));
}

}  // namespace

GemmMath gemm_math(GemmPrecision precision) {
  if (precision == GemmPrecision::kF32) return GemmMath::kF32;
  return cpu_isa() == CpuIsa::kAvx512Bf16 ? GemmMath::kBf16 : GemmMath::kBf16Widened;
}

std::vector<GemmMath> supported_gemm_math(GemmPrecision precision) {
  if (precision == GemmPrecision::kF32) return {GemmMath::kF32};
  std::vector<GemmMath> all = {GemmMath::kBf16Widened};
  if (cpu_isa() == CpuIsa::kAvx512Bf16) all.push_back(GemmMath::kBf16);
  return all;
}

void PackedMatrixDeleter::operator()(PackedMatrix* matrix) const { delete matrix; }

PackedMatrixPtr pack_matrix_as(GemmMath math, std::optional<TileRule> rule,
                               TensorView<const float, 2> w) {
  DHS_CHECK(w.sizes[0] >= 1 && w.sizes[1] >= 1, "matrix of ", w.sizes[0], " x ", w.sizes[1]);
  DHS_CHECK(w.strides[1] == 1, "columns must be contiguous, stride is ", w.strides[1]);
  try {
    PackedMatrixPtr matrix(new PackedMatrix(math, w.sizes[0], w.sizes[1]));
    if (!matrix->pack(rule, w)) return nullptr;
    return matrix;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

PackedMatrixPtr pack_matrix(GemmPrecision precision, TensorView<const float, 2> w) {
  return pack_matrix_as(gemm_math(precision), std::nullopt, w);
}

int64_t packed_matrix_bytes(const PackedMatrix& matrix) { return matrix.bytes(); }

bool packed_matrix_uses_any_tile(const PackedMatrix& matrix) { return matrix.uses_any_tile(); }

void launch_gemm(const GemmParams& params, Stream /*stream*/) {
  const PackedMatrix& matrix = *params.weights;
  const int64_t num_rows = params.a.sizes[0];
  DHS_CHECK(params.a.sizes[1] == matrix.k(), "a has ", params.a.sizes[1], " columns, not ",
            matrix.k());
  DHS_CHECK(params.out.sizes[0] == num_rows && params.out.sizes[1] == matrix.n(), "out is ",
            params.out.sizes[0], " x ", params.out.sizes[1], ", not ", num_rows, " x ", matrix.n());
  for (int64_t first = 0; first < num_rows; first += kGemmTileRows) {
    const int64_t count = std::min<int64_t>(kGemmTileRows, num_rows - first);
    const std::byte* a = load_rows(matrix, row_range(params.a, first, count));
    const TensorView<float, 2> out = row_range(params.out, first, count);
    const int64_t grain = grain_for(matrix.num_panels(), matrix.us(count));
    parallel_for(matrix.num_panels(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) matrix.run_panel(panel, count, a, out);
    });
  }
}

void launch_head_gemm(const HeadGemmParams& params, Stream /*stream*/) {
  const int64_t num_rows = params.a.sizes[0];
  const int64_t num_heads = params.a.sizes[1];
  if (num_heads == 0) return;
  DHS_CHECK(params.out.sizes[0] == num_rows && params.out.sizes[1] == num_heads, "out is ",
            params.out.sizes[0], " x ", params.out.sizes[1], " heads");
  for (int64_t head = 0; head < num_heads; ++head) {
    const PackedMatrix& matrix = *params.weights[head];
    DHS_CHECK(matrix.k() == params.a.sizes[2] && matrix.n() == params.out.sizes[2], "head ", head,
              " is ", matrix.n(), " x ", matrix.k());
  }
  for (int64_t first = 0; first < num_rows; first += kGemmTileRows) {
    const int64_t count = std::min<int64_t>(kGemmTileRows, num_rows - first);
    const double total_us = static_cast<double>(num_heads) * params.weights[0]->us(count);
    parallel_for(num_heads, grain_for(num_heads, total_us), [&](int64_t begin, int64_t end) {
      for (int64_t head = begin; head < end; ++head) {
        const PackedMatrix& matrix = *params.weights[head];
        const std::byte* a = load_rows(matrix, head_rows(params.a, head, first, count));
        const TensorView<float, 2> out = head_rows(params.out, head, first, count);
        for (int64_t panel = 0; panel < matrix.num_panels(); ++panel) {
          matrix.run_panel(panel, count, a, out);
        }
      }
    });
  }
}

}  // namespace dhs
