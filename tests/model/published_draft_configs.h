// config.json of block drafts as they are published, to be varied key by key. A key with dots lies
// in nested objects: "dflash_config.block_size".
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "model/block_draft_config.h"
#include "published_configs.h"

namespace dhs {

// What a file with the layers of a Qwen3 model says besides its sizes.
inline Keys qwen3_keys() {
  return {{"model_type", R"("qwen3")"},     {"attention_bias", "false"},
          {"attention_dropout", "0.0"},     {"dtype", R"("bfloat16")"},
          {"hidden_act", R"("silu")"},      {"initializer_range", "0.02"},
          {"tie_word_embeddings", "false"}, {"use_cache", "true"}};
}

inline Keys merged(Keys keys, const Keys& more) {
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

inline std::string six_times(const std::string& item) {
  return "[" + item + "," + item + "," + item + "," + item + "," + item + "," + item + "]";
}

// GLM-5.3-DFlash2.
inline Keys glm_dflash2() {
  return merged(qwen3_keys(), {{"architectures", R"(["DFlash2DraftModel"])"},
                               {"bos_token_id", "null"},
                               {"dflash_config.block_size", "8"},
                               {"dflash_config.conv_group_size", "16"},
                               {"dflash_config.conv_kernel_size", "2"},
                               {"dflash_config.mask_token_id", "154856"},
                               {"dflash_config.selector_rank", "256"},
                               {"dflash_config.selector_top_k", "16"},
                               {"dflash_config.target_layer_ids", "[5, 19, 33, 47, 61, 75]"},
                               {"eos_token_id", "[154820, 154827, 154829]"},
                               {"head_dim", "128"},
                               {"hidden_size", "6144"},
                               {"intermediate_size", "12288"},
                               {"is_causal", "false"},
                               {"layer_types", six_times(R"("sliding_attention")")},
                               {"max_position_embeddings", "1048576"},
                               {"max_window_layers", "6"},
                               {"num_attention_heads", "64"},
                               {"num_hidden_layers", "6"},
                               {"num_key_value_heads", "8"},
                               {"num_target_layers", "78"},
                               {"pad_token_id", "154820"},
                               {"rms_norm_eps", "1e-05"},
                               {"rope_parameters.rope_theta", "1000000"},
                               {"rope_parameters.rope_type", R"("default")"},
                               {"sliding_window", "2048"},
                               {"transformers_version", R"("5.7.0")"},
                               {"use_sliding_window", "true"},
                               {"vocab_size", "154880"}});
}

// DFlash of a 27B model: block_size at the top, the rest of its own keys nested.
inline Keys qwen_dflash() {
  return merged(qwen3_keys(),
                {{"architectures", R"(["DFlashDraftModel"])"},
                 {"block_size", "16"},
                 {"dflash_config.mask_token_id", "248070"},
                 {"dflash_config.target_layer_ids", "[1, 16, 31, 46, 61]"},
                 {"head_dim", "128"},
                 {"hidden_size", "5120"},
                 {"intermediate_size", "17408"},
                 {"layer_types", R"(["full_attention", "full_attention", "full_attention",
                                     "full_attention", "full_attention"])"},
                 {"max_position_embeddings", "262144"},
                 {"num_attention_heads", "32"},
                 {"num_hidden_layers", "5"},
                 {"num_key_value_heads", "8"},
                 {"num_target_layers", "64"},
                 {"rms_norm_eps", "1e-06"},
                 {"rope_theta", "10000000"},
                 {"sliding_window", "null"},
                 {"vocab_size", "248320"}});
}

// FlashDrive: all keys at the top, and fewer layers than taps. The sizes are Qwen3-8B's.
inline Keys flat_dflash() {
  return merged(qwen3_keys(), {{"architectures", R"(["DFlashDraftModel"])"},
                               {"block_size", "8"},
                               {"head_dim", "128"},
                               {"hidden_size", "4096"},
                               {"intermediate_size", "12288"},
                               {"layer_types", R"(["full_attention", "full_attention"])"},
                               {"mask_token_id", "151669"},
                               {"num_attention_heads", "32"},
                               {"num_hidden_layers", "2"},
                               {"num_key_value_heads", "8"},
                               {"num_target_layers", "36"},
                               {"rms_norm_eps", "1e-06"},
                               {"rope_theta", "1000000"},
                               {"target_layer_ids", "[1, 9, 17, 25, 33]"},
                               {"vocab_size", "151936"}});
}

// DeepSpec's draft of Qwen3-8B.
inline Keys deepspec_dspark() {
  return merged(flat_dflash(),
                {{"architectures", R"(["Qwen3DSparkModel"])"},
                 {"block_size", "7"},
                 {"confidence_head_with_markov", "true"},
                 {"enable_confidence_head", "true"},
                 {"layer_types", R"(["full_attention", "full_attention", "full_attention",
                                     "full_attention", "full_attention"])"},
                 {"markov_head_type", R"("vanilla")"},
                 {"markov_rank", "256"},
                 {"num_anchors", "512"},
                 {"num_hidden_layers", "5"}});
}

