#include "model/block_draft_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint_files.h"
#include "model/block_draft_tensors.h"

namespace dhs {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

BlockDraftConfig tiny_config(BlockDraftFamily family) {
  BlockDraftConfig config;
  config.family = family;
  config.vocab_size = 6;
  config.hidden_dim = 8;
  config.target_hidden_dim = 8;
  config.intermediate_dim = 5;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 4;
  config.target_layers = {0, 2, 3};
  config.masks.resize(2);
  config.block_rows = 4;
  if (family == BlockDraftFamily::kDflash2) {
    config.conv_taps = 2;
    config.conv_group_channels = 4;
    config.selector_rank = 3;
    config.selector_top_k = 2;
  }
  if (family == BlockDraftFamily::kDspark) {
    config.markov = MarkovKind::kVanilla;
    config.markov_rank = 3;
    config.has_confidence = true;
    config.confidence_sees_markov = true;
  }
  return config;
}

// Element i of the t-th tensor is t + i / 1024: exact in f32, different everywhere.
BuiltTensor numbered(const std::string& name, const std::vector<int64_t>& shape, size_t t) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(t) + static_cast<float>(i) / 1024;
  }
  return {name, "F32", shape, bytes_of(values)};
}

class BlockDraftTensors : public testing::Test {
 protected:
  BlockDraftTensors() { use(tiny_config(BlockDraftFamily::kDflash)); }

