#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <set>
#include <span>
#include <string_view>

#include "dhisparse/base.h"

namespace dhs {
namespace {

constexpr size_t kMaxReportedErrors = 20;
constexpr std::string_view kScaleSuffix = "_scale_inv";
constexpr std::string_view kLayerPrefix = "model.layers.";

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", shape[i]);
  }
  return text + "]";
}

bool is_shape(std::span<const int64_t> shape, std::initializer_list<int64_t> wanted) {
  return std::equal(shape.begin(), shape.end(), wanted.begin(), wanted.end());
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

// The N of "model.layers.N.", or nullopt.
std::optional<int> layer_of_tensor(std::string_view name) {
  if (name.substr(0, kLayerPrefix.size()) != kLayerPrefix) return std::nullopt;
  name.remove_prefix(kLayerPrefix.size());
  const size_t num_digits = name.find('.');
  if (num_digits == 0 || num_digits > 6) return std::nullopt;  // npos is above 6 too
  int layer = 0;
  for (char c : name.substr(0, num_digits)) {
    if (c < '0' || c > '9') return std::nullopt;
    layer = layer * 10 + (c - '0');
  }
  return layer;
}

class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, const TargetConfig& config)
      : checkpoint_(checkpoint), config_(config) {}

  absl::StatusOr<TargetWeights> load();

 private:
  LayerWeights load_layer(int layer);
  IndexerWeights load_indexer(const std::string& prefix);
  MoeWeights load_moe(const std::string& prefix);
  MlpWeights load_mlp(const std::string& prefix, int64_t intermediate_dim);
  WeightMatrix load_lm_head(const WeightMatrix& embedding);

  WeightMatrix matrix(std::string name, int64_t rows, int64_t columns);
  void load_block_scales(WeightMatrix& matrix);
  std::vector<float> vector(const std::string& name, int64_t size);
  std::vector<float> finite_values(const std::string& name, const TensorBytes& tensor);
  // The tensor, if it has this shape and a dtype that decodes; else notes an error.
  std::optional<TensorBytes> find(const std::string& name, std::initializer_list<int64_t> shape);

  void account_for_other_tensors();
  std::string why_unexpected(std::string_view name) const;
  absl::Status status() const;

  template <class... Parts>
  void error(absl::string_view name, const Parts&... why) {
    ++num_errors_;
    if (errors_.size() < kMaxReportedErrors) {
      errors_.push_back(absl::StrCat(name, ": ", why...));
    }
  }

  const Checkpoint& checkpoint_;
  const TargetConfig& config_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> errors_;
  size_t num_errors_ = 0;
};

absl::StatusOr<TargetWeights> WeightLoader::load() {
  TargetWeights weights;
  weights.embedding = matrix("model.embed_tokens.weight", config_.vocab_size, config_.hidden_dim);
  weights.final_norm = vector("model.norm.weight", config_.hidden_dim);
  weights.lm_head = load_lm_head(weights.embedding);
  weights.layers.reserve(config_.num_layers);
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    weights.layers.push_back(load_layer(layer));
  }
  account_for_other_tensors();
  DHS_RETURN_IF_ERROR(status());
  return weights;
}

WeightMatrix WeightLoader::load_lm_head(const WeightMatrix& embedding) {
  const std::string name = "lm_head.weight";
  if (!config_.tie_word_embeddings) return matrix(name, config_.vocab_size, config_.hidden_dim);
  const std::optional<TensorBytes> stored = checkpoint_.find(name);
  if (!stored) return embedding;
  // Some writers store the tied matrix twice. Two different ones leave open which is meant.
  used_.insert(name);
  if (stored->dtype != embedding.dtype || stored->bytes != embedding.stored_bytes() ||
      std::memcmp(stored->data, embedding.data, stored->bytes) != 0) {
    error(name,
          "differs from model.embed_tokens.weight, but config.json ties the two "
          "(tie_word_embeddings)");
  }
  return embedding;
}

