#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint_files.h"

namespace dhs {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Three layers: dense with an indexer; experts, sharing the selection; experts with an indexer.
TargetConfig tiny_config() {
  TargetConfig config;
  config.vocab_size = 6;
  config.hidden_dim = 8;
  config.num_layers = 3;
  config.num_heads = 2;
  config.q_lora_rank = 5;
  config.kv_lora_rank = 7;
  config.qk_nope_dim = 3;
  config.qk_rope_dim = 2;
  config.v_head_dim = 4;
  config.index_num_heads = 3;
  config.index_dim = 6;
  config.index_top_k = 4;
  config.index_groups = {{0, 2}, {2, 1}};
  config.first_k_dense = 1;
  config.dense_intermediate_dim = 9;
  config.moe_intermediate_dim = 4;
  config.num_experts = 2;
  config.experts_per_token = 1;
  config.num_shared_experts = 2;
  return config;
}

using Shape = std::vector<int64_t>;

class Weights : public testing::Test {
 protected:
  Weights() {
    add("model.embed_tokens.weight", {6, 8});
    add("model.norm.weight", {8});
    add("lm_head.weight", {6, 8});
    for (const char* layer : {"0", "1", "2"}) add_attention(absl::StrCat("model.layers.", layer));
    add_indexer("model.layers.0.self_attn.indexer.");
    add_indexer("model.layers.2.self_attn.indexer.");
    add_mlp("model.layers.0.mlp.", 9);
    for (const char* layer : {"1", "2"}) {
      const std::string mlp = absl::StrCat("model.layers.", layer, ".mlp.");
      add(mlp + "gate.weight", {2, 8});
      add(mlp + "gate.e_score_correction_bias", {2});
      add_mlp(mlp + "experts.0.", 4);
      add_mlp(mlp + "experts.1.", 4);
      add_mlp(mlp + "shared_experts.", 8);
    }
  }

  void add_attention(const std::string& layer) {
    add(layer + ".input_layernorm.weight", {8});
    add(layer + ".post_attention_layernorm.weight", {8});
    add(layer + ".self_attn.q_a_proj.weight", {5, 8});
    add(layer + ".self_attn.q_a_layernorm.weight", {5});
    add(layer + ".self_attn.q_b_proj.weight", {10, 5});
    add(layer + ".self_attn.kv_a_proj_with_mqa.weight", {9, 8});
    add(layer + ".self_attn.kv_a_layernorm.weight", {7});
    add(layer + ".self_attn.kv_b_proj.weight", {14, 7});
    add(layer + ".self_attn.o_proj.weight", {8, 8});
  }
  void add_indexer(const std::string& prefix) {
    add(prefix + "wq_b.weight", {18, 5});
    add(prefix + "wk.weight", {6, 8});
    add(prefix + "weights_proj.weight", {3, 8});
    add(prefix + "k_norm.weight", {6});
    add(prefix + "k_norm.bias", {6});
  }
  void add_mlp(const std::string& prefix, int64_t intermediate) {
    add(prefix + "gate_proj.weight", {intermediate, 8});
    add(prefix + "up_proj.weight", {intermediate, 8});
    add(prefix + "down_proj.weight", {8, intermediate});
  }
  // Element i of the t-th tensor is t + i / 1024: exact in f32, different everywhere.
  void add(const std::string& name, const Shape& shape) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    std::vector<float> values(count);
    for (int64_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(tensors_.size()) + static_cast<float>(i) / 1024;
    }
    tensors_.push_back({name, "F32", shape, bytes_of(values)});
  }
  BuiltTensor& tensor(const std::string& name) {
    for (BuiltTensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    return tensors_.front();
  }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const BuiltTensor& tensor) { return tensor.name == name; });
  }

  absl::StatusOr<TargetWeights> load() {
    directory_.write("config.json", "{}");
    directory_.write("model.safetensors", build_safetensors(tensors_));
    auto opened = Checkpoint::open(directory_.path());
    if (!opened.ok()) return opened.status();
    checkpoint_.emplace(*std::move(opened));
    return load_target_weights(*checkpoint_, config_);
  }
  std::string error() {
    const auto weights = load();
    return weights.ok() ? "" : std::string(weights.status().message());
  }

  TargetConfig config_ = tiny_config();
  std::vector<BuiltTensor> tensors_;
  TempDirectory directory_;
  std::optional<Checkpoint> checkpoint_;
};