  void use(const BlockDraftConfig& config) {
    config_ = config;
    tensors_.clear();
    for (const DraftTensor& tensor : block_draft_tensors(config)) add(tensor.name, tensor.shape);
  }
  void add(const std::string& name, const std::vector<int64_t>& shape) {
    tensors_.push_back(numbered(name, shape, tensors_.size()));
  }
  BuiltTensor& tensor(const std::string& name) {
    for (BuiltTensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    return tensors_.front();
  }
  void remove(const std::string& name) {
    const size_t removed =
        std::erase_if(tensors_, [&](const BuiltTensor& tensor) { return tensor.name == name; });
    EXPECT_EQ(removed, 1u) << name;
  }

  absl::StatusOr<BlockDraftWeights> load() {
    target_directory_.write("config.json", "{}");
    target_directory_.write("model.safetensors", build_safetensors(target_tensors_));
    directory_.write("config.json", "{}");
    directory_.write("model.safetensors", build_safetensors(tensors_));
    auto target = Checkpoint::open(target_directory_.path());
    if (!target.ok()) return target.status();
    target_.emplace(*std::move(target));
    auto opened = Checkpoint::open(directory_.path());
    if (!opened.ok()) return opened.status();
    checkpoint_.emplace(*std::move(opened));
    return load_block_draft_weights(*checkpoint_, config_, *target_);
  }
  std::string error() {
    const auto weights = load();
    return weights.ok() ? "" : std::string(weights.status().message());
  }

  void expect_matrix(const WeightMatrix& matrix, const std::string& name) {
    SCOPED_TRACE(name);
    EXPECT_THAT(tensor(name).shape, ElementsAre(matrix.rows, matrix.columns));
    std::vector<float> values(matrix.rows * matrix.columns);
    matrix.to_f32(values.data());
    EXPECT_TRUE(bytes_of(values) == tensor(name).bytes);
  }
  void expect_values(const std::vector<float>& values, const std::string& name) {
    EXPECT_TRUE(bytes_of(values) == tensor(name).bytes) << name;
  }

  BlockDraftConfig config_;
  std::vector<BuiltTensor> tensors_;
  std::vector<BuiltTensor> target_tensors_ = {numbered("model.embed_tokens.weight", {6, 8}, 100),
                                              numbered("lm_head.weight", {6, 8}, 200)};
  TempDirectory directory_, target_directory_;
  std::optional<Checkpoint> checkpoint_, target_;
};

// ---- Roles ------------------------------------------------------------------------------------

TEST_F(BlockDraftTensors, every_tensor_of_the_backbone_has_its_place) {
  const auto weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(tensors_.size(), 3u + 2 * 11);
  expect_matrix(weights->fc, "fc.weight");
  EXPECT_EQ(weights->fc.columns, 3 * 8);
  expect_values(weights->hidden_norm, "hidden_norm.weight");
  expect_values(weights->norm, "norm.weight");
  ASSERT_EQ(weights->layers.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const BlockLayerWeights& layer = weights->layers[i];
    const std::string prefix = absl::StrCat("layers.", i, ".");
    expect_values(layer.input_norm, prefix + "input_layernorm.weight");
    expect_values(layer.post_attention_norm, prefix + "post_attention_layernorm.weight");
    expect_matrix(layer.q, prefix + "self_attn.q_proj.weight");
    expect_matrix(layer.k, prefix + "self_attn.k_proj.weight");
    expect_matrix(layer.v, prefix + "self_attn.v_proj.weight");
    expect_matrix(layer.o, prefix + "self_attn.o_proj.weight");
    expect_values(layer.q_norm, prefix + "self_attn.q_norm.weight");
    expect_values(layer.k_norm, prefix + "self_attn.k_norm.weight");
    expect_matrix(layer.gate, prefix + "mlp.gate_proj.weight");
    expect_matrix(layer.up, prefix + "mlp.up_proj.weight");
    expect_matrix(layer.down, prefix + "mlp.down_proj.weight");
    EXPECT_FALSE(layer.attention_conv.has_value());
  }
  EXPECT_FALSE(weights->selector.has_value());
  EXPECT_FALSE(weights->markov.has_value());
  EXPECT_FALSE(weights->confidence.has_value());
}

TEST_F(BlockDraftTensors, of_dflash2_have_convolutions_and_a_selector) {
  use(tiny_config(BlockDraftFamily::kDflash2));
  const auto weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  ASSERT_TRUE(weights->layers[1].mlp_conv.has_value());
  const std::string prefix = "layers.1.";
  expect_values(weights->layers[1].attention_conv->base_kernel,
                prefix + "attention_conv.base_kernel");
  expect_matrix(weights->layers[1].attention_conv->projection,
                prefix + "attention_conv.kernel_projection.weight");
  expect_values(weights->layers[1].mlp_conv->base_kernel, prefix + "mlp_conv.base_kernel");
  EXPECT_EQ(weights->layers[1].mlp_conv->projection.rows, 2 * 2 * 2);
  ASSERT_TRUE(weights->selector.has_value());
  expect_matrix(weights->selector->hidden_projection,
                "candidate_selector.hidden_projection.weight");
  expect_matrix(weights->selector->predecessors, "candidate_selector.predecessor_codebook");
  expect_matrix(weights->selector->successors, "candidate_selector.successor_codebook");
}

TEST_F(BlockDraftTensors, of_dspark_have_a_sequential_head_of_each_kind) {
  BlockDraftConfig config = tiny_config(BlockDraftFamily::kDspark);
  const auto load_kind = [&](MarkovKind kind) {
    config.markov = kind;
    use(config);
    auto weights = load();
    EXPECT_TRUE(weights.ok()) << weights.status();
    return weights.ok() ? *std::move(weights) : BlockDraftWeights{};
  };
  const BlockDraftWeights vanilla = load_kind(MarkovKind::kVanilla);
  ASSERT_TRUE(vanilla.markov.has_value());
  expect_matrix(vanilla.markov->w1, "markov_head.markov_w1.weight");
  expect_matrix(vanilla.markov->w2, "markov_head.markov_w2.weight");
  EXPECT_FALSE(vanilla.markov->gate.has_value());
  ASSERT_TRUE(vanilla.confidence.has_value());
  expect_values(vanilla.confidence->weight, "confidence_head.proj.weight");
  EXPECT_EQ(vanilla.confidence->weight.size(), 8u + 3);
  const BlockDraftWeights gated = load_kind(MarkovKind::kGated);
  ASSERT_TRUE(gated.markov.has_value() && gated.markov->gate.has_value());
  expect_matrix(*gated.markov->gate, "markov_head.gate_proj.weight");
  expect_values(gated.markov->gate_bias, "markov_head.gate_proj.bias");
  const BlockDraftWeights rnn = load_kind(MarkovKind::kRnn);
  ASSERT_TRUE(rnn.markov.has_value() && rnn.markov->gate.has_value());
  expect_matrix(*rnn.markov->gate, "markov_head.joint_proj.weight");
  expect_values(rnn.markov->gate_bias, "markov_head.joint_proj.bias");
}

TEST_F(BlockDraftTensors, a_confidence_head_may_have_no_bias_and_not_see_the_markov_input) {
  BlockDraftConfig config = tiny_config(BlockDraftFamily::kDspark);
  config.confidence_sees_markov = false;
  use(config);
  tensor("confidence_head.proj.bias").bytes = bytes_of(std::vector<float>{-0.25f});
  auto weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->confidence->weight.size(), 8u);
  EXPECT_EQ(weights->confidence->bias, -0.25f);
  remove("confidence_head.proj.bias");
  weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->confidence->bias, 0);
}