LayerWeights WeightLoader::load_layer(int layer) {
  const TargetConfig& c = config_;
  const std::string prefix = absl::StrCat(to_absl(kLayerPrefix), layer, ".");
  const std::string attention = prefix + "self_attn.";
  const int64_t heads = c.num_heads;
  LayerWeights weights;
  weights.input_norm = vector(prefix + "input_layernorm.weight", c.hidden_dim);
  weights.post_attention_norm = vector(prefix + "post_attention_layernorm.weight", c.hidden_dim);
  weights.q_a = matrix(attention + "q_a_proj.weight", c.q_lora_rank, c.hidden_dim);
  weights.q_a_norm = vector(attention + "q_a_layernorm.weight", c.q_lora_rank);
  weights.q_b = matrix(attention + "q_b_proj.weight", heads * c.qk_head_dim(), c.q_lora_rank);
  weights.kv_a = matrix(attention + "kv_a_proj_with_mqa.weight", c.latent_row_dim(), c.hidden_dim);
  weights.kv_a_norm = vector(attention + "kv_a_layernorm.weight", c.kv_lora_rank);
  weights.kv_b = matrix(attention + "kv_b_proj.weight", heads * (c.qk_nope_dim + c.v_head_dim),
                        c.kv_lora_rank);
  weights.o = matrix(attention + "o_proj.weight", c.hidden_dim, heads * c.v_head_dim);
  if (layer_has_indexer(c, layer)) weights.indexer = load_indexer(attention + "indexer.");
  if (c.is_dense_layer(layer)) {
    weights.dense = load_mlp(prefix + "mlp.", c.dense_intermediate_dim);
  } else {
    weights.moe = load_moe(prefix + "mlp.");
  }
  return weights;
}

IndexerWeights WeightLoader::load_indexer(const std::string& prefix) {
  const TargetConfig& c = config_;
  IndexerWeights weights;
  weights.query =
      matrix(prefix + "wq_b.weight", int64_t{c.index_num_heads} * c.index_dim, c.q_lora_rank);
  weights.key = matrix(prefix + "wk.weight", c.index_dim, c.hidden_dim);
  weights.head_weights = matrix(prefix + "weights_proj.weight", c.index_num_heads, c.hidden_dim);
  weights.key_norm_weight = vector(prefix + "k_norm.weight", c.index_dim);
  weights.key_norm_bias = vector(prefix + "k_norm.bias", c.index_dim);
  return weights;
}

MlpWeights WeightLoader::load_mlp(const std::string& prefix, int64_t intermediate_dim) {
  MlpWeights weights;
  weights.gate = matrix(prefix + "gate_proj.weight", intermediate_dim, config_.hidden_dim);
  weights.up = matrix(prefix + "up_proj.weight", intermediate_dim, config_.hidden_dim);
  weights.down = matrix(prefix + "down_proj.weight", config_.hidden_dim, intermediate_dim);
  return weights;
}

MoeWeights WeightLoader::load_moe(const std::string& prefix) {
  const TargetConfig& c = config_;
  MoeWeights weights;
  weights.router = matrix(prefix + "gate.weight", c.num_experts, c.hidden_dim);
  weights.choice_bias = vector(prefix + "gate.e_score_correction_bias", c.num_experts);
  weights.experts.reserve(c.num_experts);
  for (int expert = 0; expert < c.num_experts; ++expert) {
    weights.experts.push_back(
        load_mlp(absl::StrCat(prefix, "experts.", expert, "."), c.moe_intermediate_dim));
  }
  if (c.num_shared_experts > 0) {
    weights.shared_expert = load_mlp(prefix + "shared_experts.",
                                     int64_t{c.num_shared_experts} * c.moe_intermediate_dim);
  }
  return weights;
}

std::optional<TensorBytes> WeightLoader::find(const std::string& name,
                                              std::initializer_list<int64_t> shape) {
  std::optional<TensorBytes> tensor = checkpoint_.find(name);
  used_.insert(name);
  if (!tensor) {
    error(name, "is missing; config.json asks for it");
    return std::nullopt;
  }
  if (!is_shape(tensor->shape, shape)) {
    error(name, "has shape ", shape_text(tensor->shape), ", config.json asks for ",
          shape_text({shape.begin(), shape.size()}));
    return std::nullopt;
  }
  if (!is_weight_dtype(tensor->dtype)) {
    error(name, "has dtype ", to_absl(tensor->dtype_name),
          ", supported are F32, BF16 and F8_E4M3; convert the checkpoint");
    return std::nullopt;
  }
  return tensor;
}