std::vector<float> decoded(const WeightMatrix& matrix) {
  std::vector<float> values(matrix.rows * matrix.columns);
  matrix.to_f32(values.data());
  return values;
}

TEST_F(Weights, puts_every_tensor_in_its_place) {
  const auto weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  const auto is_tensor = [&](const WeightMatrix& matrix, const std::string& name) {
    EXPECT_EQ(matrix.name, name);
    EXPECT_THAT(tensor(name).shape, ElementsAre(matrix.rows, matrix.columns));
    EXPECT_TRUE(bytes_of(decoded(matrix)) == tensor(name).bytes) << name;
  };
  const auto is_vector = [&](const std::vector<float>& values, const std::string& name) {
    EXPECT_TRUE(bytes_of(values) == tensor(name).bytes) << name;
  };
  is_tensor(weights->embedding, "model.embed_tokens.weight");
  is_tensor(weights->lm_head, "lm_head.weight");
  is_vector(weights->final_norm, "model.norm.weight");
  ASSERT_EQ(weights->layers.size(), 3u);
  const LayerWeights& layer = weights->layers[2];
  const std::string attention = "model.layers.2.self_attn.";
  is_vector(layer.input_norm, "model.layers.2.input_layernorm.weight");
  is_vector(layer.post_attention_norm, "model.layers.2.post_attention_layernorm.weight");
  is_tensor(layer.q_a, attention + "q_a_proj.weight");
  is_vector(layer.q_a_norm, attention + "q_a_layernorm.weight");
  is_tensor(layer.q_b, attention + "q_b_proj.weight");
  is_tensor(layer.kv_a, attention + "kv_a_proj_with_mqa.weight");
  is_vector(layer.kv_a_norm, attention + "kv_a_layernorm.weight");
  is_tensor(layer.kv_b, attention + "kv_b_proj.weight");
  is_tensor(layer.o, attention + "o_proj.weight");
  ASSERT_TRUE(layer.indexer.has_value());
  is_tensor(layer.indexer->query, attention + "indexer.wq_b.weight");
  is_tensor(layer.indexer->key, attention + "indexer.wk.weight");
  is_tensor(layer.indexer->head_weights, attention + "indexer.weights_proj.weight");
  is_vector(layer.indexer->key_norm_weight, attention + "indexer.k_norm.weight");
  is_vector(layer.indexer->key_norm_bias, attention + "indexer.k_norm.bias");
  ASSERT_TRUE(layer.moe.has_value());
  is_tensor(layer.moe->router, "model.layers.2.mlp.gate.weight");
  is_vector(layer.moe->choice_bias, "model.layers.2.mlp.gate.e_score_correction_bias");
  ASSERT_EQ(layer.moe->experts.size(), 2u);
  is_tensor(layer.moe->experts[1].gate, "model.layers.2.mlp.experts.1.gate_proj.weight");
  is_tensor(layer.moe->experts[1].up, "model.layers.2.mlp.experts.1.up_proj.weight");
  is_tensor(layer.moe->experts[1].down, "model.layers.2.mlp.experts.1.down_proj.weight");
  is_tensor(layer.moe->shared_expert->down, "model.layers.2.mlp.shared_experts.down_proj.weight");
  ASSERT_TRUE(weights->layers[0].dense.has_value());
  is_tensor(weights->layers[0].dense->gate, "model.layers.0.mlp.gate_proj.weight");
}

TEST_F(Weights, layers_have_the_parts_that_the_config_gives_them) {
  const auto weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_TRUE(weights->layers[0].indexer.has_value());
  EXPECT_FALSE(weights->layers[1].indexer.has_value());
  EXPECT_TRUE(weights->layers[2].indexer.has_value());
  EXPECT_FALSE(weights->layers[0].moe.has_value());
  EXPECT_FALSE(weights->layers[1].dense.has_value());
  EXPECT_TRUE(weights->layers[1].moe.has_value());
}

TEST_F(Weights, decodes_a_range_of_rows) {
  const auto weights = load();
  ASSERT_TRUE(weights.ok());
  const std::vector<float> all = decoded(weights->layers[0].q_b);
  std::vector<float> rows(3 * 5);
  weights->layers[0].q_b.rows_to_f32(4, 3, rows.data());
  EXPECT_EQ(rows, std::vector<float>(all.begin() + 20, all.begin() + 35));
}

