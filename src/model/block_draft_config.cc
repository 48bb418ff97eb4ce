#include "model/block_draft_config.h"

#include <algorithm>
#include <optional>
#include <string>

#include "kernels/draft_attention/draft_attention.h"
#include "model/config_reader.h"
#include "model/json_value.h"

namespace dhs {
namespace {

constexpr int64_t kMaxDim = 1 << 17;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxBlockRows = 64;
constexpr int64_t kMaxCandidates = 64;
constexpr int64_t kMaxSelectorRank = 4096;  // of kernels/candidate_walk
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
    "initializer_range", "loss_type", "loss_decay_gamma", "ce_loss_alpha", "l1_loss_alpha",
    "confidence_head_alpha", "attention_dropout",
    // Embedding and head are the target's, tied or not; which layers could have a window.
    "tie_word_embeddings", "max_window_layers",
    // How other programs run the model, and the tokenizer's business.
    "use_cache", "bos_token_id", "eos_token_id", "pad_token_id"};

constexpr const char* kAnchorKeys[] = {"num_anchors", "max_anchors"};  // training only, too

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
    refuse_keys_of_other_formats();
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
  std::vector<bool> read_layer_types();
  void read_windows(const std::vector<bool>& is_sliding_type);
  std::optional<bool> causality_of_all_layers();
  void refuse_keys_of_other_formats();
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
  // 0: none.
  double softcap() {
    constexpr const char* kKey = "final_logit_softcapping";
    ConfigReader& reader = of_draft(kKey);
    return reader.find(kKey) == nullptr ? 0 : reader.real(kKey, {0, 1e6});
  }
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
  } else if (root_.find("dspark_block_size") != nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        kFile, "dspark_block_size: architecture \"", name,
        "\" is a target with DSpark stages inside ",
        "(mtp.0, mtp.1, ...); only DSpark drafts with a checkpoint of their own are supported"));
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
    layers_->expect_text("model_type", "qwen3");
    layers_->ignore("architectures");
  }
}