// The speculator of GLM-5.3.
inline Keys speculators_dspark() {
  Keys keys = {{"architectures", R"(["DSparkDraftModel"])"},
               {"aux_hidden_state_layer_ids", "[2, 20, 39, 58, 75]"},
               {"block_size", "8"},
               {"confidence_head_with_markov", "true"},
               {"draft_vocab_size", "154880"},
               {"dtype", R"("bfloat16")"},
               {"enable_confidence_head", "true"},
               {"markov_head_type", R"("vanilla")"},
               {"markov_rank", "256"},
               {"mask_token_id", "154856"},
               {"sample_from_anchor", "true"},
               {"sliding_window_non_causal", "false"},
               {"speculators_config", R"({"algorithm": "dspark"})"},
               {"speculators_model_type", R"("dspark")"},
               {"speculators_version", R"("0.7.0")"},
               {"target_hidden_size", "null"},
               {"tie_word_embeddings", "false"}};
  const Keys layers = {{"attention_bias", "false"},
                       {"attention_dropout", "0.0"},
                       {"head_dim", "64"},
                       {"hidden_act", R"("silu")"},
                       {"hidden_size", "6144"},
                       {"intermediate_size", "12288"},
                       {"layer_types", R"(["sliding_attention", "sliding_attention",
                                           "sliding_attention"])"},
                       {"max_position_embeddings", "1048576"},
                       {"model_type", R"("qwen3")"},
                       {"num_attention_heads", "64"},
                       {"num_hidden_layers", "3"},
                       {"num_key_value_heads", "64"},
                       {"rms_norm_eps", "1e-05"},
                       {"rope_parameters.rope_theta", "8000000"},
                       {"rope_parameters.rope_type", R"("default")"},
                       {"sliding_window", "2048"},
                       {"use_sliding_window", "true"},
                       {"vocab_size", "154880"}};
  for (const auto& [key, value] : layers) keys["transformer_layer_config." + key] = value;
  return keys;
}

// JSON of keys with dots.
inline std::string nested_json(const Keys& keys) {
  std::map<std::string, Keys> objects;
  Keys members;
  for (const auto& [key, value] : keys) {
    const size_t dot = key.find('.');
    if (dot == std::string::npos) {
      members[key] = value;
    } else {
      objects[key.substr(0, dot)][key.substr(dot + 1)] = value;
    }
  }
  for (const auto& [key, object] : objects) members.emplace(key, nested_json(object));
  return json(members);
}

inline BlockDraftConfig parse_draft(const Keys& keys) {
  const auto config = parse_block_draft_config(nested_json(keys));
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : BlockDraftConfig{};
}

inline std::string draft_error(const Keys& keys) {
  const auto config = parse_block_draft_config(nested_json(keys));
  return config.ok() ? "" : std::string(config.status().message());
}

}  // namespace dhs