TEST_F(Weights, decodes_bf16_also_at_odd_addresses) {
  // A name that is one byte longer moves the data by one: one of the two puts it at odd addresses.
  for (const char* pad : {"p", "pp"}) {
    tensors_.insert(tensors_.begin(), {absl::StrCat(pad, ".rotary_emb.inv_freq"), "U8", {1}, "x"});
    std::vector<Bf16> bits;
    for (int i = 0; i < 48; ++i) bits.push_back(f32_to_bf16(static_cast<float>(i) * 0.5f));
    tensor("lm_head.weight").dtype = "BF16";
    tensor("lm_head.weight").bytes = bytes_of(bits);
    const auto weights = load();
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(weights->lm_head.dtype, DType::kBf16);
    const std::vector<float> values = decoded(weights->lm_head);
    for (int i = 0; i < 48; ++i) EXPECT_EQ(values[i], static_cast<float>(i) * 0.5f);
    tensors_.erase(tensors_.begin());
  }
}

TEST_F(Weights, names_every_missing_tensor) {
  remove("model.layers.1.mlp.experts.1.up_proj.weight");
  remove("model.layers.2.self_attn.indexer.k_norm.bias");
  remove("model.layers.0.self_attn.o_proj.weight");
  EXPECT_THAT(error(), AllOf(HasSubstr("3 tensors are not as config.json says"),
                             HasSubstr("model.layers.1.mlp.experts.1.up_proj.weight: is missing"),
                             HasSubstr("model.layers.2.self_attn.indexer.k_norm.bias: is missing"),
                             HasSubstr("model.layers.0.self_attn.o_proj.weight: is missing")));
}

TEST_F(Weights, limits_the_list_of_errors) {
  config_.hidden_dim = 16;
  const std::string message = error();
  EXPECT_THAT(message, HasSubstr("[6, 8], config.json asks for [6, 16]"));
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 21);
  EXPECT_THAT(message, HasSubstr("\nand "));
}

TEST_F(Weights, names_a_wrong_shape) {
  tensor("model.layers.0.self_attn.kv_a_proj_with_mqa.weight").shape = {8, 9};
  tensor("model.norm.weight").shape = {8, 1};
  EXPECT_THAT(error(),
              AllOf(HasSubstr("2 tensors"),
                    HasSubstr("kv_a_proj_with_mqa.weight: has shape [8, 9], config.json asks for "
                              "[9, 8]"),
                    HasSubstr("model.norm.weight: has shape [8, 1], config.json asks for [8]")));
}

TEST_F(Weights, refuses_a_dtype_that_it_cannot_decode) {
  BuiltTensor& head = tensor("lm_head.weight");
  head.dtype = "F16";
  head.bytes.resize(96);
  tensor("model.norm.weight").dtype = "I32";
  EXPECT_THAT(error(), AllOf(HasSubstr("lm_head.weight: has dtype F16, supported are"),
                             HasSubstr("model.norm.weight: has dtype I32, supported are")));
}

TEST_F(Weights, refuses_values_that_are_not_finite_in_vectors) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  tensor("model.norm.weight").bytes.replace(8, 4, bytes_of(std::vector<float>{nan}));
  EXPECT_THAT(error(), HasSubstr("model.norm.weight: element 2 is nan; the checkpoint is damaged"));
}

TEST_F(Weights, refuses_a_tensor_that_it_has_no_use_for) {
  add("model.layers.0.self_attn.sinks", {2});
  add("model.layers.0.mlp.gate.weight", {2, 8});
  add("model.layers.0.self_attn.q_b_proj.weight_scale_inv", {1, 1});
  EXPECT_THAT(error(), AllOf(HasSubstr("3 tensors"),
                             HasSubstr("model.layers.0.self_attn.sinks: unexpected tensor"),
                             HasSubstr("model.layers.0.mlp.gate.weight: unexpected tensor"),
                             HasSubstr("q_b_proj.weight_scale_inv: unexpected tensor")));
}

TEST_F(Weights, refuses_an_indexer_on_a_layer_that_shares_a_selection) {
  add("model.layers.1.self_attn.indexer.wk.weight", {6, 8});
  EXPECT_THAT(error(), HasSubstr("indexer.wk.weight: layer 1 shares the selection of layer 0"));
}