WeightMatrix WeightLoader::matrix(std::string name, int64_t rows, int64_t columns) {
  WeightMatrix matrix;
  const std::optional<TensorBytes> tensor = find(name, {rows, columns});
  matrix.name = std::move(name);
  if (!tensor) return matrix;
  matrix.dtype = *tensor->dtype;
  matrix.data = tensor->data;
  matrix.rows = rows;
  matrix.columns = columns;
  if (matrix.dtype == DType::kF8E4m3) load_block_scales(matrix);
  return matrix;
}

void WeightLoader::load_block_scales(WeightMatrix& matrix) {
  if (config_.quantization != WeightQuantization::kFp8Blocks) {
    return error(matrix.name, "has dtype F8_E4M3, but config.json has no quantization_config");
  }
  const std::string name = absl::StrCat(matrix.name, to_absl(kScaleSuffix));
  const auto tensor =
      find(name, {ceil_div(matrix.rows, kScaleBlock), ceil_div(matrix.columns, kScaleBlock)});
  if (!tensor) return;
  if (tensor->dtype != DType::kF32) {
    return error(name, "has dtype ", to_absl(tensor->dtype_name), ", scales must be F32");
  }
  matrix.block_scales = finite_values(name, *tensor);
}

std::vector<float> WeightLoader::vector(const std::string& name, int64_t size) {
  const std::optional<TensorBytes> tensor = find(name, {size});
  if (!tensor) return {};
  if (tensor->dtype == DType::kF8E4m3) {
    error(name, "has dtype F8_E4M3, a vector must be F32 or BF16");
    return {};
  }
  return finite_values(name, *tensor);
}

std::vector<float> WeightLoader::finite_values(const std::string& name, const TensorBytes& tensor) {
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

// Every tensor must be used or known to be of no use to the trunk: one that is silently left out
// would mean that the model is not the one we think it is.
void WeightLoader::account_for_other_tensors() {
  // One layer more than config.json admits: some files say 0 to switch drafting off, and keep it.
  const int mtp_end = config_.num_layers + std::max(config_.num_mtp_layers, 1);
  size_t num_mtp_tensors = 0;
  for (std::string_view name : checkpoint_.tensor_names()) {
    if (used_.count(name) > 0) continue;
    const std::optional<int> layer = layer_of_tensor(name);
    if (layer && *layer >= config_.num_layers && *layer < mtp_end) {
      ++num_mtp_tensors;
      continue;
    }
    // Recomputed from rope_theta; old writers stored them.
    constexpr std::string_view kFrequencies = ".rotary_emb.inv_freq";
    if (name.size() > kFrequencies.size() &&
        name.substr(name.size() - kFrequencies.size()) == kFrequencies) {
      continue;
    }
    error(to_absl(name), why_unexpected(name));
  }
  if (num_mtp_tensors > 0) {
    log_info("skipped ", num_mtp_tensors, " tensors of the multi-token prediction layers from ",
             config_.num_layers, " on");
  }
}

std::string WeightLoader::why_unexpected(std::string_view name) const {
  const std::optional<int> layer = layer_of_tensor(name);
  if (layer && *layer >= config_.num_layers) {
    return absl::StrCat("layer ", *layer, " is beyond num_hidden_layers ", config_.num_layers,
                        " and num_nextn_predict_layers ", config_.num_mtp_layers,
                        " of config.json");
  }
  if (layer && name.find(".indexer.") != std::string_view::npos &&
      !layer_has_indexer(config_, *layer)) {
    const IndexGroup& group = config_.index_groups[index_group_of_layer(config_, *layer)];
    return absl::StrCat("layer ", *layer, " shares the selection of layer ", group.first_layer,
                        " and must not have an indexer; see indexer_types in config.json");
  }
  return "unexpected tensor; config.json describes no use for it";
}

absl::Status WeightLoader::status() const {
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

absl::StatusOr<TargetWeights> load_target_weights(const Checkpoint& checkpoint,
                                                  const TargetConfig& config) {
  return WeightLoader(checkpoint, config).load();
}

}  // namespace dhs
