#include "model/block_draft_config.h"

#include <algorithm>
#include <optional>
#include <string>

#include "model/config_reader.h"
#include "model/json_value.h"

namespace dhs {
namespace {

constexpr int64_t kMaxDim = 1 << 17;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxBlockRows = 64;
constexpr int64_t kMaxCandidates = 64;
constexpr int64_t kMaxPosition = 1 << 30;
constexpr char kFile[] = "config.json: ";

// Keys that cannot change what a draft proposes.
constexpr const char* kHarmlessKeys[] = {
    // Which library wrote the file, and where its classes are.
    "transformers_version", "auto_map", "_name_or_path", "speculators_version",
    "speculators_config", "has_no_defaults_at_init",
    // Every tensor states its own dtype.
    "dtype", "torch_dtype",
    // Training only.
    "initializer_range", "num_anchors", "loss_type", "loss_decay_gamma", "attention_dropout",
    // Embedding and head are the target's, tied or not; which layers could have a window.
    "tie_word_embeddings", "max_window_layers",
    // How other programs run the model, and the tokenizer's business.
    "use_cache", "bos_token_id", "eos_token_id", "pad_token_id"};

// The formats differ in where a key is: at the top, or in an object of its own.
class BlockDraftConfigParser {
 public:
  explicit BlockDraftConfigParser(const JsonValue& root) : root_(kFile, root, &errors_) {}

  absl::StatusOr<BlockDraftConfig> parse() {
    DHS_RETURN_IF_ERROR(read_family());
    open_nested();
    read_sizes();
    read_rope();
    read_block();
    read_target_layers();
    read_masks();
    if (config_.family == BlockDraftFamily::kDflash2) read_dflash2();
    if (config_.family == BlockDraftFamily::kDspark) read_dspark();
    check_fixed_values();
    for (std::optional<ConfigReader>* reader : {&draft_, &layers_}) {
      if (!reader->has_value()) continue;
      for (const char* key : kHarmlessKeys) (*reader)->ignore(key);
      (*reader)->reject_unknown();
    }
    for (const char* key : kHarmlessKeys) root_.ignore(key);
    root_.reject_unknown();
    if (errors_.empty()) return std::move(config_);
    std::string message;
    for (const std::string& error : errors_) {
      absl::StrAppend(&message, message.empty() ? "" : "\n", error);
    }
    return absl::InvalidArgumentError(message);
  }

 private:
  absl::Status read_family();
  void open_nested();
  void read_sizes();
  void read_rope();
  void read_block();
  void read_target_layers();
  void read_masks();
  void read_window(std::vector<bool>& is_sliding);
  bool is_causal(bool is_sliding);
  void read_dflash2();
  void read_dspark();
  void check_fixed_values();

  // Where the draft's own keys are: its object comes before the top level.
  ConfigReader& of_draft(std::string_view key) {
    root_.ignore(key);
    return draft_.has_value() && draft_->find(key) != nullptr ? *draft_ : root_;
  }
  // Where the keys of a Qwen3 model are.
  ConfigReader& of_layers() { return layers_.has_value() ? *layers_ : root_; }
  int size(ConfigReader& reader, std::string_view key, int64_t max = kMaxDim) {
    return static_cast<int>(reader.integer(key, {1, max}));
  }

