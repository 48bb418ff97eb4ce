#include "model/target_config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "dhisparse/base.h"
#include "model/config_reader.h"
#include "model/index_groups.h"
#include "model/json_value.h"

namespace dhs {
namespace {

// Limits of sanity: far above every published model, far below an overflow of a product of three.
constexpr int64_t kMaxDim = 1 << 17;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxExperts = 8192;
constexpr int64_t kMaxPosition = 1 << 30;

constexpr char kFile[] = "config.json: ";
constexpr char kGenerationFile[] = "generation_config.json: ";

struct FamilyNames {
  TargetFamily family;
  const char* model_type;
  const char* architecture;
};
constexpr FamilyNames kFamilies[] = {
    {TargetFamily::kGlmMoeDsa, "glm_moe_dsa", "GlmMoeDsaForCausalLM"},
    {TargetFamily::kDeepseekV32, "deepseek_v32", "DeepseekV32ForCausalLM"},
};

// Keys that cannot change what the trunk computes from a prompt.
constexpr const char* kHarmlessKeys[] = {
    // Which library wrote the file, and where its classes are.
    "transformers_version", "auto_map", "_name_or_path",
    // Every tensor states its own dtype.
    "dtype", "torch_dtype",
    // Training only.
    "initializer_range", "aux_loss_alpha", "seq_aux", "router_aux_loss_coef",
    "output_router_logits",
    // How other programs run the model: caching, and how work is spread over processes.
    "use_cache", "pretraining_tp", "ep_size",
    // The tokenizer's business; the end of a sequence is consumed below.
    "bos_token_id", "pad_token_id"};

class TargetConfigParser {
 public:
  explicit TargetConfigParser(const JsonValue& root) : reader_(kFile, root, &errors_) {}

  absl::StatusOr<TargetConfig> parse(const JsonValue* generation) {
    DHS_RETURN_IF_ERROR(read_family());
    read_sizes();
    read_attention();
    read_rope();
    read_indexer();
    read_experts();
    read_layer_types();
    read_quantization();
    read_eos(generation);
    check_fixed_values();
    for (const char* key : kHarmlessKeys) reader_.ignore(key);
    reader_.reject_unknown();
    if (errors_.empty()) return std::move(config_);
    std::string message;
    for (const std::string& error : errors_) {
      absl::StrAppend(&message, message.empty() ? "" : "\n", error);
    }
    return absl::InvalidArgumentError(message);
  }

 private:
  absl::Status read_family();
  void read_sizes();
  void read_attention();
  void read_rope();
  void read_rope_theta(ConfigReader* rope);
  void read_yarn(ConfigReader& rope);
  void read_indexer();
  void read_experts();
  void read_layer_types();
  void read_quantization();
  void read_eos(const JsonValue* generation);
  void check_fixed_values();

  int size(std::string_view key, int64_t max = kMaxDim) {
    return static_cast<int>(reader_.integer(key, {1, max}));
  }
  int count(std::string_view key, int64_t max, int64_t fallback) {
    return static_cast<int>(reader_.integer(key, {0, max}, fallback));
  }