// ---- Names ------------------------------------------------------------------------------------

TEST_F(BlockDraftTensors, may_stand_behind_a_prefix) {
  for (BuiltTensor& tensor : tensors_) tensor.name = "model." + tensor.name;
  const auto weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  expect_matrix(weights->layers[1].k, "model.layers.1.self_attn.k_proj.weight");
}

TEST_F(BlockDraftTensors, may_have_the_names_of_other_writers) {
  BlockDraftConfig config = tiny_config(BlockDraftFamily::kDflash);
  config.num_layers = 1;
  for (const std::string prefix : {"", "model."}) {
    use(config);
    for (BuiltTensor& tensor : tensors_) {
      if (tensor.name == "fc.weight") tensor.name = "encoder.fc.weight";
      if (tensor.name == "hidden_norm.weight") tensor.name = "encoder.output_norm_enc.weight";
      if (tensor.name.substr(0, 9) == "layers.0.")
        tensor.name = "midlayer." + tensor.name.substr(9);
      tensor.name = prefix + tensor.name;
    }
    const auto weights = load();
    ASSERT_TRUE(weights.ok()) << weights.status();
    expect_matrix(weights->fc, prefix + "encoder.fc.weight");
    expect_values(weights->hidden_norm, prefix + "encoder.output_norm_enc.weight");
    expect_matrix(weights->layers[0].down, prefix + "midlayer.mlp.down_proj.weight");
  }
}

TEST_F(BlockDraftTensors, may_have_a_markov_head_without_prefix) {
  use(tiny_config(BlockDraftFamily::kDspark));
  tensor("markov_head.markov_w1.weight").name = "markov_w1.weight";
  tensor("markov_head.markov_w2.weight").name = "markov_w2.weight";
  const auto weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  expect_matrix(weights->markov->w2, "markov_w2.weight");
}

TEST_F(BlockDraftTensors, may_not_be_there_under_two_names) {
  add("encoder.fc.weight", {8, 24});
  EXPECT_THAT(error(), HasSubstr("encoder.fc.weight: unexpected tensor"));
}

// ---- Copies of the target's -------------------------------------------------------------------

TEST_F(BlockDraftTensors, may_be_copies_of_the_targets) {
  for (const std::string prefix : {"", "model."}) {
    use(tiny_config(BlockDraftFamily::kDflash));
    tensors_.push_back(numbered(prefix + "embed_tokens.weight", {6, 8}, 100));
    tensors_.push_back(numbered(prefix + "lm_head.weight", {6, 8}, 200));
    EXPECT_EQ(error(), "");
  }
}

