#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "model/target_config.h"
#include "published_configs.h"

namespace dhs {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Lt;
using testing::Not;

std::string list_of(int num, const std::string& item) {
  std::string list = "[";
  for (int i = 0; i < num; ++i) absl::StrAppend(&list, i > 0 ? "," : "", item);
  return list + "]";
}

TEST(TargetConfig, refuses_architectures_that_are_not_ours) {
  for (const Keys& keys :
       {with(glm(), "model_type", R"("glm5_next")"), without(glm(), "model_type"),
        with(glm(), "architectures", R"(["DeepseekV32ForCausalLM"])")}) {
    const auto config = parse_target_config(json(keys), "");
    EXPECT_EQ(config.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(config.status().message(), HasSubstr("supported are \"glm_moe_dsa\""));
  }
  parse(without(glm(), "architectures"));
}

TEST(TargetConfig, refuses_every_key_it_does_not_know) {
  for (const char* key : {"sliding_window", "swiglu_limit", "mhc", "n_hash_layers", "layer_types",
                          "index_kpool", "rope_thetaa", "partial_rotary_factor"}) {
    EXPECT_THAT(error_of(with(glm(), key, "128")),
                AllOf(HasSubstr(absl::StrCat("config.json: ", key, ": 128")),
                      HasSubstr("may change the math")))
        << key;
  }
}

TEST(TargetConfig, accepts_keys_that_cannot_change_the_result) {
  Keys keys = glm();
  for (const char* key :
       {"transformers_version", "auto_map", "_name_or_path", "torch_dtype", "initializer_range",
        "aux_loss_alpha", "seq_aux", "router_aux_loss_coef", "use_cache", "pretraining_tp",
        "ep_size", "bos_token_id", "pad_token_id"}) {
    keys[key] = "17";
  }
  EXPECT_EQ(parse(keys).num_layers, 78);
}

TEST(TargetConfig, refuses_values_that_it_does_not_implement) {
  const Keys unsupported = {{"attention_bias", "true"},
                            {"mlp_bias", "true"},
                            {"attention_dropout", "0.1"},
                            {"hidden_act", R"("gelu")"},
                            {"scoring_func", R"("softmax")"},
                            {"topk_method", R"("greedy")"},
                            {"moe_router_dtype", R"("bfloat16")"},
                            {"moe_layer_freq", "2"},
                            {"rope_interleave", "false"},
                            {"qk_head_dim", "192"},
                            {"num_key_value_heads", "8"}};
  for (const auto& [key, value] : unsupported) {
    EXPECT_THAT(error_of(with(glm(), key, value)),
                HasSubstr(absl::StrCat("config.json: ", key, ": ", value, " is not supported")));
  }
}

TEST(TargetConfig, refuses_rope_that_it_does_not_implement) {
  const auto error_of_rope = [](const std::string& value) {
    return error_of(with(glm(), "rope_parameters", value));
  };
  EXPECT_THAT(error_of_rope(R"({"rope_theta": 1e4, "rope_type": "linear", "factor": 2})"),
              HasSubstr("rope_parameters.rope_type: \"linear\" is not supported"));
  EXPECT_THAT(error_of_rope(R"({"rope_theta": 1e4, "rope_type": "default", "factor": 2})"),
              HasSubstr("rope_parameters.factor: 2: unknown key"));
  EXPECT_THAT(error_of_rope(R"({"rope_theta": 1e4, "rope_type": "default", "type": "yarn"})"),
              HasSubstr("rope_parameters.type: \"yarn\" contradicts"));
  EXPECT_THAT(error_of_rope(R"({"rope_theta": 1e4, "type": "yarn", "truncate": false})"),
              HasSubstr("rope_parameters.truncate: false is not supported"));
  EXPECT_THAT(error_of_rope(R"({"rope_theta": 1e4, "type": "yarn", "attention_factor": 1})"),
              HasSubstr("rope_parameters.attention_factor: 1: unknown key"));
  EXPECT_THAT(error_of_rope(R"({"rope_type": "default"})"), HasSubstr("rope_theta: is missing"));
  EXPECT_THAT(error_of_rope("[]"), HasSubstr("rope_parameters: [] is not an object"));
  EXPECT_THAT(error_of(without(glm(), "rope_parameters")), HasSubstr("rope_theta: is missing"));
  EXPECT_THAT(error_of(with(glm(), "rope_theta", "5")),
              HasSubstr("rope_theta: 5 is not supported, only 8e+06 is"));
  EXPECT_THAT(error_of(with(glm(), "rope_scaling", kYarn)),
              HasSubstr("rope_scaling: rope_parameters says it already"));
}

TEST(TargetConfig, refuses_incomplete_yarn) {
  const auto error_of_yarn = [](const std::string& rest) {
    return error_of(with(deepseek(), "rope_scaling", R"({"type": "yarn")" + rest + "}"));
  };
  const std::string size = R"(, "factor": 40, "original_max_position_embeddings": 4096)";
  EXPECT_EQ(error_of_yarn(size), "");
  EXPECT_THAT(error_of_yarn(""), AllOf(HasSubstr("rope_scaling.factor: is missing"),
                                       HasSubstr("original_max_position_embeddings: is missing")));
  EXPECT_THAT(error_of_yarn(size + R"(, "mscale": 1)"),
              HasSubstr("rope_scaling.mscale_all_dim: is missing"));
  EXPECT_THAT(error_of_yarn(size + R"(, "mscale_all_dim": 1)"),
              HasSubstr("rope_scaling.mscale: is missing"));
  EXPECT_THAT(error_of_yarn(size + R"(, "beta_fast": 1, "beta_slow": 2)"),
              HasSubstr("beta_fast: 1 must be above beta_slow 2"));
}

TEST(TargetConfig, refuses_quantization_that_it_does_not_implement) {
  const auto error_of_quantization = [](const std::string& value) {
    return error_of(with(glm(), "quantization_config", value));
  };
  const std::string block = R"(, "weight_block_size": [128, 128]})";
  EXPECT_EQ(error_of_quantization(R"({"quant_method": "fp8")" + block), "");
  EXPECT_THAT(error_of_quantization(R"({"quant_method": "awq")" + block),
              HasSubstr("quantization_config.quant_method: \"awq\" is not supported"));
  EXPECT_THAT(error_of_quantization("{" + block.substr(1)),
              HasSubstr("quant_method: is missing; only \"fp8\""));
  EXPECT_THAT(error_of_quantization(R"({"quant_method": "fp8", "fmt": "e5m2")" + block),
              HasSubstr("fmt: \"e5m2\" is not supported"));
  EXPECT_THAT(error_of_quantization(R"({"quant_method": "fp8", "bits": 4)" + block),
              HasSubstr("quantization_config.bits: 4: unknown key"));
  EXPECT_THAT(error_of_quantization(R"({"quant_method": "fp8", "weight_block_size": [32, 32]})"),
              HasSubstr("weight_block_size: must be [128, 128]"));
  EXPECT_THAT(error_of_quantization(R"({"quant_method": "fp8"})"), HasSubstr("weight_block_size"));
}

TEST(TargetConfig, requires_every_size) {
  for (const char* key :
       {"vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings", "rms_norm_eps",
        "num_attention_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
        "qk_rope_head_dim", "v_head_dim", "index_n_heads", "index_head_dim", "index_topk",
        "intermediate_size", "moe_intermediate_size", "n_routed_experts", "num_experts_per_tok"}) {
    const std::string missing = absl::StrCat("config.json: ", key, ": is missing");
    EXPECT_THAT(error_of(without(glm(), key)), HasSubstr(missing));
    EXPECT_THAT(error_of(with(glm(), key, "null")), HasSubstr(missing));
    EXPECT_THAT(error_of(with(glm(), key, "0")),
                HasSubstr(absl::StrCat("config.json: ", key, ": 0 is outside")));
    EXPECT_THAT(error_of(with(glm(), key, "-5")), HasSubstr(": -5 is outside"));
    EXPECT_THAT(error_of(with(glm(), key, "\"8\"")), HasSubstr(": \"8\" is a string"));
    EXPECT_THAT(error_of(with(glm(), key, "4611686018427387904")), HasSubstr("is outside"));
  }
}

TEST(TargetConfig, refuses_sizes_that_contradict_each_other) {
  const auto error_with = [](const std::string& key, const std::string& value) {
    return error_of(with(deepseek(), key, value));
  };
  EXPECT_THAT(error_with("qk_rope_head_dim", "63"), HasSubstr("qk_rope_head_dim: 63 is odd"));
  EXPECT_THAT(error_with("index_head_dim", "32"),
              HasSubstr("index_head_dim: 32 is below qk_rope_head_dim 64"));
  EXPECT_THAT(error_with("head_dim", "96"), HasSubstr("head_dim: 96 is none of"));
  EXPECT_THAT(error_with("n_group", "7"),
              HasSubstr("n_routed_experts: 256 experts do not divide into n_group 7"));
  EXPECT_THAT(error_with("n_group", "256"), HasSubstr("leaves one expert per group"));
  EXPECT_THAT(error_with("topk_group", "9"), HasSubstr("topk_group: 9 is above n_group 8"));
  EXPECT_THAT(error_with("num_experts_per_tok", "129"),
              HasSubstr("num_experts_per_tok: 129 is above the 128 experts"));
  EXPECT_THAT(error_with("first_k_dense_replace", "62"), HasSubstr("62 is outside [0, 61]"));
}

TEST(TargetConfig, reads_dense_layers_from_the_layer_types_too) {
  Keys keys = with(deepseek(), "num_hidden_layers", "3");
  keys["mlp_layer_types"] = R"(["dense", "dense", "sparse"])";
  EXPECT_THAT(error_of(keys), HasSubstr("2 dense layers contradict first_k_dense_replace 3"));
  EXPECT_EQ(parse(without(keys, "first_k_dense_replace")).first_k_dense, 2);
  EXPECT_EQ(parse(with(keys, "first_k_dense_replace", "2")).first_k_dense, 2);
  keys["mlp_layer_types"] = R"(["dense", "sparse", "dense"])";
  EXPECT_THAT(error_of(keys), HasSubstr("only \"dense\" layers followed by \"sparse\" ones"));
  keys["mlp_layer_types"] = R"(["dense", "dense"])";
  EXPECT_THAT(error_of(keys), HasSubstr("mlp_layer_types: 2 layers, num_hidden_layers is 3"));
}

TEST(TargetConfig, reports_all_errors_at_once) {
  Keys keys = glm();
  keys["hidden_act"] = R"("gelu")";
  keys["vocab_size"] = "-3";
  keys["mystery"] = "1";
  EXPECT_THAT(error_of(keys), AllOf(HasSubstr("hidden_act"), HasSubstr("vocab_size: -3"),
                                    HasSubstr("mystery"), Not(HasSubstr("hidden_size"))));
}

TEST(TargetConfig, refuses_what_is_not_an_object_and_duplicate_keys) {
  EXPECT_THAT(parse_target_config("", "").status().message(), HasSubstr("config.json: not JSON"));
  EXPECT_THAT(parse_target_config("[]", "").status().message(),
              HasSubstr("config.json: is an array, not an object"));
  EXPECT_THAT(parse_target_config(R"({"a": 1, "a": 2})", "").status().message(),
              HasSubstr("duplicate key \"a\""));
}

// Whatever the damage: an error, or a config whose groups cover its layers.
TEST(TargetConfig, survives_random_damage) {
  const std::string intact = json(with(glm(), "indexer_types", list_of(78, R"("full")")));
  std::mt19937 random(5);
  int num_accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = intact;
    const size_t at = random() % text.size();
    if (random() % 2 == 0) {
      text[at] = static_cast<char>(random());
    } else {
      text.replace(at, 1 + random() % 3, 1, "0123456789{}[],\":-.e"[random() % 20]);
    }
    const auto config = parse_target_config(text, "");
    if (!config.ok()) {
      EXPECT_FALSE(config.status().message().empty());
      continue;
    }
    ++num_accepted;
    int next = 0;
    for (const IndexGroup& group : config->index_groups) {
      EXPECT_EQ(group.first_layer, next);
      next += group.num_layers;
    }
    EXPECT_EQ(next, config->num_layers);
    EXPECT_GT(config->softmax_scale, 0);
    EXPECT_THAT(config->eos_token_ids, Each(Lt(config->vocab_size)));
  }
  EXPECT_GT(num_accepted, 20);
  EXPECT_LT(num_accepted, 2000);
}

}  // namespace
}  // namespace dhs
