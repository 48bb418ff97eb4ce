#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/gemm/aligned_buffer.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_tables.h"
#include "kernels/gemm/panel_matrix.h"
#include "kernels/quantize/e4m3.h"

namespace dhs {
namespace {

// Waking threads costs about 5 us.
constexpr double kSerialUs = 25;
constexpr double kPieceUs = 5;

// x rounded to what quantize gives, scaled back: exact in f32, since the scales are powers of two.
void quantize_and_scale_back(const float* x, int64_t k, float* target) {
  for (int64_t first = 0; first < k; first += kFp8BlockColumns) {
    const int64_t end = std::min(first + kFp8BlockColumns, k);
    float amax = 0;
    for (int64_t i = first; i < end; ++i) amax = e4m3::larger_magnitude(amax, x[i]);
    const float scale = e4m3::block_scale(amax);
    const float inverse = e4m3::inverse_scale(scale);
    for (int64_t i = first; i < end; ++i) {
      target[i] = e4m3::decode(e4m3::quantized(x[i], inverse)) * scale;
    }
  }
}

void load_row(GemmMath math, const float* source, int64_t k, std::byte* target) {
  float* values = reinterpret_cast<float*>(target);
  switch (math) {
    case GemmMath::kF32:
      std::memcpy(values, source, static_cast<size_t>(k) * sizeof(float));
      return;
    case GemmMath::kBf16:
      convert_to_bf16(source, k, reinterpret_cast<Bf16*>(target));
      return;
    case GemmMath::kBf16Widened:
      for (int64_t i = 0; i < k; ++i) values[i] = bf16_to_f32(f32_to_bf16(source[i]));
      return;
    case GemmMath::kFp8:
      quantize_and_scale_back(source, k, values);
      return;
  }
}

// The rows as the matrix's arithmetic wants them, dense and zero-padded, in scratch of this thread.
const std::byte* load_rows(const PanelMatrix& matrix, TensorView<const float, 2> a) {
  thread_local AlignedBuffer scratch;
  const int64_t row_bytes = matrix.k() * row_element_bytes(matrix.math());
  const int64_t num_rows = a.sizes[0];
  const int64_t padded_rows = matrix.padded_rows(num_rows);
  const int64_t bytes = padded_rows * row_bytes;
  DHS_CHECK(scratch.reserve(bytes), "no memory for ", bytes, " bytes of gemm scratch");
  for (int64_t row = 0; row < num_rows; ++row) {
    load_row(matrix.math(), a.row(row), matrix.k(), scratch.data() + row * row_bytes);
  }
  std::memset(scratch.data() + num_rows * row_bytes, 0,
              static_cast<size_t>((padded_rows - num_rows) * row_bytes));
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

// Up to kGemmTileRows rows that meet one matrix.
struct Run {
  int64_t index = 0;
  TensorView<const float, 2> a;
  TensorView<float, 2> out;
};

// Memory of this thread for a launch's runs, so that steady launches allocate nothing.
std::vector<Run>& empty_runs() {
  thread_local std::vector<Run> runs;
  runs.clear();
  return runs;
}

// All panels of all runs, shared among threads; each loads the rows of the runs it meets.
void compute(const PanelMatrix& matrix, const std::vector<Run>& runs) {
  double total_us = 0;
  for (const Run& run : runs) total_us += matrix.us(run.a.sizes[0]);
  const int64_t num_panels = matrix.num_panels();
  const int64_t num_items = static_cast<int64_t>(runs.size()) * num_panels;
  parallel_for(num_items, grain_for(num_items, total_us), [&](int64_t begin, int64_t end) {
    const std::byte* a = nullptr;
    for (int64_t item = begin; item < end; ++item) {
      const Run& run = runs[static_cast<size_t>(item / num_panels)];
      const int64_t panel = item % num_panels;
      if (item == begin || panel == 0) a = load_rows(matrix, run.a);
      matrix.run_panel(run.index, panel, a, run.out);
    }
  });
}

void launch_gemm_cpu(const GemmParams& params) {
  const auto& matrix = static_cast<const PanelMatrix&>(*params.weights);
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
      for (int64_t panel = begin; panel < end; ++panel) matrix.run_panel(0, panel, a, out);
    });
  }
}