TEST_F(Weights, skips_the_mtp_layer_and_stored_rope_frequencies) {
  add("model.layers.3.eh_proj.weight", {8, 16});
  add("model.layers.3.embed_tokens.weight", {6, 8});
  add("model.layers.0.self_attn.rotary_emb.inv_freq", {1});
  EXPECT_EQ(error(), "");
  add("model.layers.4.eh_proj.weight", {8, 16});
  EXPECT_THAT(error(), AllOf(HasSubstr("1 tensor is"),
                             HasSubstr("model.layers.4.eh_proj.weight: layer 4 is beyond")));
  config_.num_mtp_layers = 2;
  EXPECT_EQ(error(), "");
  add("model.layers.x.weight", {1});
  add("model.layers.99999999999.weight", {1});
  EXPECT_THAT(error(), AllOf(HasSubstr("model.layers.x.weight: unexpected"),
                             HasSubstr("model.layers.99999999999.weight: unexpected")));
}

TEST_F(Weights, a_tied_head_is_the_embedding) {
  config_.tie_word_embeddings = true;
  EXPECT_THAT(error(), HasSubstr("lm_head.weight: differs from model.embed_tokens.weight"));
  tensor("lm_head.weight").bytes = tensor("model.embed_tokens.weight").bytes;
  EXPECT_EQ(error(), "");
  remove("lm_head.weight");
  const auto weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->lm_head.data, weights->embedding.data);
  config_.tie_word_embeddings = false;
  EXPECT_THAT(error(), HasSubstr("lm_head.weight: is missing"));
}

TEST_F(Weights, without_shared_experts_none_is_loaded) {
  config_.num_shared_experts = 0;
  EXPECT_THAT(error(), HasSubstr("shared_experts.down_proj.weight: unexpected tensor"));
  std::erase_if(tensors_, [](const BuiltTensor& tensor) {
    return tensor.name.find("shared_experts") != std::string::npos;
  });
  const auto weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_FALSE(weights->layers[1].moe->shared_expert.has_value());
}

// ---- FP8 --------------------------------------------------------------------------------------

// 200 x 130: two blocks by two, the last ones partial (72 rows, 2 columns).
class Fp8Weights : public Weights {
 protected:
  static constexpr char kName[] = "model.layers.0.mlp.gate_proj.weight";
  static constexpr char kScaleName[] = "model.layers.0.mlp.gate_proj.weight_scale_inv";
  static constexpr int64_t kRows = 200;
  static constexpr int64_t kColumns = 130;

  Fp8Weights() {
    config_.quantization = WeightQuantization::kFp8Blocks;
    config_.hidden_dim = kColumns;
    config_.dense_intermediate_dim = kRows;
    config_.num_layers = 1;
    config_.index_groups = {{0, 1}};
    config_.v_head_dim = 4;
    tensors_.clear();
    add("model.embed_tokens.weight", {6, kColumns});
    add("model.norm.weight", {kColumns});
    add("lm_head.weight", {6, kColumns});
    add_wide_layer();
    std::string codes(kRows * kColumns, '\x38');  // 1.0
    codes[0] = '\x7e';                            // 448
    codes[kColumns + 129] = '\xc0';               // -2.0
    codes[199 * kColumns + 129] = '\x01';         // 2^-9
    tensor(kName) = {kName, "F8_E4M3", {kRows, kColumns}, codes};
    tensors_.push_back({kScaleName, "F32", {2, 2}, bytes_of(std::vector<float>{2, 3, 5, 7})});
  }

  void add_wide_layer() {
    const std::string layer = "model.layers.0.";
    add(layer + "input_layernorm.weight", {kColumns});
    add(layer + "post_attention_layernorm.weight", {kColumns});
    add(layer + "self_attn.q_a_proj.weight", {5, kColumns});
    add(layer + "self_attn.q_a_layernorm.weight", {5});
    add(layer + "self_attn.q_b_proj.weight", {10, 5});
    add(layer + "self_attn.kv_a_proj_with_mqa.weight", {9, kColumns});
    add(layer + "self_attn.kv_a_layernorm.weight", {7});
    add(layer + "self_attn.kv_b_proj.weight", {14, 7});
    add(layer + "self_attn.o_proj.weight", {kColumns, 8});
    add(layer + "self_attn.indexer.wq_b.weight", {18, 5});
    add(layer + "self_attn.indexer.wk.weight", {6, kColumns});
    add(layer + "self_attn.indexer.weights_proj.weight", {3, kColumns});
    add(layer + "self_attn.indexer.k_norm.weight", {6});
    add(layer + "self_attn.indexer.k_norm.bias", {6});
    add(layer + "mlp.gate_proj.weight", {kRows, kColumns});
    add(layer + "mlp.up_proj.weight", {kRows, kColumns});
    add(layer + "mlp.down_proj.weight", {kColumns, kRows});
  }
};