TEST_F(BlockDraftTensors, that_are_no_copies_are_refused) {
  tensors_.push_back(numbered("embed_tokens.weight", {6, 8}, 100));
  tensors_.push_back(numbered("lm_head.weight", {6, 8}, 200));
  tensor("embed_tokens.weight").bytes[17] ^= 1;
  EXPECT_THAT(error(), AllOf(HasSubstr("1 tensor is"),
                             HasSubstr("embed_tokens.weight: differs from the target's")));
  tensor("lm_head.weight").dtype = "BF16";
  tensor("lm_head.weight").bytes.resize(6 * 8 * 2);
  EXPECT_THAT(error(), AllOf(HasSubstr("2 tensors are"),
                             HasSubstr("lm_head.weight: differs from the target's")));
}

TEST_F(BlockDraftTensors, a_head_is_compared_with_the_embedding_of_a_tied_target) {
  target_tensors_.pop_back();
  tensors_.push_back(numbered("lm_head.weight", {6, 8}, 100));
  EXPECT_EQ(error(), "");
  tensor("lm_head.weight").bytes[0] ^= 1;
  EXPECT_THAT(error(), HasSubstr("lm_head.weight: differs from the target's"));
}

// ---- Refused ----------------------------------------------------------------------------------

// A checkpoint of another family runs as nothing, least of all as plain DFlash.
TEST_F(BlockDraftTensors, of_plain_dflash_do_not_make_a_dflash2) {
  config_ = tiny_config(BlockDraftFamily::kDflash2);
  EXPECT_THAT(error(), AllOf(HasSubstr("layers.0.attention_conv.base_kernel: is missing"),
                             HasSubstr("layers.1.mlp_conv.kernel_projection.weight: is missing"),
                             HasSubstr("candidate_selector.predecessor_codebook: is missing")));
}

TEST_F(BlockDraftTensors, of_dflash2_do_not_make_a_plain_dflash) {
  use(tiny_config(BlockDraftFamily::kDflash2));
  config_ = tiny_config(BlockDraftFamily::kDflash);
  EXPECT_THAT(error(),
              AllOf(HasSubstr("layers.0.attention_conv.base_kernel: unexpected tensor"),
                    HasSubstr("candidate_selector.successor_codebook: unexpected tensor")));
}

TEST_F(BlockDraftTensors, that_config_does_not_describe_are_refused) {
  const std::vector<std::pair<std::string, std::vector<int64_t>>> unexpected = {
      {"mask_embedding", {8}},                        // an input of its own for masked rows
      {"d2t", {6}},                                   // a reduced vocabulary
      {"t2d", {6}},                                   //
      {"aux_hidden_norms.0.weight", {8}},             // norms of the taps
      {"layers.0.self_attn.g_proj.weight", {16, 8}},  // a gate of the attention
      {"layers.0.self_attn.sinks", {4}},              //
      {"layers.0.self_attn.q_proj.bias", {16}},       //
      {"markov_head.markov_w1.weight", {6, 3}},       // DSpark under another name
      {"layers.2.self_attn.q_proj.weight", {16, 8}}};
  for (const auto& [name, shape] : unexpected) add(name, shape);
  const std::string message = error();
  EXPECT_THAT(message, HasSubstr("9 tensors are not as config.json says"));
  for (const auto& [name, shape] : unexpected) {
    EXPECT_THAT(message, HasSubstr(name + ": unexpected tensor"));
  }
}

TEST_F(BlockDraftTensors, beside_a_file_with_a_mask_embedding_are_refused) {
  directory_.write("mask_embedding.pt", "PK");
  EXPECT_THAT(error(), HasSubstr("mask_embedding.pt: a file with an embedding of its own"));
}

TEST_F(BlockDraftTensors, of_a_recurrent_head_do_not_make_a_vanilla_one) {
  BlockDraftConfig config = tiny_config(BlockDraftFamily::kDspark);
  config.markov = MarkovKind::kRnn;
  use(config);
  config_.markov = MarkovKind::kVanilla;
  EXPECT_THAT(error(), AllOf(HasSubstr("markov_head.joint_proj.weight: unexpected tensor"),
                             HasSubstr("markov_head.joint_proj.bias: unexpected tensor")));
}

