#include "model/target_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "published_configs.h"

namespace dhs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// ---- The published files ----------------------------------------------------------------------

TEST(TargetConfig, reads_a_published_glm_config) {
  const TargetConfig config = parse(glm());
  EXPECT_EQ(config.family, TargetFamily::kGlmMoeDsa);
  EXPECT_EQ(config.vocab_size, 154880);
  EXPECT_EQ(config.hidden_dim, 6144);
  EXPECT_EQ(config.num_layers, 78);
  EXPECT_EQ(config.num_mtp_layers, 1);
  EXPECT_EQ(config.max_position, 1048576);
  EXPECT_EQ(config.num_heads, 64);
  EXPECT_EQ(config.q_lora_rank, 2048);
  EXPECT_EQ(config.latent_row_dim(), 576);
  EXPECT_EQ(config.qk_head_dim(), 256);
  EXPECT_EQ(config.v_head_dim, 256);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.latent_norm_eps, 1e-5);
  EXPECT_EQ(config.first_k_dense, 3);
  EXPECT_TRUE(config.is_dense_layer(2));
  EXPECT_FALSE(config.is_dense_layer(3));
  EXPECT_EQ(config.num_experts, 256);
  EXPECT_EQ(config.experts_per_token, 8);
  EXPECT_EQ(config.num_shared_experts, 1);
  EXPECT_EQ(config.routed_scale, 2.5);
  EXPECT_TRUE(config.normalize_expert_weights);
  EXPECT_EQ(config.index_num_heads, 32);
  EXPECT_EQ(config.index_dim, 128);
  EXPECT_EQ(config.index_top_k, 2048);
  EXPECT_TRUE(config.indexer_rope_interleaved);
  EXPECT_EQ(config.quantization, WeightQuantization::kNone);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(154820, 154827, 154829));
}

TEST(TargetConfig, takes_the_rope_width_of_glm_from_its_own_key_not_from_head_dim) {
  const TargetConfig config = parse(glm());
  EXPECT_EQ(config.qk_rope_dim, 64);
  EXPECT_EQ(config.rope_theta, 8e6);
  EXPECT_FALSE(config.yarn.has_value());
  EXPECT_EQ(config.rope_magnitude, 1.0);
  EXPECT_EQ(config.softmax_scale, 1.0 / 16);
}

TEST(TargetConfig, reads_a_published_deepseek_config) {
  const TargetConfig config = parse(deepseek());
  EXPECT_EQ(config.family, TargetFamily::kDeepseekV32);
  EXPECT_EQ(config.num_layers, 61);
  EXPECT_EQ(config.num_heads, 128);
  EXPECT_EQ(config.qk_head_dim(), 192);
  EXPECT_EQ(config.num_expert_groups, 8);
  EXPECT_EQ(config.top_expert_groups, 4);
  EXPECT_FALSE(config.indexer_rope_interleaved);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(1));
  ASSERT_EQ(config.index_groups.size(), 61u);
  EXPECT_EQ(config.index_groups[60], (IndexGroup{60, 1}));
}

TEST(TargetConfig, scales_softmax_by_the_square_of_the_yarn_mscale) {
  const TargetConfig config = parse(deepseek());
  EXPECT_NEAR(config.softmax_scale, std::pow(192.0, -0.5) * 1.873854, 1e-7);
  EXPECT_EQ(config.rope_magnitude, 1.0);
  ASSERT_TRUE(config.yarn.has_value());
  EXPECT_EQ(config.yarn->factor, 40);
  EXPECT_EQ(config.yarn->original_max_position, 4096);
  EXPECT_EQ(config.yarn->beta_fast, 32);
  EXPECT_EQ(config.yarn->beta_slow, 1);
}

TEST(TargetConfig, reads_yarn_in_both_spellings) {
  const std::string nested = R"({"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0,
      "original_max_position_embeddings": 4096, "mscale": 1, "mscale_all_dim": 1})";
  const TargetConfig config = parse(
      with(without(without(deepseek(), "rope_scaling"), "rope_theta"), "rope_parameters", nested));
  const TargetConfig old_spelling = parse(deepseek());
  EXPECT_EQ(config.rope_theta, old_spelling.rope_theta);
  EXPECT_EQ(config.softmax_scale, old_spelling.softmax_scale);
  EXPECT_EQ(config.yarn->beta_fast, old_spelling.yarn->beta_fast);
}

TEST(TargetConfig, without_mscale_yarn_scales_the_rotation_instead) {
  const TargetConfig config = parse(with(deepseek(), "rope_scaling", R"({"type": "yarn",
      "factor": 40, "original_max_position_embeddings": 4096})"));
  EXPECT_NEAR(config.rope_magnitude, 0.1 * std::log(40.0) + 1, 1e-12);
  EXPECT_EQ(config.softmax_scale, 1 / std::sqrt(192.0));
}

TEST(TargetConfig, takes_a_null_rope_scaling_as_none) {
  const TargetConfig config = parse(with(deepseek(), "rope_scaling", "null"));
  EXPECT_FALSE(config.yarn.has_value());
  EXPECT_EQ(config.softmax_scale, 1 / std::sqrt(192.0));
}

TEST(TargetConfig, reads_block_fp8) {
  const std::string quantization = R"({"activation_scheme": "dynamic", "fmt": "e4m3",
      "quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128],
      "modules_to_not_convert": ["lm_head"]})";
  EXPECT_EQ(parse(with(glm(), "quantization_config", quantization)).quantization,
            WeightQuantization::kFp8Blocks);
}

TEST(TargetConfig, an_absent_indexer_rope_key_means_half_split) {
  EXPECT_FALSE(parse(without(glm(), "indexer_rope_interleave")).indexer_rope_interleaved);
}

