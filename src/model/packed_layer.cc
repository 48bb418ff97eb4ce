#include "model/packed_layer.h"

#include "dhisparse/base.h"

namespace dhs {
namespace {

PackedMlp pack_mlp(const MlpWeights& weights, Packer& packer) {
  return {.gate_up = packer.stack({&weights.gate, &weights.up}),
          .down = packer.stack({&weights.down}),
          .intermediate_dim = weights.gate.rows};
}

PackedMoe pack_moe(const MoeWeights& weights, Packer& packer) {
  PackedMoe packed;
  packed.router = packer.stack_f32({&weights.router});
  packed.choice_bias = weights.choice_bias;
  for (const MlpWeights& expert : weights.experts) {
    packed.experts.push_back(pack_mlp(expert, packer));
  }
  if (weights.shared_expert.has_value()) {
    packed.shared_expert = pack_mlp(*weights.shared_expert, packer);
  }
  return packed;
}

// kv_b holds, per head, the rows of W_UK [nope, latent] and then of W_UV [v, latent]. The absorbed
// form multiplies by W_UK transposed on the query side and by W_UV on the output side.
void pack_absorbed(const WeightMatrix& kv_b, const TargetConfig& config, Packer& packer,
                   PackedLayer& packed) {
  const int64_t latent = config.kv_lora_rank;
  const int64_t nope = config.qk_nope_dim;
  const int64_t value = config.v_head_dim;
  std::vector<float> block((nope + value) * latent);
  std::vector<float> transposed(latent * nope);
  for (int64_t head = 0; head < config.num_heads; ++head) {
    kv_b.rows_to_f32(head * (nope + value), nope + value, block.data());
    for (int64_t i = 0; i < nope; ++i) {
      for (int64_t j = 0; j < latent; ++j) transposed[j * nope + i] = block[i * latent + j];
    }
    packed.absorb_key.push_back(
        packer.pack(view<const float>(transposed.data(), latent, nope), kv_b.name));
    packed.absorb_value.push_back(
        packer.pack(view<const float>(block.data() + nope * latent, value, latent), kv_b.name));
  }
}

}  // namespace

PackedMatrixPtr Packer::keep(PackedMatrixPtr matrix, const std::string& name, int64_t elements) {
  if (matrix == nullptr && status_.ok()) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat("no memory to pack ", name, " (", elements,
                     " elements); the machine is too small for this checkpoint"));
  }
  return matrix;
}

PackedMatrixPtr Packer::pack(TensorView<const float, 2> matrix, const std::string& name) {
  return keep(pack_matrix(precision_, matrix), name, matrix.sizes[0] * matrix.sizes[1]);
}

PackedMatrixPtr Packer::stack_as(GemmPrecision precision,
                                 const std::vector<const WeightMatrix*>& matrices) {
  int64_t rows = 0;
  const int64_t columns = matrices.front()->columns;
  for (const WeightMatrix* matrix : matrices) {
    DHS_CHECK(matrix->columns == columns, matrix->name, " has ", matrix->columns, " columns");
    rows += matrix->rows;
  }
  std::vector<float> stacked(rows * columns);
  float* target = stacked.data();
  for (const WeightMatrix* matrix : matrices) {
    matrix->to_f32(target);
    target += matrix->rows * columns;
  }
  return keep(pack_matrix(precision, view<const float>(stacked.data(), rows, columns)),
              matrices.front()->name, rows * columns);
}

PackedMatrixPtr Packer::stack(const std::vector<const WeightMatrix*>& matrices) {
  return stack_as(precision_, matrices);
}

PackedMatrixPtr Packer::stack_f32(const std::vector<const WeightMatrix*>& matrices) {
  return stack_as(GemmPrecision::kF32, matrices);
}

PackedLayer pack_layer(const LayerWeights& weights, const TargetConfig& config, Packer& packer) {
  PackedLayer packed;
  packed.has_indexer = weights.indexer.has_value();
  packed.input_norm = weights.input_norm;
  packed.post_attention_norm = weights.post_attention_norm;
  packed.q_a_norm = weights.q_a_norm;
  packed.kv_a_norm = weights.kv_a_norm;
  std::vector<const WeightMatrix*> down = {&weights.q_a, &weights.kv_a};
  std::vector<const WeightMatrix*> up = {&weights.q_b};
  if (packed.has_indexer) {
    const IndexerWeights& indexer = *weights.indexer;
    packed.key_norm_weight = indexer.key_norm_weight;
    packed.key_norm_bias = indexer.key_norm_bias;
    down.push_back(&indexer.key);
    up.push_back(&indexer.query);
    // Never reduced: the published reference computes the head weights in f32.
    packed.head_weights = packer.stack_f32({&indexer.head_weights});
  }
  packed.down = packer.stack(down);
  packed.up = packer.stack(up);
  pack_absorbed(weights.kv_b, config, packer, packed);
  packed.output = packer.stack({&weights.o});
  if (weights.dense.has_value()) packed.dense = pack_mlp(*weights.dense, packer);
  if (weights.moe.has_value()) packed.moe = pack_moe(*weights.moe, packer);
  return packed;
}

}  // namespace dhs