TEST_F(BlockDraftTensors, an_implicit_tap_shows_in_the_width_of_fc) {
  config_.target_layers = {0, 2};
  EXPECT_THAT(error(), HasSubstr("fc.weight: has shape [8, 24], config.json asks for [8, 16]"));
}

TEST_F(BlockDraftTensors, each_is_checked_for_being_there_and_for_its_shape) {
  use(tiny_config(BlockDraftFamily::kDflash2));
  const std::vector<BuiltTensor> whole = tensors_;
  for (const BuiltTensor& tensor_of_draft : whole) {
    SCOPED_TRACE(tensor_of_draft.name);
    tensors_ = whole;
    remove(tensor_of_draft.name);
    EXPECT_THAT(error(), HasSubstr(tensor_of_draft.name + ": is missing"));
    tensors_ = whole;
    std::vector<int64_t>& shape = tensor(tensor_of_draft.name).shape;
    shape.insert(shape.begin(), 1);
    EXPECT_THAT(error(), HasSubstr(tensor_of_draft.name + ": has shape [1, "));
  }
}

TEST_F(BlockDraftTensors, may_not_be_quantised) {
  use(tiny_config(BlockDraftFamily::kDflash2));
  const auto quantise = [&](const std::string& name) {
    tensor(name).dtype = "F8_E4M3";
    tensor(name).bytes.resize(tensor(name).bytes.size() / 4);
  };
  quantise("candidate_selector.predecessor_codebook");
  quantise("layers.0.mlp.up_proj.weight");
  quantise("layers.0.mlp_conv.base_kernel");
  quantise("norm.weight");
  tensor("candidate_selector.successor_codebook").dtype = "I8";
  tensor("candidate_selector.successor_codebook").bytes.resize(6 * 3);
  EXPECT_THAT(error(),
              AllOf(HasSubstr("predecessor_codebook: has dtype F8_E4M3"),
                    HasSubstr("layers.0.mlp.up_proj.weight: has dtype F8_E4M3"),
                    HasSubstr("layers.0.mlp_conv.base_kernel: has dtype F8_E4M3"),
                    HasSubstr("norm.weight: has dtype F8_E4M3"),
                    HasSubstr("successor_codebook: has dtype I8, supported are F32, BF16")));
}

TEST_F(BlockDraftTensors, of_a_damaged_file_are_refused) {
  use(tiny_config(BlockDraftFamily::kDspark));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  tensor("confidence_head.proj.weight").bytes.replace(8, 4, bytes_of(std::vector<float>{nan}));
  EXPECT_THAT(error(), HasSubstr("confidence_head.proj.weight: element 2 is nan; the checkpoint"));
}

// ---- Whole checkpoints ------------------------------------------------------------------------

TEST(GoldenBlockDrafts, load_with_every_tensor_in_place) {
  const std::string golden = DHS_SOURCE_DIR "/tests/golden/";
  const auto target = Checkpoint::open(golden + "model/glm_share");
  ASSERT_TRUE(target.ok()) << target.status();
  for (const char* name :
       {"dflash_full", "dflash_swa", "dflash_causal", "dflash2", "dflash2_kw3", "dspark_vanilla",
        "dspark_gated", "dspark_rnn", "dspark_speculators", "dspark_fill_in"}) {
    SCOPED_TRACE(name);
    const auto checkpoint = Checkpoint::open(absl::StrCat(golden, "draft/", name));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto config = parse_block_draft_config(checkpoint->config_json());
    ASSERT_TRUE(config.ok()) << config.status();
    const auto weights = load_block_draft_weights(*checkpoint, *config, *target);
    EXPECT_TRUE(weights.ok()) << weights.status();
  }
}

}  // namespace
}  // namespace dhs