TEST_F(Fp8Weights, multiply_by_the_scale_of_their_block) {
  const auto weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  const WeightMatrix& gate = weights->layers[0].dense->gate;
  EXPECT_EQ(gate.dtype, DType::kF8E4m3);
  EXPECT_EQ(gate.stored_bytes(), kRows * kColumns);
  const std::vector<float> values = decoded(gate);
  const auto at = [&](int64_t row, int64_t column) { return values[row * kColumns + column]; };
  EXPECT_EQ(at(0, 0), 448.0f * 2);
  EXPECT_EQ(at(127, 127), 2.0f);
  EXPECT_EQ(at(127, 128), 3.0f);
  EXPECT_EQ(at(1, 129), -2.0f * 3);
  EXPECT_EQ(at(128, 0), 5.0f);
  EXPECT_EQ(at(199, 127), 5.0f);
  EXPECT_EQ(at(128, 128), 7.0f);
  EXPECT_EQ(at(199, 129), std::ldexp(7.0f, -9));
}

TEST_F(Fp8Weights, a_row_range_uses_the_scales_of_its_own_rows) {
  const auto weights = load();
  ASSERT_TRUE(weights.ok()) << weights.status();
  std::vector<float> rows(2 * kColumns);
  weights->layers[0].dense->gate.rows_to_f32(127, 2, rows.data());
  EXPECT_EQ(rows[0], 2.0f);
  EXPECT_EQ(rows[128], 3.0f);
  EXPECT_EQ(rows[kColumns], 5.0f);
  EXPECT_EQ(rows[kColumns + 128], 7.0f);
}

TEST_F(Fp8Weights, need_scales_of_the_right_shape_dtype_and_value) {
  tensor(kScaleName).shape = {4, 1};
  EXPECT_THAT(error(),
              HasSubstr("weight_scale_inv: has shape [4, 1], config.json asks for [2, 2]"));
  tensor(kScaleName).shape = {2, 2};
  const float infinity = std::numeric_limits<float>::infinity();
  tensor(kScaleName).bytes = bytes_of(std::vector<float>{1, 2, 3, infinity});
  EXPECT_THAT(error(), HasSubstr("weight_scale_inv: element 3 is inf"));
  tensor(kScaleName).dtype = "BF16";
  tensor(kScaleName).bytes.resize(8);
  EXPECT_THAT(error(), HasSubstr("weight_scale_inv: has dtype BF16, scales must be F32"));
  remove(kScaleName);
  EXPECT_THAT(error(), HasSubstr("gate_proj.weight_scale_inv: is missing"));
}

TEST_F(Fp8Weights, need_a_config_that_announces_them) {
  config_.quantization = WeightQuantization::kNone;
  EXPECT_THAT(error(), HasSubstr("gate_proj.weight: has dtype F8_E4M3, but config.json has no "
                                 "quantization_config"));
}

TEST_F(Fp8Weights, are_no_vectors) {
  tensor("model.norm.weight").dtype = "F8_E4M3";
  tensor("model.norm.weight").bytes.resize(kColumns);
  EXPECT_THAT(error(), HasSubstr("model.norm.weight: has dtype F8_E4M3, it must be F32"));
}

// ---- A real checkpoint ------------------------------------------------------------------------

TEST(DemoCheckpoint, loads_with_every_tensor_in_place) {
  const auto checkpoint = Checkpoint::open(DHS_SOURCE_DIR "/tests/models/demo");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto config =
      parse_target_config(checkpoint->config_json(), checkpoint->generation_config_json());
  ASSERT_TRUE(config.ok()) << config.status();
  const auto weights = load_target_weights(*checkpoint, *config);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ASSERT_EQ(weights->layers.size(), 8u);
  EXPECT_EQ(weights->embedding.dtype, DType::kBf16);
  EXPECT_TRUE(weights->layers[6].indexer.has_value());
  EXPECT_FALSE(weights->layers[7].indexer.has_value());
  EXPECT_EQ(weights->layers[1].moe->experts.size(), 8u);
  double sum = 0;
  for (float value : decoded(weights->layers[7].o)) sum += std::fabs(value);
  EXPECT_TRUE(std::isfinite(sum));
  EXPECT_GT(sum, 0);
}

}  // namespace
}  // namespace dhs