  std::vector<std::string> errors_;
  ConfigReader root_;
  std::optional<ConfigReader> draft_;   // dflash_config
  std::optional<ConfigReader> layers_;  // transformer_layer_config
  bool is_speculators_ = false;
  BlockDraftConfig config_;
};

absl::Status BlockDraftConfigParser::read_family() {
  const auto architectures = root_.texts("architectures");
  const std::string name =
      architectures.has_value() && !architectures->empty() ? architectures->front() : "";
  is_speculators_ = root_.find("speculators_model_type") != nullptr;
  if (name == "DFlashDraftModel" && !is_speculators_) {
    config_.family = BlockDraftFamily::kDflash;
  } else if (name == "DFlash2DraftModel" && !is_speculators_) {
    config_.family = BlockDraftFamily::kDflash2;
  } else if (name == "Qwen3DSparkModel" || (name == "DSparkDraftModel" && is_speculators_)) {
    config_.family = BlockDraftFamily::kDspark;
    root_.expect_text("speculators_model_type", "dspark");
  } else {
    return absl::UnimplementedError(
        absl::StrCat(kFile, "architecture \"", name, "\"", is_speculators_ ? " of speculators" : "",
                     " is no supported draft; supported are DFlashDraftModel, DFlash2DraftModel, "
                     "Qwen3DSparkModel, and DSparkDraftModel of speculators"));
  }
  if (root_.find("model_type") != nullptr && !is_speculators_) {
    root_.expect_text("model_type", "qwen3");
  }
  return absl::OkStatus();
}

void BlockDraftConfigParser::open_nested() {
  const auto open = [&](const char* key, std::optional<ConfigReader>& reader) {
    const JsonValue* value = root_.find(key);
    if (value == nullptr) return;
    if (value->object() == nullptr) {
      return root_.error(key, json_excerpt(*value), " is not an object");
    }
    reader.emplace(absl::StrCat(kFile, key, "."), *value, &errors_);
  };
  if (config_.family != BlockDraftFamily::kDspark) open("dflash_config", draft_);
  if (!is_speculators_) return;
  root_.ignore("model_type");
  open("transformer_layer_config", layers_);
  if (!layers_.has_value()) {
    root_.error("transformer_layer_config", "is missing; it holds the sizes of the layers");
  } else {
    layers_->ignore("model_type");
    layers_->ignore("architectures");
  }
}

void BlockDraftConfigParser::read_sizes() {
  ConfigReader& layers = of_layers();
  config_.vocab_size = size(layers, "vocab_size", kMaxVocab);
  config_.hidden_dim = size(layers, "hidden_size");
  config_.intermediate_dim = size(layers, "intermediate_size");
  config_.num_layers = size(layers, "num_hidden_layers", kMaxLayers);
  config_.num_heads = size(layers, "num_attention_heads");
  config_.num_kv_heads =
      static_cast<int>(layers.integer("num_key_value_heads", {1, kMaxDim}, config_.num_heads));
  config_.head_dim = static_cast<int>(
      layers.integer("head_dim", {1, kMaxDim}, config_.hidden_dim / config_.num_heads));
  config_.rms_norm_eps = layers.real("rms_norm_eps", {0, 1});
  layers.integer("max_position_embeddings", {1, kMaxPosition}, kMaxPosition);
  if (config_.num_heads % config_.num_kv_heads != 0) {
    layers.error("num_key_value_heads", config_.num_kv_heads, " does not divide the ",
                 config_.num_heads, " attention heads");
  }
  if (config_.head_dim % 2 != 0) {
    layers.error("head_dim", config_.head_dim, " is odd; rope turns pairs of channels");
  }
  config_.target_hidden_dim =
      static_cast<int>(of_draft("target_hidden_size")
                           .integer("target_hidden_size", {1, kMaxDim}, config_.hidden_dim));
  config_.num_target_layers = static_cast<int>(
      of_draft("num_target_layers").integer("num_target_layers", {1, kMaxLayers}, 0));
  const int64_t draft_vocab =
      of_draft("draft_vocab_size").integer("draft_vocab_size", {1, kMaxVocab}, config_.vocab_size);
  if (draft_vocab != config_.vocab_size) {
    root_.error("draft_vocab_size", draft_vocab, " is not vocab_size ", config_.vocab_size,
                "; drafts of a reduced vocabulary are not supported");
  }
}

void BlockDraftConfigParser::read_rope() {
  constexpr ConfigReader::RealRange kRange{1, 1e15};
  ConfigReader& layers = of_layers();
  if (layers.find("rope_scaling") != nullptr) {
    layers.error("rope_scaling", "drafts with scaled rope are not supported");
  }
  const JsonValue* parameters = layers.find("rope_parameters");
  if (parameters == nullptr) {
    config_.rope_theta = layers.real("rope_theta", kRange);
    return;
  }
  if (parameters->object() == nullptr) {
    return layers.error("rope_parameters", json_excerpt(*parameters), " is not an object");
  }
  ConfigReader rope(absl::StrCat(kFile, "rope_parameters."), *parameters, &errors_);
  config_.rope_theta = rope.real("rope_theta", kRange);
  layers.expect_number("rope_theta", config_.rope_theta);
  rope.expect_text("rope_type", "default");
  rope.reject_unknown();
}

void BlockDraftConfigParser::read_block() {
  config_.block_rows =
      static_cast<int>(of_draft("block_size").integer("block_size", {1, kMaxBlockRows}));
  config_.mask_token = static_cast<TokenId>(
      of_draft("mask_token_id").integer("mask_token_id", {0, config_.vocab_size - 1}));
  if (config_.family != BlockDraftFamily::kDspark) {
    if (config_.block_rows < 2) {
      root_.error("block_size", config_.block_rows, " leaves no row that proposes");
    }
    return;
  }
  config_.proposes_from_anchor = root_.flag("sample_from_anchor", true);
  if (!config_.proposes_from_anchor && config_.block_rows < 2) {
    root_.error("block_size", config_.block_rows, " leaves no row that proposes");
  }
}

void BlockDraftConfigParser::read_target_layers() {
  constexpr const char* kIds = "target_layer_ids";
  constexpr const char* kAuxiliary = "aux_hidden_state_layer_ids";  // inputs of these layers
  const bool has_inputs = is_speculators_ && root_.find(kAuxiliary) != nullptr;
  ConfigReader& reader = has_inputs ? root_ : of_draft(kIds);
  const char* key = has_inputs ? kAuxiliary : kIds;
  const auto ids = reader.integers(key);
  if (!ids.has_value() || ids->empty()) {
    return reader.error(key,
                        "is missing; it says which hidden states of the target the draft was "
                        "trained on, and no rule can replace it");
  }
  for (int64_t id : *ids) {
    const int64_t layer = has_inputs ? id - 1 : id;
    if (layer < 0 || layer >= kMaxLayers) {
      reader.error(key, id, " names no layer of the target");
      continue;
    }
    config_.target_layers.push_back(static_cast<int>(layer));
  }
}

// Sliding layers: named one by one, or all of them by the draft's own keys.
void BlockDraftConfigParser::read_window(std::vector<bool>& is_sliding) {
  ConfigReader& layers = of_layers();
  const bool uses_window = layers.flag("use_sliding_window", true);
  const JsonValue* size = layers.find("sliding_window");
  int64_t window = size == nullptr ? 0 : layers.integer("sliding_window", {1, kMaxPosition});
  const auto types = layers.texts("layer_types");
  if (types.has_value() && std::ssize(*types) != config_.num_layers) {
    layers.error("layer_types", types->size(), " layers, num_hidden_layers is ",
                 config_.num_layers);
  }
  for (size_t i = 0; types.has_value() && i < std::min(types->size(), is_sliding.size()); ++i) {
    is_sliding[i] = (*types)[i] == "sliding_attention";
    if (!is_sliding[i] && (*types)[i] != "full_attention") {
      layers.error("layer_types", "\"", (*types)[i], "\" is neither full_attention nor ",
                   "sliding_attention");
    }
  }
  if (!types.has_value() && window > 0 && layers.find("use_sliding_window") != nullptr &&
      uses_window) {
    layers.error("layer_types", "is missing; use_sliding_window does not say which layers slide");
  }
  if (of_draft("use_swa").flag("use_swa", false)) {
    is_sliding.assign(is_sliding.size(), true);
    window = of_draft("swa_window_size").integer("swa_window_size", {1, kMaxPosition});
  } else {
    of_draft("swa_window_size").ignore("swa_window_size");
  }
  const bool any = std::find(is_sliding.begin(), is_sliding.end(), true) != is_sliding.end();
  if (any && window == 0) layers.error("sliding_window", "is missing; layers slide");
  if (any && window > 0 && window < config_.block_rows) {
    layers.error("sliding_window", window, " is shorter than the block of ", config_.block_rows,
                 " rows");
  }
  for (bool slides : is_sliding) config_.masks.push_back({false, slides ? window : 0});
}

// is_causal, then the draft's causal, then the kind of layer.
bool BlockDraftConfigParser::is_causal(bool is_sliding) {
  if (is_speculators_) return is_sliding && !root_.flag("sliding_window_non_causal", false);
  if (root_.find("is_causal") != nullptr) return root_.flag("is_causal", false);
  if (draft_.has_value() && draft_->find("causal") != nullptr) return draft_->flag("causal", false);
  return is_sliding;
}

void BlockDraftConfigParser::read_masks() {
  std::vector<bool> is_sliding(config_.num_layers, false);
  read_window(is_sliding);
  root_.ignore("is_causal");
  if (draft_.has_value()) draft_->ignore("causal");
  for (BlockLayerMask& mask : config_.masks) mask.is_causal = is_causal(mask.window > 0);
}

void BlockDraftConfigParser::read_dflash2() {
  const auto read = [&](const char* key, int64_t max) {
    return static_cast<int>(of_draft(key).integer(key, {1, max}));
  };
  config_.conv_taps = read("conv_kernel_size", kMaxBlockRows);
  config_.conv_group_channels = read("conv_group_size", kMaxDim);
  config_.selector_rank = read("selector_rank", kMaxDim);
  config_.selector_top_k = read("selector_top_k", kMaxCandidates);
  if (config_.hidden_dim % config_.conv_group_channels != 0) {
    root_.error("conv_group_size", config_.conv_group_channels, " does not divide hidden_size ",
                config_.hidden_dim);
  }
  if (config_.selector_top_k > config_.vocab_size) {
    root_.error("selector_top_k", config_.selector_top_k, " is above vocab_size ",
                config_.vocab_size);
  }
  for (const char* key : {"output_multiplier", "logit_scale"}) {
    config_.logit_multiplier *= of_draft(key).real(key, {0, 1e6}, 1.0);
  }
  for (const char* key : {"final_logit_softcapping"}) {
    if (of_draft(key).find(key) != nullptr) {
      config_.logit_softcap = of_draft(key).real(key, {0, 1e6});
    }
  }
}

void BlockDraftConfigParser::read_dspark() {
  config_.markov_rank = static_cast<int>(root_.integer("markov_rank", {0, kMaxDim}, 0));
  const std::string kind = root_.text("markov_head_type").value_or("vanilla");
  if (config_.markov_rank > 0) {
    config_.markov = kind == "gated" ? MarkovKind::kGated
                     : kind == "rnn" ? MarkovKind::kRnn
                                     : MarkovKind::kVanilla;
    if (kind != "vanilla" && kind != "gated" && kind != "rnn") {
      root_.error("markov_head_type", "\"", kind, "\" is none of vanilla, gated and rnn");
    }
  }
  config_.has_confidence = root_.flag("enable_confidence_head", false);
  config_.confidence_sees_markov =
      root_.flag("confidence_head_with_markov", false) && config_.markov_rank > 0;
}

void BlockDraftConfigParser::check_fixed_values() {
  ConfigReader& layers = of_layers();
  layers.expect_flag("attention_bias", false);
  layers.expect_flag("mlp_bias", false);
  layers.expect_text("hidden_act", "silu");
  layers.expect_number("partial_rotary_factor", 1);
  for (const char* key : {"is_neox_style", "rope_is_neox_style"}) {
    of_draft(key).expect_flag(key, true);
  }
  for (const char* key : {"attention_sink_bias", "add_swa_attention_sink_bias"}) {
    of_draft(key).expect_flag(key, false);
  }
  for (const char* key : {"attention_value_scale", "input_embedding_scale"}) {
    of_draft(key).expect_number(key, 1);
  }
  if (config_.family == BlockDraftFamily::kDflash2) return;
  // They do not move the largest logit of a row. Where a bias is added to it, they would.
  for (const char* key : {"output_multiplier", "logit_scale", "final_logit_softcapping"}) {
    if (config_.family == BlockDraftFamily::kDflash) {
      of_draft(key).real(key, {0, 1e6}, 1.0);
    } else {
      of_draft(key).expect_number(key, 1);
    }
  }
}

}  // namespace

const char* block_draft_family_name(BlockDraftFamily family) {
  switch (family) {
    case BlockDraftFamily::kDflash:
      return "dflash";
    case BlockDraftFamily::kDflash2:
      return "dflash2";
    case BlockDraftFamily::kDspark:
      return "dspark";
  }
  return "?";
}

int64_t BlockDraftConfig::context_window() const {
  int64_t longest = 0;
  for (const BlockLayerMask& mask : masks) {
    if (mask.window == 0) return 0;
    longest = std::max(longest, mask.window);
  }
  return longest;
}

absl::StatusOr<BlockDraftConfig> parse_block_draft_config(std::string_view json) {
  absl::StatusOr<JsonValue> root = parse_json(json);
  if (!root.ok()) return absl::InvalidArgumentError(absl::StrCat(kFile, root.status().message()));
  if (root->object() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(kFile, "is ", json_kind_name(*root), ", not an object"));
  }
  return BlockDraftConfigParser(*root).parse();
}