  std::vector<std::string> errors_;
  ConfigReader reader_;
  TargetConfig config_;
};

absl::Status TargetConfigParser::read_family() {
  const std::optional<std::string> model_type = reader_.text("model_type");
  const auto architectures = reader_.texts("architectures");
  const std::string architecture =
      architectures && !architectures->empty() ? architectures->front() : "";
  for (const FamilyNames& names : kFamilies) {
    if (model_type != names.model_type) continue;
    config_.family = names.family;
    // Fine-tunes may leave the class name out; a contradiction is another matter.
    if (architecture.empty() || architecture == names.architecture) return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      kFile, "model_type \"", model_type.value_or(""), "\" with architecture \"", architecture,
      "\" is not supported; supported are \"glm_moe_dsa\" (GlmMoeDsaForCausalLM) and "
      "\"deepseek_v32\" (DeepseekV32ForCausalLM)"));
}

void TargetConfigParser::read_sizes() {
  config_.vocab_size = size("vocab_size", kMaxVocab);
  config_.hidden_dim = size("hidden_size");
  config_.num_layers = size("num_hidden_layers", kMaxLayers);
  config_.num_mtp_layers = count("num_nextn_predict_layers", kMaxLayers, 0);
  config_.max_position = reader_.integer("max_position_embeddings", {1, kMaxPosition});
  config_.tie_word_embeddings = reader_.flag("tie_word_embeddings", false);
  config_.rms_norm_eps = reader_.real("rms_norm_eps", {0, 1});
  config_.latent_norm_eps = config_.rms_norm_eps;
}

void TargetConfigParser::read_attention() {
  config_.num_heads = size("num_attention_heads", kMaxHeads);
  config_.q_lora_rank = size("q_lora_rank");
  config_.kv_lora_rank = size("kv_lora_rank");
  config_.qk_nope_dim = size("qk_nope_head_dim");
  config_.qk_rope_dim = size("qk_rope_head_dim");
  config_.v_head_dim = size("v_head_dim");
  if (config_.qk_rope_dim % 2 != 0) {
    reader_.error("qk_rope_head_dim", config_.qk_rope_dim, " is odd; rope turns pairs of channels");
  }
  config_.softmax_scale = 1.0 / std::sqrt(static_cast<double>(config_.qk_head_dim()));

  reader_.expect_number("qk_head_dim", config_.qk_head_dim());
  // MLA has one KV head whatever this says; published files repeat the number of heads.
  reader_.expect_number("num_key_value_heads", config_.num_heads);
  // Published files put the nope width here, later ones the rope width; nothing is sized by it.
  const int64_t head_dim = reader_.integer("head_dim", {1, kMaxDim}, config_.qk_nope_dim);
  if (head_dim != config_.qk_nope_dim && head_dim != config_.qk_rope_dim &&
      head_dim != config_.qk_head_dim()) {
    reader_.error("head_dim", head_dim, " is none of qk_nope_head_dim ", config_.qk_nope_dim,
                  ", qk_rope_head_dim ", config_.qk_rope_dim, " and their sum");
  }
}

// Newer files say rope_parameters, older ones rope_theta and rope_scaling; both mean the same.
void TargetConfigParser::read_rope() {
  const JsonValue* parameters = reader_.find("rope_parameters");
  const JsonValue* scaling = reader_.find("rope_scaling");
  if (parameters != nullptr && scaling != nullptr) {
    reader_.error("rope_scaling", "rope_parameters says it already; remove one of the two");
  }
  const std::string key = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  const JsonValue* chosen = parameters != nullptr ? parameters : scaling;
  if (chosen == nullptr) return read_rope_theta(nullptr);
  if (chosen->object() == nullptr) {
    return reader_.error(key, json_excerpt(*chosen), " is not an object");
  }
  ConfigReader rope(absl::StrCat(kFile, key, "."), *chosen, &errors_);
  read_rope_theta(&rope);
  const auto type = rope.text("rope_type");
  const auto old_type = rope.text("type");
  if (type && old_type && *type != *old_type) {
    rope.error("type", "\"", *old_type, "\" contradicts rope_type \"", *type, "\"");
  }
  const std::string kind = type ? *type : old_type.value_or("default");
  if (kind == "yarn") {
    read_yarn(rope);
  } else if (kind != "default") {
    rope.error("rope_type", "\"", kind, "\" is not supported, only \"default\" and \"yarn\" are");
  }
  rope.reject_unknown();
}

void TargetConfigParser::read_rope_theta(ConfigReader* rope) {
  constexpr ConfigReader::RealRange kRange{1, 1e15};
  const bool is_nested = rope != nullptr && rope->find("rope_theta") != nullptr;
  if (!is_nested) {
    config_.rope_theta = reader_.real("rope_theta", kRange);
    return;
  }
  config_.rope_theta = rope->real("rope_theta", kRange);
  reader_.expect_number("rope_theta", config_.rope_theta);
}

// arXiv 2309.00071, as DeepSeek uses it: the ramp always applies, also to contexts below
// original_max_position, because a token's row must not depend on how long its sequence becomes.
void TargetConfigParser::read_yarn(ConfigReader& rope) {
  YarnParams yarn;
  yarn.factor = rope.real("factor", {1, 1e6});
  yarn.original_max_position =
      static_cast<double>(rope.integer("original_max_position_embeddings", {1, kMaxPosition}));
  yarn.beta_fast = rope.real("beta_fast", {0, 1e6}, 32);
  yarn.beta_slow = rope.real("beta_slow", {0, 1e6}, 1);
  if (yarn.beta_fast <= yarn.beta_slow) {
    rope.error("beta_fast", yarn.beta_fast, " must be above beta_slow ", yarn.beta_slow);
  }
  rope.expect_flag("truncate", true);

  const auto mscale_of = [&](double weight) { return 0.1 * weight * std::log(yarn.factor) + 1; };
  const bool has_mscale = rope.find("mscale") != nullptr;
  const bool has_all_dim = rope.find("mscale_all_dim") != nullptr;
  if (has_mscale != has_all_dim) {
    rope.error(has_mscale ? "mscale_all_dim" : "mscale",
               "is missing; implementations differ unless both or neither are given");
  } else if (has_mscale) {
    const double all_dim = mscale_of(rope.real("mscale_all_dim", {0, 100}));
    config_.rope_magnitude = mscale_of(rope.real("mscale", {0, 100})) / all_dim;
    config_.softmax_scale *= all_dim * all_dim;
  } else {
    config_.rope_magnitude = mscale_of(1);
  }
  config_.yarn = yarn;
}

void TargetConfigParser::read_indexer() {
  config_.index_num_heads = size("index_n_heads", kMaxHeads);
  config_.index_dim = size("index_head_dim");
  config_.index_top_k = static_cast<int>(reader_.integer("index_topk", {1, kMaxPosition}));
  config_.indexer_rope_interleaved = reader_.flag("indexer_rope_interleave", false);
  if (config_.index_dim < config_.qk_rope_dim) {
    reader_.error("index_head_dim", config_.index_dim, " is below qk_rope_head_dim ",
                  config_.qk_rope_dim, ", which rope turns of it");
  }
  config_.mtp_shares_selection = reader_.flag("index_share_for_mtp_iteration", false);
  config_.index_groups = read_index_groups(reader_, config_.num_layers);
}

void TargetConfigParser::read_experts() {
  config_.dense_intermediate_dim = size("intermediate_size");
  config_.moe_intermediate_dim = size("moe_intermediate_size");
  config_.num_experts = size("n_routed_experts", kMaxExperts);
  config_.experts_per_token = size("num_experts_per_tok", kMaxExperts);
  config_.num_shared_experts = count("n_shared_experts", kMaxExperts, 0);
  config_.num_expert_groups = static_cast<int>(reader_.integer("n_group", {1, kMaxExperts}, 1));
  config_.top_expert_groups = static_cast<int>(reader_.integer("topk_group", {1, kMaxExperts}, 1));
  config_.normalize_expert_weights = reader_.flag("norm_topk_prob", true);
  config_.routed_scale = reader_.real("routed_scaling_factor", {0, 1e6}, 1.0);

  const int num_experts = config_.num_experts;
  const int num_groups = config_.num_expert_groups;
  if (num_experts % num_groups != 0) {
    return reader_.error("n_routed_experts", num_experts, " experts do not divide into n_group ",
                         num_groups, " equal groups");
  }
  const int group_size = num_experts / num_groups;
  if (num_groups > 1 && group_size < 2) {
    reader_.error("n_group", num_groups,
                  " leaves one expert per group; a group is scored by its best two");
  }
  if (config_.top_expert_groups > num_groups) {
    reader_.error("topk_group", config_.top_expert_groups, " is above n_group ", num_groups);
  }
  const int64_t num_choices = int64_t{config_.top_expert_groups} * group_size;
  if (config_.experts_per_token > num_choices) {
    reader_.error("num_experts_per_tok", config_.experts_per_token, " is above the ", num_choices,
                  " experts that topk_group ", config_.top_expert_groups, " leaves to choose from");
  }
}

void TargetConfigParser::read_layer_types() {
  const bool has_count = reader_.find("first_k_dense_replace") != nullptr;
  config_.first_k_dense = count("first_k_dense_replace", config_.num_layers, 0);
  const auto types = reader_.texts("mlp_layer_types");
  if (!types) return;
  const auto is_dense = [](const std::string& type) { return type == "dense"; };
  const auto is_sparse = [](const std::string& type) { return type == "sparse"; };
  const auto first_other = std::find_if_not(types->begin(), types->end(), is_dense);
  const int num_dense = static_cast<int>(first_other - types->begin());
  if (static_cast<int>(types->size()) != config_.num_layers) {
    reader_.error("mlp_layer_types", types->size(), " layers, num_hidden_layers is ",
                  config_.num_layers);
  } else if (!std::all_of(first_other, types->end(), is_sparse)) {
    reader_.error("mlp_layer_types",
                  "only \"dense\" layers followed by \"sparse\" ones are supported");
  } else if (has_count && num_dense != config_.first_k_dense) {
    reader_.error("mlp_layer_types", num_dense, " dense layers contradict first_k_dense_replace ",
                  config_.first_k_dense);
  }
  config_.first_k_dense = num_dense;
}

// Weights are multiplied out when they are loaded. Activations stay as they are: "dynamic" asks
// engines to round them to FP8, which costs accuracy and is no part of the model.
void TargetConfigParser::read_quantization() {
  const JsonValue* value = reader_.find("quantization_config");
  if (value == nullptr) return;
  if (value->object() == nullptr) {
    return reader_.error("quantization_config", json_excerpt(*value), " is not an object");
  }
  ConfigReader quantization(absl::StrCat(kFile, "quantization_config."), *value, &errors_);
  if (!quantization.text("quant_method")) {
    quantization.error("quant_method", "is missing; only \"fp8\" is supported");
  }
  quantization.expect_text("quant_method", "fp8");
  quantization.expect_text("fmt", "e4m3");
  quantization.expect_text("activation_scheme", "dynamic");
  // How the scales were rounded: they are f32 either way. Which matrices are FP8: their dtype says.
  for (const char* key : {"scale_fmt", "modules_to_not_convert", "ignored_layers"}) {
    quantization.ignore(key);
  }
  const auto block = quantization.integers("weight_block_size");
  if (block != std::vector<int64_t>{kScaleBlock, kScaleBlock}) {
    quantization.error("weight_block_size", "must be [", kScaleBlock, ", ", kScaleBlock, "]");
  }
  quantization.reject_unknown();
  config_.quantization = WeightQuantization::kFp8Blocks;
}

void TargetConfigParser::read_eos(const JsonValue* generation) {
  auto ids = reader_.integers("eos_token_id");
  std::string path = kFile;
  if (generation != nullptr) {
    // The other keys are sampling defaults, none of the model's business.
    ConfigReader generation_reader(kGenerationFile, *generation, &errors_);
    if (auto from_generation = generation_reader.integers("eos_token_id")) {
      ids = std::move(from_generation);
      path = kGenerationFile;
    }
  }
  if (!ids) return;
  for (int64_t id : *ids) {
    if (id < 0 || id >= config_.vocab_size) {
      errors_.push_back(absl::StrCat(path, "eos_token_id: ", id, " is outside the vocabulary [0, ",
                                     config_.vocab_size, ")"));
      continue;
    }
    const auto token = static_cast<TokenId>(id);
    auto& known = config_.eos_token_ids;
    if (std::find(known.begin(), known.end(), token) == known.end()) known.push_back(token);
  }
}

void TargetConfigParser::check_fixed_values() {
  reader_.expect_flag("attention_bias", false);
  reader_.expect_flag("mlp_bias", false);
  reader_.expect_number("attention_dropout", 0);
  reader_.expect_text("hidden_act", "silu");
  reader_.expect_text("scoring_func", "sigmoid");
  reader_.expect_text("topk_method", "noaux_tc");
  reader_.expect_text("moe_router_dtype", "float32");
  reader_.expect_number("moe_layer_freq", 1);
  reader_.expect_flag("rope_interleave", true);
}

absl::StatusOr<JsonValue> parse_object(absl::string_view path, std::string_view json) {
  absl::StatusOr<JsonValue> root = parse_json(json);
  if (!root.ok()) return absl::InvalidArgumentError(absl::StrCat(path, root.status().message()));
  if (root->object() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, "is ", json_kind_name(*root), ", not an object"));
  }
  return root;
}

}  // namespace

const char* target_family_name(TargetFamily family) {
  for (const FamilyNames& names : kFamilies) {
    if (names.family == family) return names.model_type;
  }
  return "?";
}

int index_group_of_layer(const TargetConfig& config, int layer) {
  DHS_CHECK(layer >= 0 && layer < config.num_layers, "layer ", layer);
  const auto next = std::upper_bound(
      config.index_groups.begin(), config.index_groups.end(), layer,
      [](int value, const IndexGroup& group) { return value < group.first_layer; });
  return static_cast<int>(next - config.index_groups.begin()) - 1;
}

bool layer_has_indexer(const TargetConfig& config, int layer) {
  return config.index_groups[index_group_of_layer(config, layer)].first_layer == layer;
}

absl::StatusOr<TargetConfig> parse_target_config(std::string_view config_json,
                                                 std::string_view generation_config_json) {
  DHS_ASSIGN_OR_RETURN(const JsonValue root, parse_object(kFile, config_json));
  if (generation_config_json.empty()) return TargetConfigParser(root).parse(nullptr);
  DHS_ASSIGN_OR_RETURN(const JsonValue generation,
                       parse_object(kGenerationFile, generation_config_json));
  return TargetConfigParser(root).parse(&generation);
}

}  // namespace dhs
