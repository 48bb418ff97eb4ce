#include "model/packed_layer.h"

#include <span>

#include "dhisparse/base.h"

namespace dhs {
namespace {

std::vector<float> stacked_rows(const std::vector<MatrixRows>& parts, int64_t* rows) {
  *rows = 0;
  const int64_t columns = parts.front().matrix->columns;
  for (const MatrixRows& part : parts) {
    DHS_CHECK(part.matrix->columns == columns, part.matrix->name, " has ", part.matrix->columns,
              " columns");
    *rows += part.count;
  }
  std::vector<float> stacked(*rows * columns);
  float* target = stacked.data();
  for (const MatrixRows& part : parts) {
    part.matrix->rows_to_f32(part.first, part.count, target);
    target += part.count * columns;
  }
  return stacked;
}

PackedMlp pack_mlp(const MlpWeights& weights, Shard shard, Packer& packer) {
  return {.gate_up = packer.stack({own_rows(weights.gate, shard), own_rows(weights.up, shard)}),
          .down = packer.columns(weights.down, shard),
          .intermediate_dim = shard.part_of(weights.gate.rows)};
}

PackedMlp pack_experts(std::span<const MlpWeights> experts, Packer& packer) {
  const MlpWeights& first = experts.front();
  const auto count = std::ssize(experts);
  PackedMlp packed{
      .gate_up = packer.make(count, 2 * first.gate.rows, first.gate.columns, first.gate.name),
      .down = packer.make(count, first.down.rows, first.down.columns, first.down.name),
      .intermediate_dim = first.gate.rows};
  for (int64_t i = 0; i < count; ++i) {
    packer.stack_into(packed.gate_up, i, {all_rows(experts[i].gate), all_rows(experts[i].up)});
    packer.stack_into(packed.down, i, {all_rows(experts[i].down)});
  }
  return packed;
}

PackedMoe pack_moe(const MoeWeights& weights, const Sharding& sharding, Packer& packer) {
  const auto num_experts = std::ssize(weights.experts);
  const int64_t first = sharding.experts.first_of(num_experts);
  const int64_t count = sharding.experts.part_of(num_experts);
  PackedMoe packed;
  packed.router = packer.stack_f32({all_rows(weights.router)});
  packed.choice_bias = packer.vector(weights.choice_bias);
  packed.experts = pack_experts(std::span(weights.experts).subspan(first, count), packer);
  packed.first_expert = static_cast<int32_t>(first);
  packed.num_experts = static_cast<int32_t>(count);
  if (weights.shared_expert.has_value()) {
    packed.shared_expert = pack_mlp(*weights.shared_expert, sharding.mlp, packer);
  }
  return packed;
}

// kv_b holds, per head, the rows of W_UK [nope, latent] and then of W_UV [v, latent]. The absorbed
// form multiplies by W_UK transposed on the query side and by W_UV on the output side.
void pack_absorbed(const WeightMatrix& kv_b, const TargetConfig& config, Shard shard,
                   Packer& packer, PackedLayer& packed) {
  const int64_t latent = config.kv_lora_rank;
  const int64_t nope = config.qk_nope_dim;
  const int64_t value = config.v_head_dim;
  const int64_t first_head = shard.first_of(config.num_heads);
  const int64_t num_heads = shard.part_of(config.num_heads);
  packed.absorb_key = packer.make(num_heads, latent, nope, kv_b.name);
  packed.absorb_value = packer.make(num_heads, value, latent, kv_b.name);
  std::vector<float> block((nope + value) * latent);
  std::vector<float> transposed(latent * nope);
  for (int64_t head = 0; head < num_heads; ++head) {
    kv_b.rows_to_f32((first_head + head) * (nope + value), nope + value, block.data());
    for (int64_t i = 0; i < nope; ++i) {
      for (int64_t j = 0; j < latent; ++j) transposed[j * nope + i] = block[i * latent + j];
    }
    packer.pack_into(packed.absorb_key, head, view<const float>(transposed.data(), latent, nope),
                     kv_b.name);
    packer.pack_into(packed.absorb_value, head,
                     view<const float>(block.data() + nope * latent, value, latent), kv_b.name);
  }
}

}  // namespace

void Packer::fail(const std::string& name, int64_t elements) {
  if (!status_.ok()) return;
  status_ = absl::ResourceExhaustedError(
      absl::StrCat("no memory to pack ", name, " (", elements,
                   " elements); the device is too small for this checkpoint"));
}

PackedMatrixPtr Packer::make(int64_t count, int64_t n, int64_t k, const std::string& name) {
  PackedMatrixPtr packed = make_packed_matrix({precision_, count, n, k}, uploader_.stream());
  if (packed == nullptr) fail(name, count * n * k);
  return packed;
}

void Packer::pack_into(const PackedMatrixPtr& packed, int64_t index,
                       TensorView<const float, 2> matrix, const std::string& name) {
  if (packed == nullptr) return;  // failed already
  if (!dhs::pack_into(*packed, index, matrix, uploader_.stream())) {
    fail(name, matrix.sizes[0] * matrix.sizes[1]);
  }
}

void Packer::stack_into(const PackedMatrixPtr& packed, int64_t index,
                        const std::vector<MatrixRows>& matrices) {
  int64_t rows = 0;
  const std::vector<float> stacked = stacked_rows(matrices, &rows);
  const WeightMatrix& first = *matrices.front().matrix;
  pack_into(packed, index, view<const float>(stacked.data(), rows, first.columns), first.name);
}

PackedMatrixPtr Packer::pack_as(GemmPrecision precision, TensorView<const float, 2> matrix,
                                const std::string& name) {
  const int64_t n = matrix.sizes[0], k = matrix.sizes[1];
  const bool asks_library = provider_ == GemmProvider::kLibrary && precision != GemmPrecision::kF32;
  PackedMatrixPtr packed =
      make_packed_matrix({.precision = precision, .n = n, .k = k, .prefers_library = asks_library},
                         uploader_.stream());
  if (packed == nullptr || !dhs::pack_into(*packed, 0, matrix, uploader_.stream())) {
    fail(name, n * k);
    return nullptr;
  }
  if (asks_library) {
    ++(packed_matrix_uses_library(*packed) ? library_use_.num_taken : library_use_.num_left);
  }
  return packed;
}

PackedMatrixPtr Packer::stack_as(GemmPrecision precision, const std::vector<MatrixRows>& matrices) {
  int64_t rows = 0;
  const std::vector<float> stacked = stacked_rows(matrices, &rows);
  const WeightMatrix& first = *matrices.front().matrix;
  return pack_as(precision, view<const float>(stacked.data(), rows, first.columns), first.name);
}

PackedMatrixPtr Packer::stack(const std::vector<MatrixRows>& matrices) {
  return stack_as(precision_, matrices);
}

PackedMatrixPtr Packer::stack_f32(const std::vector<MatrixRows>& matrices) {
  return stack_as(GemmPrecision::kF32, matrices);
}

PackedMatrixPtr Packer::columns(const WeightMatrix& matrix, Shard shard) {
  std::vector<float> whole(matrix.rows * matrix.columns);
  matrix.to_f32(whole.data());
  const float* own = whole.data() + shard.first_of(matrix.columns);
  return pack_as(precision_,
                 {own, {matrix.rows, shard.part_of(matrix.columns)}, {matrix.columns, 1}},
                 matrix.name);
}

DeviceVector<float> Packer::vector(const std::vector<float>& values) {
  auto uploaded =
      uploader_.upload(values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
  if (!uploaded.ok()) {
    if (status_.ok()) status_ = uploaded.status();
    return {};
  }
  return {*std::move(uploaded)};
}

PackedLayer pack_layer(const LayerWeights& weights, const TargetConfig& config,
                       const Sharding& sharding, Packer& packer) {
  PackedLayer packed;
  packed.has_indexer = weights.indexer.has_value();
  packed.input_norm = packer.vector(weights.input_norm);
  packed.post_attention_norm = packer.vector(weights.post_attention_norm);
  packed.q_a_norm = packer.vector(weights.q_a_norm);
  packed.kv_a_norm = packer.vector(weights.kv_a_norm);
  std::vector<MatrixRows> down = {all_rows(weights.q_a), all_rows(weights.kv_a)};
  std::vector<MatrixRows> up = {own_rows(weights.q_b, sharding.heads)};
  if (packed.has_indexer) {
    const IndexerWeights& indexer = *weights.indexer;
    packed.key_norm_weight = packer.vector(indexer.key_norm_weight);
    packed.key_norm_bias = packer.vector(indexer.key_norm_bias);
    down.push_back(all_rows(indexer.key));
    up.push_back(all_rows(indexer.query));
    // Never reduced: the published reference computes the head weights in f32.
    packed.head_weights = packer.stack_f32({all_rows(indexer.head_weights)});
  }
  packed.down = packer.stack(down);
  packed.up = packer.stack(up);
  pack_absorbed(weights.kv_b, config, sharding.heads, packer, packed);
  packed.output = packer.columns(weights.o, sharding.heads);
  if (weights.dense.has_value()) packed.dense = pack_mlp(*weights.dense, sharding.mlp, packer);
  if (weights.moe.has_value()) packed.moe = pack_moe(*weights.moe, sharding, packer);
  return packed;
}

}  // namespace dhs
