#include "model/tensor_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

namespace dhs {
namespace {

constexpr std::string_view kScaleSuffix = "_scale_inv";

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", shape[i]);
  }
  return text + "]";
}

bool is_weight_dtype(std::optional<DType> dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF8E4m3;
}

// The mapping promises no alignment, the codec reads whole elements: unaligned ones are moved
// first.
void decode(DType dtype, const std::byte* source, int64_t count, float* target) {
  const int64_t bytes = count * dtype_bytes(dtype);
  if (reinterpret_cast<uintptr_t>(source) % dtype_bytes(dtype) == 0) {
    return convert_to_f32(dtype, source, count, target);
  }
  std::vector<std::max_align_t> aligned(ceil_div(bytes, sizeof(std::max_align_t)));
  std::memcpy(aligned.data(), source, bytes);
  convert_to_f32(dtype, aligned.data(), count, target);
}

}  // namespace

void WeightMatrix::rows_to_f32(int64_t first_row, int64_t num_rows, float* out) const {
  DHS_CHECK(first_row >= 0 && num_rows >= 0 && first_row + num_rows <= rows, name, ": rows ",
            first_row, " + ", num_rows, " of ", rows);
  decode(dtype, data + first_row * columns * dtype_bytes(dtype), num_rows * columns, out);
  if (dtype != DType::kF8E4m3) return;
  const int64_t num_column_blocks = ceil_div(columns, kScaleBlock);
  for (int64_t r = 0; r < num_rows; ++r) {
    const float* scales = block_scales.data() + (first_row + r) / kScaleBlock * num_column_blocks;
    float* row = out + r * columns;
    for (int64_t c = 0; c < columns; ++c) row[c] *= scales[c / kScaleBlock];
  }
}

std::optional<TensorBytes> TensorReader::find(const std::string& name,
                                              std::span<const int64_t> shape) {
  std::optional<TensorBytes> tensor = checkpoint_.find(name);
  used_.insert(name);
  if (!tensor) {
    error(name, "is missing; config.json asks for it");
    return std::nullopt;
  }
  if (!std::ranges::equal(tensor->shape, shape)) {
    error(name, "has shape ", shape_text(tensor->shape), ", config.json asks for ",
          shape_text(shape));
    return std::nullopt;
  }
  if (!is_weight_dtype(tensor->dtype)) {
    error(name, "has dtype ", to_absl(tensor->dtype_name),
          ", supported are F32, BF16 and F8_E4M3; convert the checkpoint");
    return std::nullopt;
  }
  return tensor;
}

WeightMatrix TensorReader::matrix(std::string name, int64_t rows, int64_t columns) {
  WeightMatrix matrix;
  const std::optional<TensorBytes> tensor = find(name, std::array{rows, columns});
  matrix.name = std::move(name);
  if (!tensor) return matrix;
  matrix.dtype = *tensor->dtype;
  matrix.data = tensor->data;
  matrix.rows = rows;
  matrix.columns = columns;
  if (matrix.dtype == DType::kF8E4m3) load_block_scales(matrix);
  return matrix;
}

void TensorReader::load_block_scales(WeightMatrix& matrix) {
  if (quantization_ != WeightQuantization::kFp8Blocks) {
    return error(matrix.name, "has dtype F8_E4M3, but config.json has no quantization_config");
  }
  const std::string name = absl::StrCat(matrix.name, to_absl(kScaleSuffix));
  const auto tensor = find(
      name, std::array{ceil_div(matrix.rows, kScaleBlock), ceil_div(matrix.columns, kScaleBlock)});
  if (!tensor) return;
  if (tensor->dtype != DType::kF32) {
    return error(name, "has dtype ", to_absl(tensor->dtype_name), ", scales must be F32");
  }
  matrix.block_scales = finite_values(name, *tensor);
}

std::vector<float> TensorReader::vector(const std::string& name, int64_t size) {
  return values(name, std::array{size});
}

std::vector<float> TensorReader::values(const std::string& name, std::span<const int64_t> shape) {
  const std::optional<TensorBytes> tensor = find(name, shape);
  if (!tensor) return {};
  if (tensor->dtype == DType::kF8E4m3) {
    error(name, "has dtype F8_E4M3, it must be F32 or BF16");
    return {};
  }
  return finite_values(name, *tensor);
}

std::vector<float> TensorReader::finite_values(const std::string& name, const TensorBytes& tensor) {
  std::vector<float> values(tensor.bytes / dtype_bytes(*tensor.dtype));
  decode(*tensor.dtype, tensor.data, static_cast<int64_t>(values.size()), values.data());
  const auto bad =
      std::find_if_not(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  if (bad != values.end()) {
    error(name, "element ", bad - values.begin(), " is ", *bad,
          "; the checkpoint is damaged, download it again");
  }
  return values;
}

std::vector<std::string_view> TensorReader::unused() const {
  std::vector<std::string_view> names;
  for (std::string_view name : checkpoint_.tensor_names()) {
    if (used_.count(name) == 0) names.push_back(name);
  }
  return names;
}

absl::Status TensorReader::status() const {
  if (num_errors_ == 0) return absl::OkStatus();
  std::string message =
      absl::StrCat(checkpoint_.directory(), ": ", num_errors_,
                   num_errors_ == 1 ? " tensor is" : " tensors are", " not as config.json says");
  for (const std::string& error : errors_) absl::StrAppend(&message, "\n", error);
  if (num_errors_ > errors_.size()) {
    absl::StrAppend(&message, "\nand ", num_errors_ - errors_.size(), " more");
  }
  return absl::InvalidArgumentError(message);
}

}  // namespace dhs