void launch_head_gemm_cpu(const HeadGemmParams& params) {
  const auto& matrix = static_cast<const PanelMatrix&>(*params.weights);
  const int64_t num_rows = params.a.sizes[0];
  const int64_t num_heads = params.a.sizes[1];
  DHS_CHECK(params.first_head >= 0 && params.first_head + num_heads <= matrix.shape().count,
            "heads ", params.first_head, " to ", params.first_head + num_heads, " of ",
            matrix.shape().count);
  DHS_CHECK(params.a.sizes[2] == matrix.k(), "a has ", params.a.sizes[2], " columns, not ",
            matrix.k());
  DHS_CHECK(params.out.sizes[0] == num_rows && params.out.sizes[1] == num_heads &&
                params.out.sizes[2] == matrix.n(),
            "out is ", params.out.sizes[0], " x ", params.out.sizes[1], " x ", params.out.sizes[2]);
  std::vector<Run>& runs = empty_runs();
  for (int64_t first = 0; first < num_rows; first += kGemmTileRows) {
    const int64_t count = std::min<int64_t>(kGemmTileRows, num_rows - first);
    for (int64_t head = 0; head < num_heads; ++head) {
      runs.push_back({.index = params.first_head + head,
                      .a = head_rows(params.a, head, first, count),
                      .out = head_rows(params.out, head, first, count)});
    }
  }
  compute(matrix, runs);
}

void launch_grouped_gemm_cpu(const GroupedGemmParams& params) {
  const auto& matrix = static_cast<const PanelMatrix&>(*params.weights);
  DHS_CHECK(params.offsets.sizes[0] == matrix.shape().count + 1, params.offsets.sizes[0],
            " offsets for ", matrix.shape().count, " groups");
  DHS_CHECK(params.a.sizes[1] == matrix.k() && params.out.sizes[1] == matrix.n(), "a has ",
            params.a.sizes[1], " columns, out ", params.out.sizes[1]);
  std::vector<Run>& runs = empty_runs();
  for (int64_t group = 0; group < matrix.shape().count; ++group) {
    const int64_t end = params.offsets(group + 1);
    DHS_CHECK(end >= params.offsets(group) && end <= params.a.sizes[0], "group ", group,
              " ends at row ", end, " of ", params.a.sizes[0]);
    for (int64_t first = params.offsets(group); first < end; first += kGemmTileRows) {
      const int64_t count = std::min<int64_t>(kGemmTileRows, end - first);
      runs.push_back({.index = group,
                      .a = row_range(params.a, first, count),
                      .out = row_range(params.out, first, count)});
    }
  }
  compute(matrix, runs);
}

}  // namespace

DHS_LAUNCHER(launch_gemm, GemmParams)
DHS_LAUNCHER(launch_head_gemm, HeadGemmParams)
DHS_LAUNCHER(launch_grouped_gemm, GroupedGemmParams)

GemmMath gemm_math(GemmPrecision precision) {
  if (precision == GemmPrecision::kF32) return GemmMath::kF32;
  if (precision == GemmPrecision::kFp8) return GemmMath::kFp8;
  return cpu_isa() == CpuIsa::kAvx512Bf16 ? GemmMath::kBf16 : GemmMath::kBf16Widened;
}

std::vector<GemmMath> supported_gemm_math(GemmPrecision precision) {
  if (precision != GemmPrecision::kBf16) return {gemm_math(precision)};
  std::vector<GemmMath> all = {GemmMath::kBf16Widened};
  if (cpu_isa() == CpuIsa::kAvx512Bf16) all.push_back(GemmMath::kBf16);
  return all;
}

PackedMatrixPtr make_packed_matrix_as(const PackedShape& shape, GemmMath math,
                                      std::optional<TileRule> rule) try {
  auto matrix = std::make_unique<PanelMatrix>(shape, math, rule);
  if (!matrix->reserve()) return nullptr;
  return PackedMatrixPtr(matrix.release());
} catch (const std::bad_alloc&) {
  return nullptr;
}

PackedMatrixPtr make_packed_matrix_cpu(const PackedShape& shape) {
  return make_packed_matrix_as(shape, gemm_math(shape.precision), std::nullopt);
}

}  // namespace dhs