void BlockDraftConfigParser::read_sizes() {
  ConfigReader& layers = of_layers();
  config_.vocab_size = size(layers, "vocab_size", kMaxVocab);
  config_.hidden_dim = size(layers, "hidden_size");
  config_.intermediate_dim = size(layers, "intermediate_size");
  config_.num_layers = size(layers, "num_hidden_layers", kMaxLayers);
  const size_t num_errors = errors_.size();
  config_.num_heads = size(layers, "num_attention_heads");
  // Libraries differ in what these two are where a file leaves them out.
  config_.num_kv_heads = size(layers, "num_key_value_heads");
  config_.head_dim = size(layers, "head_dim", kMaxDraftHeadDim);
  config_.rms_norm_eps = layers.real("rms_norm_eps", {0, 1});
  layers.integer("max_position_embeddings", {1, kMaxPosition}, kMaxPosition);
  const bool has_heads = errors_.size() == num_errors;
  if (has_heads && config_.num_heads % config_.num_kv_heads != 0) {
    layers.error("num_key_value_heads", config_.num_kv_heads, " does not divide the ",
                 config_.num_heads, " attention heads");
  }
  if (has_heads && config_.head_dim % 8 != 0) {
    layers.error("head_dim", config_.head_dim, " is no multiple of 8; others are not implemented");
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
  if (const JsonValue* scaling = layers.find("rope_scaling")) {
    layers.error("rope_scaling", json_excerpt(*scaling),
                 " is not supported, only null is; drafts with scaled rope are not implemented");
  }
  const JsonValue* parameters = layers.find("rope_parameters");
  if (parameters == nullptr) {
    config_.rope_theta = layers.real("rope_theta", kRange);
    return;
  }
  if (parameters->object() == nullptr) {
    return layers.error("rope_parameters", json_excerpt(*parameters), " is not an object");
  }
  const char* outer = layers_.has_value() ? "transformer_layer_config." : "";
  ConfigReader rope(absl::StrCat(kFile, outer, "rope_parameters."), *parameters, &errors_);
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
  if (is_speculators_ && root_.find("sample_from_anchor") == nullptr) {
    root_.error("sample_from_anchor",
                "is missing; drafts of speculators from before this key differ in which rows "
                "propose; take a newer version of the draft");
  }
  config_.proposes_from_anchor = root_.flag("sample_from_anchor", true);
  if (!config_.proposes_from_anchor && config_.block_rows < 2) {
    root_.error("block_size", config_.block_rows, " leaves no row that proposes");
  }
}

void BlockDraftConfigParser::read_target_layers() {
  // Speculators number a hidden state by the layer that it is the input of.
  const char* key = is_speculators_ ? "aux_hidden_state_layer_ids" : "target_layer_ids";
  ConfigReader& reader = is_speculators_ ? root_ : of_draft(key);
  if (reader.find(key) == nullptr) {
    return reader.error(key,
                        "is missing; it says which hidden states of the target the draft was "
                        "trained on, and no rule can replace it");
  }
  const auto ids = reader.integers(key);
  if (!ids.has_value()) return;
  if (ids->empty()) reader.error(key, "[] is empty; a draft needs at least one layer");
  const int64_t first = is_speculators_ ? 1 : 0;
  const int64_t last = first + kMaxLayers - 1;
  for (int64_t id : *ids) {
    if (id < first || id > last) {
      reader.error(key, id, " is outside [", first, ", ", last,
                   "]; outputs of layers can be tapped, not the embedding");
      continue;
    }
    config_.target_layers.push_back(static_cast<int>(id - first));
  }
}

// Which layers are of the type sliding_attention.
std::vector<bool> BlockDraftConfigParser::read_layer_types() {
  ConfigReader& layers = of_layers();
  std::vector<bool> is_sliding(config_.num_layers, false);
  const bool has_flag = layers.find("use_sliding_window") != nullptr;
  const bool flag = layers.flag("use_sliding_window", false);
  const auto types = layers.texts("layer_types");
  if (!types.has_value()) {
    if (flag && layers.find("layer_types") == nullptr) {
      layers.error("layer_types", "is missing; use_sliding_window does not say which layers slide");
    }
    return is_sliding;
  }
  if (std::ssize(*types) != config_.num_layers) {
    layers.error("layer_types", types->size(), " layers, num_hidden_layers is ",
                 config_.num_layers);
  }
  for (size_t i = 0; i < std::min(types->size(), is_sliding.size()); ++i) {
    is_sliding[i] = (*types)[i] == "sliding_attention";
    if (!is_sliding[i] && (*types)[i] != "full_attention") {
      layers.error("layer_types", "\"", (*types)[i], "\" is neither full_attention nor ",
                   "sliding_attention");
    }
  }
  const bool any = std::find(is_sliding.begin(), is_sliding.end(), true) != is_sliding.end();
  if (any && has_flag && !flag) {
    layers.error("use_sliding_window", "false contradicts the sliding_attention of layer_types");
  }
  return is_sliding;
}

// Windows of the layers whose type slides, or of all by the draft's own keys.
void BlockDraftConfigParser::read_windows(const std::vector<bool>& is_sliding_type) {
  std::vector<bool> slides = is_sliding_type;
  ConfigReader* reader = &of_layers();
  std::string key = "sliding_window";
  int64_t window = reader->find(key) == nullptr ? 0 : reader->integer(key, {1, kMaxPosition});
  of_draft("swa_window_size").ignore("swa_window_size");
  if (of_draft("use_swa").flag("use_swa", false)) {
    slides.assign(slides.size(), true);
    key = "swa_window_size";
    reader = &of_draft(key);
    window = reader->integer(key, {1, kMaxPosition});
  }
  const bool any = std::find(slides.begin(), slides.end(), true) != slides.end();
  if (any && window == 0) reader->error(key, "is missing; layers slide");
  if (any && window > 0 && window < config_.block_rows) {
    reader->error(key, window, " is shorter than the block of ", config_.block_rows, " rows");
  }
  for (bool layer_slides : slides) config_.masks.push_back({false, layer_slides ? window : 0});
}

// is_causal, then the draft's causal; where neither is said the type of a layer decides.
std::optional<bool> BlockDraftConfigParser::causality_of_all_layers() {
  if (is_speculators_) return std::nullopt;
  if (draft_.has_value()) draft_->ignore("causal");
  if (root_.find("is_causal") != nullptr) return root_.flag("is_causal", false);
  if (draft_.has_value() && draft_->find("causal") != nullptr) return draft_->flag("causal", false);
  return std::nullopt;
}

void BlockDraftConfigParser::read_masks() {
  const std::vector<bool> is_sliding_type = read_layer_types();
  read_windows(is_sliding_type);
  const std::optional<bool> of_all = causality_of_all_layers();
  const bool sliding_is_causal =
      !is_speculators_ || !root_.flag("sliding_window_non_causal", false);
  for (size_t i = 0; i < config_.masks.size(); ++i) {
    config_.masks[i].is_causal = of_all.value_or(is_sliding_type[i] && sliding_is_causal);
  }
}

void BlockDraftConfigParser::read_dflash2() {
  const auto read = [&](const char* key, int64_t max) {
    return static_cast<int>(of_draft(key).integer(key, {1, max}));
  };
  config_.conv_taps = read("conv_kernel_size", kMaxBlockRows);
  config_.conv_group_channels = read("conv_group_size", kMaxDim);
  config_.selector_rank = read("selector_rank", kMaxSelectorRank);
  config_.selector_top_k = read("selector_top_k", kMaxCandidates);
  if (config_.hidden_dim % config_.conv_group_channels != 0) {
    root_.error("conv_group_size", config_.conv_group_channels, " does not divide hidden_size ",
                config_.hidden_dim);
  }
  if (config_.selector_top_k > config_.vocab_size) {
    root_.error("selector_top_k", config_.selector_top_k, " is above vocab_size ",
                config_.vocab_size);
  }
  const double multiplier = of_draft("output_multiplier").real("output_multiplier", {0, 1e6}, 1.0);
  const double scale = of_draft("logit_scale").real("logit_scale", {0, 1e6}, multiplier);
  if (of_draft("output_multiplier").find("output_multiplier") != nullptr && scale != multiplier) {
    root_.error("logit_scale", scale, " and output_multiplier ", multiplier, " name one number");
  }
  config_.logit_multiplier = scale;
  config_.logit_softcap = softcap();
}

void BlockDraftConfigParser::read_dspark() {
  for (const char* key : kAnchorKeys) root_.ignore(key);
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
  const bool is_chosen = config_.family == BlockDraftFamily::kDflash;
  for (const char* key : {"output_multiplier", "logit_scale"}) {
    if (is_chosen) {
      of_draft(key).real(key, {0, 1e6}, 1.0);
    } else {
      of_draft(key).expect_number(key, 1);
    }
  }
  if (softcap() != 0 && !is_chosen) {
    of_draft("final_logit_softcapping")
        .error("final_logit_softcapping", "is not supported, only null is, in a DSpark draft");
  }
}

// Keys whose refusal deserves a better reason than that they are unknown.
void BlockDraftConfigParser::refuse_keys_of_other_formats() {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const JsonValue* value = root_.find(key);
    if (value == nullptr) continue;
    root_.error(key, json_excerpt(*value),
                " is not supported; take the draft in bf16 or f32, it is small");
  }
  for (const char* key : kAnchorKeys) {
    const JsonValue* value = root_.find(key);
    if (value == nullptr || config_.family == BlockDraftFamily::kDspark) continue;
    root_.error(key, json_excerpt(*value),
                ": whoever writes it has drafts that propose from the anchor's row on: name "
                "DSpark's architecture and markov_rank 0; if this one does not, leave the key out");
  }
  if (config_.family == BlockDraftFamily::kDflash) {
    of_draft("projector_type").expect_text("projector_type", "dflash");
  }
  if (config_.family == BlockDraftFamily::kDflash2) return;
  for (const char* key :
       {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"}) {
    ConfigReader& reader = of_draft(key);
    const JsonValue* value = reader.find(key);
    if (value == nullptr) continue;
    reader.error(key, json_excerpt(*value),
                 ": only drafts whose architectures is DFlash2DraftModel have it; correct "
                 "architectures, or take the draft as it was published");
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
  std::string errors;
  const auto add = [&](const auto&... parts) {
    absl::StrAppend(&errors, errors.empty() ? "" : "\n", parts...);
  };
  const auto expect_same = [&](const char* what, int64_t of_draft, int64_t of_target) {
    if (of_draft == of_target) return;
    add("the draft's ", what, " is ", of_draft, ", the target's is ", of_target,
        "; it was made for another target");
  };
  expect_same("vocab_size", draft.vocab_size, target.vocab_size);
  expect_same("target hidden size", draft.target_hidden_dim, target.hidden_dim);
  expect_same("hidden_size (it uses the target's embedding and head)", draft.hidden_dim,
              target.hidden_dim);
  if (draft.num_target_layers > 0) {
    expect_same("num_target_layers", draft.num_target_layers, target.num_layers);
  }
  for (int layer : draft.target_layers) {
    if (layer < target.num_layers - 1) continue;
    add("the draft taps layer ", layer, " of a target of ", target.num_layers,
        " layers; the last layer cannot be tapped (before or after the final norm: formats "
        "disagree), nor any beyond it");
  }
  return errors.empty() ? absl::OkStatus() : absl::InvalidArgumentError(errors);
}

}  // namespace dhs
