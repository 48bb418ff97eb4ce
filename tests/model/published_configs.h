// config.json as the model families publish it, to be varied key by key.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "model/target_config.h"

namespace dhs {

// key -> JSON text of its value.
using Keys = std::map<std::string, std::string>;

// The published values of GLM-5.3.
inline Keys glm() {
  return {{"architectures", R"(["GlmMoeDsaForCausalLM"])"},
          {"model_type", R"("glm_moe_dsa")"},
          {"attention_bias", "false"},
          {"attention_dropout", "0.0"},
          {"dtype", R"("bfloat16")"},
          {"eos_token_id", "[154820, 154827, 154829]"},
          {"first_k_dense_replace", "3"},
          {"head_dim", "192"},
          {"hidden_act", R"("silu")"},
          {"hidden_size", "6144"},
          {"index_head_dim", "128"},
          {"index_n_heads", "32"},
          {"index_share_for_mtp_iteration", "true"},
          {"index_skip_topk_offset", "3"},
          {"index_topk", "2048"},
          {"index_topk_freq", "4"},
          {"index_topk_pattern", "null"},
          {"indexer_rope_interleave", "true"},
          {"initializer_range", "0.02"},
          {"intermediate_size", "12288"},
          {"kv_lora_rank", "512"},
          {"max_position_embeddings", "1048576"},
          {"moe_intermediate_size", "2048"},
          {"moe_layer_freq", "1"},
          {"moe_router_dtype", R"("float32")"},
          {"n_group", "1"},
          {"n_routed_experts", "256"},
          {"n_shared_experts", "1"},
          {"norm_topk_prob", "true"},
          {"num_attention_heads", "64"},
          {"num_experts_per_tok", "8"},
          {"num_hidden_layers", "78"},
          {"num_key_value_heads", "64"},
          {"num_nextn_predict_layers", "1"},
          {"pad_token_id", "154820"},
          {"q_lora_rank", "2048"},
          {"qk_head_dim", "256"},
          {"qk_nope_head_dim", "192"},
          {"qk_rope_head_dim", "64"},
          {"rms_norm_eps", "1e-05"},
          {"rope_interleave", "true"},
          {"rope_parameters", R"({"rope_theta": 8000000, "rope_type": "default"})"},
          {"routed_scaling_factor", "2.5"},
          {"scoring_func", R"("sigmoid")"},
          {"tie_word_embeddings", "false"},
          {"topk_group", "1"},
          {"topk_method", R"("noaux_tc")"},
          {"transformers_version", R"("5.2.0")"},
          {"use_cache", "true"},
          {"v_head_dim", "256"},
          {"vocab_size", "154880"}};
}

inline constexpr char kYarn[] = R"({"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"})";

// The published values of DeepSeek-V3.2.
inline Keys deepseek() {
  Keys keys = glm();
  for (const char* absent :
       {"dtype", "head_dim", "index_share_for_mtp_iteration", "index_skip_topk_offset",
        "index_topk_freq", "index_topk_pattern", "indexer_rope_interleave", "moe_router_dtype",
        "qk_head_dim", "rope_interleave", "rope_parameters"}) {
    keys.erase(absent);
  }
  const Keys differences = {{"architectures", R"(["DeepseekV32ForCausalLM"])"},
                            {"model_type", R"("deepseek_v32")"},
                            {"torch_dtype", R"("bfloat16")"},
                            {"eos_token_id", "1"},
                            {"ep_size", "1"},
                            {"hidden_size", "7168"},
                            {"index_n_heads", "64"},
                            {"intermediate_size", "18432"},
                            {"max_position_embeddings", "163840"},
                            {"n_group", "8"},
                            {"num_attention_heads", "128"},
                            {"num_hidden_layers", "61"},
                            {"num_key_value_heads", "128"},
                            {"pad_token_id", "2"},
                            {"q_lora_rank", "1536"},
                            {"qk_nope_head_dim", "128"},
                            {"rms_norm_eps", "1e-06"},
                            {"rope_scaling", kYarn},
                            {"rope_theta", "10000"},
                            {"topk_group", "4"},
                            {"v_head_dim", "128"},
                            {"vocab_size", "129280"}};
  for (const auto& [key, value] : differences) keys[key] = value;
  return keys;
}

inline Keys with(Keys keys, const std::string& key, const std::string& value) {
  keys[key] = value;
  return keys;
}
inline Keys without(Keys keys, const std::string& key) {
  keys.erase(key);
  return keys;
}

inline std::string json(const Keys& keys) {
  std::string text = "{";
  for (const auto& [key, value] : keys) {
    absl::StrAppend(&text, text.size() > 1 ? ",\n" : "", "\"", key, "\": ", value);
  }
  return text + "}";
}

inline TargetConfig parse(const Keys& keys, const std::string& generation = "") {
  const auto config = parse_target_config(json(keys), generation);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : TargetConfig{};
}

inline std::string error_of(const Keys& keys, const std::string& generation = "") {
  const auto config = parse_target_config(json(keys), generation);
  return config.ok() ? "" : std::string(config.status().message());
}

}  // namespace dhs