absl::Status check_target(const BlockDraftConfig& draft, const TargetConfig& target) {
  const auto differs = [](const char* what, int64_t of_draft, int64_t of_target) {
    return absl::InvalidArgumentError(absl::StrCat("the draft's ", what, " is ", of_draft,
                                                   ", the target's is ", of_target,
                                                   "; it was made for another target"));
  };
  if (draft.vocab_size != target.vocab_size) {
    return differs("vocab_size", draft.vocab_size, target.vocab_size);
  }
  if (draft.target_hidden_dim != target.hidden_dim) {
    return differs("target hidden size", draft.target_hidden_dim, target.hidden_dim);
  }
  if (draft.hidden_dim != target.hidden_dim) {
    return differs("hidden_size (it uses the target's embedding and head)", draft.hidden_dim,
                   target.hidden_dim);
  }
  if (draft.num_target_layers > 0 && draft.num_target_layers != target.num_layers) {
    return differs("num_target_layers", draft.num_target_layers, target.num_layers);
  }
  for (int layer : draft.target_layers) {
    if (layer < target.num_layers - 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the draft taps layer ", layer, " of a target of ", target.num_layers,
        " layers; the last layer cannot be tapped (before or after the final norm: formats "
        "disagree), nor any beyond it"));
  }
  return absl::OkStatus();
}

}  // namespace dhs
