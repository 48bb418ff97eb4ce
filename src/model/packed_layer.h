// A layer's weights, packed for the device. Matrices that multiply the same input are one matrix:
// fewer, larger products.
#pragma once

#include <absl/status/status.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/gemm/gemm.h"
#include "model/device_weights.h"
#include "model/sharding.h"
#include "model/target_config.h"
#include "model/weights.h"

namespace dhs {

// Gated MLPs of one shape: a single one, or the experts of a layer.
struct PackedMlp {
  PackedMatrixPtr gate_up;  // count x [2 * intermediate, hidden]
  PackedMatrixPtr down;     // count x [hidden, intermediate]
  int64_t intermediate_dim = 0;
};

struct PackedMoe {
  PackedMatrixPtr router;  // f32: [num_experts, hidden], of all ranks
  DeviceVector<float> choice_bias;
  PackedMlp experts;  // of this rank
  int32_t first_expert = 0;
  int32_t num_experts = 0;
  std::optional<PackedMlp> shared_expert;
};

// num_heads: this rank's.
struct PackedLayer {
  bool has_indexer = false;
  DeviceVector<float> input_norm;
  DeviceVector<float> post_attention_norm;
  DeviceVector<float> q_a_norm;
  DeviceVector<float> kv_a_norm;
  DeviceVector<float> key_norm_weight;
  DeviceVector<float> key_norm_bias;
  PackedMatrixPtr down;          // of the normed input: [q latent | kv latent, rope | index key]
  PackedMatrixPtr head_weights;  // f32, of the normed input: [index_num_heads]
  PackedMatrixPtr up;            // of the query latent: [queries | index queries]
  PackedMatrixPtr absorb_key;    // per head: [latent, nope], q_latent = W q_nope
  PackedMatrixPtr absorb_value;  // per head: [v, latent], o = W u
  PackedMatrixPtr output;        // [hidden, num_heads * v]
  std::optional<PackedMlp> dense;
  std::optional<PackedMoe> moe;
};

// Some rows of a matrix, as part of a product.
struct MatrixRows {
  const WeightMatrix* matrix;
  int64_t first = 0;
  int64_t count = 0;
};
inline MatrixRows all_rows(const WeightMatrix& matrix) { return {&matrix, 0, matrix.rows}; }
inline MatrixRows own_rows(const WeightMatrix& matrix, Shard shard) {
  return {&matrix, shard.first_of(matrix.rows), shard.part_of(matrix.rows)};
}

// How the matrices that a library could multiply fared with it.
struct LibraryUse {
  int num_taken = 0;
  int num_left = 0;  // to our own kernels
};

// Packs matrices and remembers the first failure, so that a layer reads as a list of its matrices.
class Packer {
 public:
  // provider: of the products with single matrices that are not f32. Products with many matrices
  // at once are always ours.
  Packer(WeightUploader& uploader, GemmPrecision precision, GemmProvider provider)
      : uploader_(uploader), precision_(precision), provider_(provider) {}

  // Stacks the matrices by rows and packs them: one product gives all their outputs.
  PackedMatrixPtr stack(const std::vector<MatrixRows>& matrices);
  // The same in f32, whatever the packer's precision.
  PackedMatrixPtr stack_f32(const std::vector<MatrixRows>& matrices);
  // This rank's columns: its products are partial sums.
  PackedMatrixPtr columns(const WeightMatrix& matrix, Shard shard);
  // Place for `count` matrices of [n, k]; then one after the other.
  PackedMatrixPtr make(int64_t count, int64_t n, int64_t k, const std::string& name);
  void stack_into(const PackedMatrixPtr& packed, int64_t index,
                  const std::vector<MatrixRows>& matrices);
  void pack_into(const PackedMatrixPtr& packed, int64_t index, TensorView<const float, 2> matrix,
                 const std::string& name);
  DeviceVector<float> vector(const std::vector<float>& values);

  // RESOURCE_EXHAUSTED names the first matrix there was no memory for.
  const absl::Status& status() const { return status_; }
  // Zeros when no library was asked for.
  const LibraryUse& library_use() const { return library_use_; }

 private:
  PackedMatrixPtr stack_as(GemmPrecision precision, const std::vector<MatrixRows>& matrices);
  PackedMatrixPtr pack_as(GemmPrecision precision, TensorView<const float, 2> matrix,
                          const std::string& name);
  void fail(const std::string& name, int64_t elements);

  WeightUploader& uploader_;
  const GemmPrecision precision_;
  const GemmProvider provider_;
  absl::Status status_;
  LibraryUse library_use_;
};

// config: as the checkpoint says.
PackedLayer pack_layer(const LayerWeights& weights, const TargetConfig& config,
                       const Sharding& sharding, Packer& packer);

}  // namespace dhs
