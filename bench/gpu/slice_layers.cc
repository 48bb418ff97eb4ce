#include "slice_layers.h"

#include <cmath>
#include <cstdlib>

namespace dhs::bench {
namespace {

TargetConfig glm_config() {
  TargetConfig config;
  config.vocab_size = 256;  // no logits here
  config.hidden_dim = 6144;
  config.num_layers = 4;
  config.max_position = 1 << 20;
  config.rms_norm_eps = config.latent_norm_eps = 1e-5;
  config.num_heads = 64;
  config.q_lora_rank = 2048;
  config.kv_lora_rank = 512;
  config.qk_nope_dim = 192;
  config.qk_rope_dim = 64;
  config.v_head_dim = 256;
  config.softmax_scale = 1.0 / 16;
  config.rope_theta = 8e6;
  config.index_num_heads = 32;
  config.index_dim = 128;
  config.index_top_k = 2048;
  config.indexer_rope_interleaved = true;
  config.index_groups = {{.first_layer = 0, .num_layers = 4}};
  config.moe_intermediate_dim = 2048;
  config.num_experts = 32;
  config.experts_per_token = 8;
  config.num_shared_experts = 1;
  config.routed_scale = 2.5;
  return config;
}

TargetConfig tiny_config() {
  TargetConfig config = glm_config();
  config.hidden_dim = 64;
  config.num_heads = 16;
  config.q_lora_rank = 32;
  config.kv_lora_rank = 64;
  config.qk_nope_dim = config.qk_rope_dim = config.v_head_dim = 16;
  config.index_num_heads = 4;
  config.index_dim = 32;
  config.index_top_k = 16;
  config.moe_intermediate_dim = 32;
  config.num_experts = 4;
  config.experts_per_token = 2;
  return config;
}

class Weights {
 public:
  explicit Weights(const Bench& bench) : bench_(bench), values_(normal_floats(kMostValues, 61)) {}

  // Rows overlap in the random values they take: what counts is that no two are alike.
  PackedMatrixPtr matrix(GemmPrecision precision, int64_t count, int64_t n, int64_t k) const {
    constexpr int64_t kRowStep = 61;
    DHS_CHECK(n * kRowStep + k <= kMostValues, "a matrix of ", n, " x ", k);
    std::vector<float> scaled(static_cast<size_t>(n * kRowStep + k));
    const float scale = 1.0f / std::sqrt(static_cast<float>(k));
    PackedMatrixPtr packed = make_packed_matrix(
        {.precision = precision, .count = count, .n = n, .k = k}, bench_.stream());
    bool is_packed = packed != nullptr;
    for (int64_t i = 0; i < count && is_packed; ++i) {
      for (int64_t j = 0; j < std::ssize(scaled); ++j) {
        scaled[j] = scale * values_[(j + i * 7919) % kMostValues];
      }
      is_packed = pack_into(*packed, i, {scaled.data(), {n, k}, {kRowStep, 1}}, bench_.stream());
    }
    if (is_packed) return packed;
    log_error("no device memory for ", count, " matrices of ", n, " x ", k);
    std::exit(1);
  }
  PackedMatrixPtr bf16(int64_t n, int64_t k, int64_t count = 1) const {
    return matrix(GemmPrecision::kBf16, count, n, k);
  }
  PackedMatrixPtr f32(int64_t n, int64_t k) const { return matrix(GemmPrecision::kF32, 1, n, k); }
  DeviceVector<float> constant(int64_t count, float value) const {
    return {bench_.uploaded(std::vector<float>(static_cast<size_t>(count), value))};
  }

 private:
  static constexpr int64_t kMostValues = int64_t{2} << 20;
  const Bench& bench_;
  const std::vector<float> values_;
};

PackedMlp make_mlp(const Weights& weights, const TargetConfig& config, int64_t count) {
  const int64_t width = config.moe_intermediate_dim;
  return {.gate_up = weights.bf16(2 * width, config.hidden_dim, count),
          .down = weights.bf16(config.hidden_dim, width, count),
          .intermediate_dim = width};
}

PackedLayer make_layer(const Weights& weights, const TargetConfig& config, bool has_indexer) {
  const int64_t hidden = config.hidden_dim;
  const int64_t heads = config.num_heads;
  PackedLayer layer;
  layer.has_indexer = has_indexer;
  layer.input_norm = weights.constant(hidden, 1.0f);
  layer.post_attention_norm = weights.constant(hidden, 1.0f);
  layer.q_a_norm = weights.constant(config.q_lora_rank, 1.0f);
  layer.kv_a_norm = weights.constant(config.kv_lora_rank, 1.0f);
  int64_t down = config.q_lora_rank + config.latent_row_dim();
  int64_t up = heads * config.qk_head_dim();
  if (has_indexer) {
    layer.key_norm_weight = weights.constant(config.index_dim, 1.0f);
    layer.key_norm_bias = weights.constant(config.index_dim, 0.0f);
    layer.head_weights = weights.f32(config.index_num_heads, hidden);
    down += config.index_dim;
    up += int64_t{config.index_num_heads} * config.index_dim;
  }
  layer.down = weights.bf16(down, hidden);
  layer.up = weights.bf16(up, config.q_lora_rank);
  layer.absorb_key = weights.bf16(config.kv_lora_rank, config.qk_nope_dim, heads);
  layer.absorb_value = weights.bf16(config.v_head_dim, config.kv_lora_rank, heads);
  layer.output = weights.bf16(hidden, heads * config.v_head_dim);
  layer.moe.emplace();
  layer.moe->router = weights.f32(config.num_experts, hidden);
  layer.moe->choice_bias = weights.constant(config.num_experts, 0.0f);
  layer.moe->experts = make_mlp(weights, config, config.num_experts);
  layer.moe->shared_expert = make_mlp(weights, config, 1);
  return layer;
}

double bytes_of(const PackedMlp& mlp) {
  return static_cast<double>(packed_matrix_bytes(*mlp.gate_up) + packed_matrix_bytes(*mlp.down));
}

}  // namespace

double SliceModel::weight_bytes(int64_t batch) const {
  double total = 0;
  for (int number = 0; number < config.num_layers; ++number) {
    const PackedLayer& weights = layer(number);
    for (const PackedMatrixPtr* matrix :
         {&weights.down, &weights.up, &weights.absorb_key, &weights.absorb_value, &weights.output,
          &weights.moe->router}) {
      total += static_cast<double>(packed_matrix_bytes(**matrix));
    }
    // Experts that somebody chooses, if choices were independent.
    const double idle = 1.0 - double{1} * config.experts_per_token / config.num_experts;
    total += bytes_of(weights.moe->experts) * (1.0 - std::pow(idle, static_cast<double>(batch)));
    total += bytes_of(*weights.moe->shared_expert);
  }
  return total;
}

SliceModel make_slice_model(const Bench& bench) {
  SliceModel model;
  model.config = bench.is_tiny ? tiny_config() : glm_config();
  const Weights weights(bench);
  model.first_layer = make_layer(weights, model.config, true);
  model.later_layer = make_layer(weights, model.config, false);
  // Slower than a model's: random keys were never rotated, so turning the query by a whole position
  // would change what it selects by more than real text does.
  std::vector<double> frequencies =
      rope_frequencies(model.config.qk_rope_dim, model.config.rope_theta, nullptr);
  for (double& frequency : frequencies) frequency *= 0.02;
  model.rope_frequencies = {bench.uploaded(frequencies)};
  return model;
}

}  // namespace dhs::bench