TEST(TargetConfig, reads_the_demo) {
  const auto read = [](const std::string& name) {
    std::ifstream file(std::string(DHS_SOURCE_DIR "/tests/models/demo/") + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  };
  const auto config = parse_target_config(read("config.json"), read("generation_config.json"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->index_groups,
              ElementsAre(IndexGroup{0, 1}, IndexGroup{1, 1}, IndexGroup{2, 4}, IndexGroup{6, 2}));
  EXPECT_EQ(config->softmax_scale, 0.125);
  EXPECT_EQ(config->first_k_dense, 1);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(4080));
}

// ---- Index groups -----------------------------------------------------------------------------

TEST(TargetConfig, the_rule_gives_glm_its_21_groups) {
  const TargetConfig config = parse(glm());
  ASSERT_EQ(config.index_groups.size(), 21u);
  EXPECT_EQ(config.index_groups[0], (IndexGroup{0, 1}));
  EXPECT_EQ(config.index_groups[1], (IndexGroup{1, 1}));
  for (int group = 2; group < 21; ++group) {
    EXPECT_EQ(config.index_groups[group], (IndexGroup{2 + (group - 2) * 4, 4}));
  }
  EXPECT_EQ(index_group_of_layer(config, 0), 0);
  EXPECT_EQ(index_group_of_layer(config, 5), 2);
  EXPECT_EQ(index_group_of_layer(config, 6), 3);
  EXPECT_EQ(index_group_of_layer(config, 77), 20);
  EXPECT_TRUE(layer_has_indexer(config, 74));
  EXPECT_FALSE(layer_has_indexer(config, 77));
}

TEST(TargetConfig, a_pattern_overrides_the_rule_and_a_list_overrides_both) {
  Keys keys = with(glm(), "num_hidden_layers", "4");
  EXPECT_THAT(parse(keys).index_groups,
              ElementsAre(IndexGroup{0, 1}, IndexGroup{1, 1}, IndexGroup{2, 2}));
  keys["index_topk_pattern"] = R"("FSSF")";
  EXPECT_THAT(parse(keys).index_groups, ElementsAre(IndexGroup{0, 3}, IndexGroup{3, 1}));
  keys["indexer_types"] = R"(["full", "full", "shared", "shared"])";
  EXPECT_THAT(parse(keys).index_groups, ElementsAre(IndexGroup{0, 1}, IndexGroup{1, 3}));
}

TEST(TargetConfig, refuses_index_groups_that_do_not_cover_the_layers) {
  const Keys keys = with(glm(), "num_hidden_layers", "3");
  EXPECT_THAT(error_of(with(keys, "indexer_types", R"(["full", "shared"])")),
              HasSubstr("indexer_types: 2 layers, num_hidden_layers is 3"));
  EXPECT_THAT(error_of(with(keys, "indexer_types", "[]")), HasSubstr("0 layers"));
  EXPECT_THAT(error_of(with(keys, "indexer_types", R"(["shared", "full", "full"])")),
              HasSubstr("indexer_types: layer 0 is shared"));
  EXPECT_THAT(error_of(with(keys, "indexer_types", R"(["full", "half", "full"])")),
              HasSubstr("\"half\" is neither"));
  EXPECT_THAT(error_of(with(keys, "indexer_types", R"([1, 1, 1])")),
              HasSubstr("indexer_types: [1, 1, 1] is an array, an array of strings is required"));
  EXPECT_THAT(error_of(with(keys, "index_topk_pattern", R"("SFF")")),
              HasSubstr("index_topk_pattern: layer 0 is shared"));
  EXPECT_THAT(error_of(with(keys, "index_topk_pattern", R"("FFFF")")), HasSubstr("4 layers"));
  EXPECT_THAT(error_of(with(keys, "index_topk_pattern", R"("FxS")")),
              HasSubstr("may hold only F (full) and S (shared)"));
  EXPECT_THAT(error_of(with(keys, "index_skip_topk_offset", "0")), HasSubstr("layer 0 is shared"));
  EXPECT_THAT(error_of(without(keys, "index_skip_topk_offset")),
              HasSubstr("index_skip_topk_offset: is missing"));
  EXPECT_THAT(error_of(with(keys, "index_topk_freq", "0")), HasSubstr("index_topk_freq: 0 is"));
}

// ---- End of sequence --------------------------------------------------------------------------

TEST(TargetConfig, generation_config_names_the_end_of_a_sequence_first) {
  EXPECT_THAT(parse(glm(), R"({"eos_token_id": [7, 8, 7], "temperature": 1.0})").eos_token_ids,
              ElementsAre(7, 8));
  EXPECT_THAT(parse(glm(), R"({"eos_token_id": 9})").eos_token_ids, ElementsAre(9));
  EXPECT_THAT(parse(glm(), R"({"top_p": 0.95})").eos_token_ids,
              ElementsAre(154820, 154827, 154829));
  EXPECT_THAT(parse(with(glm(), "eos_token_id", "null")).eos_token_ids, IsEmpty());
}

TEST(TargetConfig, refuses_an_end_of_sequence_outside_the_vocabulary) {
  EXPECT_THAT(error_of(glm(), R"({"eos_token_id": 154880})"),
              HasSubstr("generation_config.json: eos_token_id: 154880 is outside the vocabulary"));
  EXPECT_THAT(error_of(with(glm(), "eos_token_id", "[1, -1]")),
              HasSubstr("config.json: eos_token_id: -1 is outside the vocabulary [0, 154880)"));
  EXPECT_THAT(error_of(with(glm(), "eos_token_id", "\"x\"")), HasSubstr("eos_token_id: \"x\" is"));
  EXPECT_THAT(error_of(glm(), "[]"), HasSubstr("generation_config.json: is an array"));
}

}  // namespace
}  // namespace dhs
