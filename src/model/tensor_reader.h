// tensor_reader: the tensors of a checkpoint, taken out by name, with shapes checked against what
// its config asks for.
//
// Matrices stay in the file's mapping, in the dtype they are stored in, and are decoded on demand:
// a pointer here is valid as long as the Checkpoint it was loaded from. Vectors are decoded copies.
#pragma once

#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/tensor.h"
#include "model/checkpoint.h"
#include "model/target_config.h"

namespace dhs {

// [rows, columns] row-major, as (out_features, in_features). kF32, kBf16 or kF8E4m3. `data` may be
// unaligned: decode with the functions below.
struct WeightMatrix {
  std::string name;  // of the tensor, for messages
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  // kF8E4m3 only, else empty: [ceil(rows / kScaleBlock), ceil(columns / kScaleBlock)], row-major.
  // Element (r, c) is value(r, c) * block_scales[r / kScaleBlock, c / kScaleBlock]: a multiplier,
  // although checkpoints call it "weight_scale_inv".
  std::vector<float> block_scales;

  int64_t stored_bytes() const { return rows * columns * dtype_bytes(dtype); }
  // out: [rows, columns].
  void to_f32(float* out) const { rows_to_f32(0, rows, out); }
  // out: [num_rows, columns]. Precondition: the rows lie in [0, rows).
  void rows_to_f32(int64_t first_row, int64_t num_rows, float* out) const;
};

// Notes every mistake, so that one look at a damaged checkpoint tells all of it.
class TensorReader {
 public:
  // `checkpoint` must outlive the reader.
  TensorReader(const Checkpoint& checkpoint, WeightQuantization quantization)
      : checkpoint_(checkpoint), quantization_(quantization) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }

  // After an error these return something empty. A tensor that was asked for counts as used.
  WeightMatrix matrix(std::string name, int64_t rows, int64_t columns);
  std::vector<float> vector(const std::string& name, int64_t size);
  // Decoded elements, in order, of a tensor of any rank that is not quantised; an error if one is
  // not finite.
  std::vector<float> values(const std::string& name, std::span<const int64_t> shape);
  // The tensor, if it has this shape and a dtype that decodes.
  std::optional<TensorBytes> find(const std::string& name, std::span<const int64_t> shape);
  // All elements of it, in order; an error if one is not finite.
  std::vector<float> finite_values(const std::string& name, const TensorBytes& tensor);

  bool has(std::string_view name) const { return checkpoint_.find(name).has_value(); }
  void mark_used(std::string_view name) { used_.emplace(name); }
  // Of the checkpoint, that nothing above has named.
  std::vector<std::string_view> unused() const;

  template <class... Parts>
  void error(absl::string_view name, const Parts&... why) {
    ++num_errors_;
    if (errors_.size() < kMaxReportedErrors) {
      errors_.push_back(absl::StrCat(name, ": ", why...));
    }
  }
  // INVALID_ARGUMENT lists what was noted, up to a limit.
  absl::Status status() const;

 private:
  static constexpr size_t kMaxReportedErrors = 20;

  void load_block_scales(WeightMatrix& matrix);

  const Checkpoint& checkpoint_;
  const WeightQuantization quantization_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> errors_;
  size_t num_errors_ = 0;
};

}  // namespace dhs
