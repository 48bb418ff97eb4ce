#include "model/block_draft_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/block_draft_tensors.h"
#include "published_draft_configs.h"

namespace dhs {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr BlockLayerMask kFull{.is_causal = false, .window = 0};

// ---- Formats ----------------------------------------------------------------------------------

TEST(BlockDraftConfig, reads_dflash2_of_glm) {
  const BlockDraftConfig config = parse_draft(glm_dflash2());
  EXPECT_EQ(config.family, BlockDraftFamily::kDflash2);
  EXPECT_EQ(config.vocab_size, 154880);
  EXPECT_EQ(config.hidden_dim, 6144);
  EXPECT_EQ(config.target_hidden_dim, 6144);
  EXPECT_EQ(config.intermediate_dim, 12288);
  EXPECT_EQ(config.num_layers, 6);
  EXPECT_EQ(config.num_heads, 64);
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_THAT(config.target_layers, ElementsAre(5, 19, 33, 47, 61, 75));
  EXPECT_EQ(config.num_target_layers, 78);
  EXPECT_EQ(config.mask_token, 154856);
  EXPECT_THAT(config.masks, AllOf(SizeIs(6), Each(BlockLayerMask{false, 2048})));
  EXPECT_EQ(config.block_rows, 8);
  EXPECT_FALSE(config.proposes_from_anchor);
  EXPECT_EQ(config.num_proposals(), 7);
  EXPECT_EQ(config.conv_taps, 2);
  EXPECT_EQ(config.conv_group_channels, 16);
  EXPECT_EQ(config.selector_rank, 256);
  EXPECT_EQ(config.selector_top_k, 16);
  EXPECT_EQ(config.logit_multiplier, 1);
  EXPECT_EQ(config.logit_softcap, 0);
  EXPECT_EQ(config.markov, MarkovKind::kNone);
  EXPECT_FALSE(config.has_confidence);
  EXPECT_EQ(config.context_window(), 2048);
}

TEST(BlockDraftConfig, reads_dflash_with_nested_keys) {
  const BlockDraftConfig config = parse_draft(qwen_dflash());
  EXPECT_EQ(config.family, BlockDraftFamily::kDflash);
  EXPECT_THAT(config.target_layers, ElementsAre(1, 16, 31, 46, 61));
  EXPECT_EQ(config.mask_token, 248070);
  EXPECT_EQ(config.rope_theta, 1e7);
  EXPECT_EQ(config.num_proposals(), 15);
  EXPECT_THAT(config.masks, AllOf(SizeIs(5), Each(kFull)));
  EXPECT_EQ(config.context_window(), 0);
}

TEST(BlockDraftConfig, reads_dflash_with_keys_at_the_top) {
  const BlockDraftConfig config = parse_draft(flat_dflash());
  EXPECT_THAT(config.target_layers, ElementsAre(1, 9, 17, 25, 33));
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.mask_token, 151669);
  EXPECT_EQ(config.num_proposals(), 7);
}

TEST(BlockDraftConfig, reads_dspark_of_deepspec) {
  const BlockDraftConfig config = parse_draft(deepspec_dspark());
  EXPECT_EQ(config.family, BlockDraftFamily::kDspark);
  EXPECT_TRUE(config.proposes_from_anchor);
  EXPECT_EQ(config.block_rows, 7);
  EXPECT_EQ(config.num_proposals(), 7);
  EXPECT_EQ(config.markov, MarkovKind::kVanilla);
  EXPECT_EQ(config.markov_rank, 256);
  EXPECT_TRUE(config.has_confidence);
  EXPECT_TRUE(config.confidence_sees_markov);
  EXPECT_THAT(config.target_layers, ElementsAre(1, 9, 17, 25, 33));
  EXPECT_THAT(config.masks, AllOf(SizeIs(5), Each(kFull)));
}

TEST(BlockDraftConfig, reads_dspark_of_speculators) {
  const BlockDraftConfig config = parse_draft(speculators_dspark());
  EXPECT_EQ(config.family, BlockDraftFamily::kDspark);
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.num_heads, 64);
  EXPECT_EQ(config.num_kv_heads, 64);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.rope_theta, 8e6);
  EXPECT_THAT(config.target_layers, ElementsAre(1, 19, 38, 57, 74));
  EXPECT_EQ(config.mask_token, 154856);
  EXPECT_TRUE(config.proposes_from_anchor);
  EXPECT_EQ(config.num_proposals(), 8);
  EXPECT_EQ(config.markov, MarkovKind::kVanilla);
  EXPECT_TRUE(config.confidence_sees_markov);
  EXPECT_THAT(config.masks, AllOf(SizeIs(3), Each(BlockLayerMask{true, 2048})));
}

// The same draft, written in the other places.
TEST(BlockDraftConfig, means_the_same_wherever_a_format_puts_its_keys) {
  const BlockDraftConfig config = parse_draft(glm_dflash2());
  Keys flat;
  for (const auto& [key, value] : glm_dflash2()) {
    const bool is_own = key.substr(0, 14) == "dflash_config.";
    flat[is_own ? key.substr(14) : key] = value;
  }
  EXPECT_EQ(parse_draft(flat), config);
  flat.erase("rope_parameters.rope_theta");
  flat.erase("rope_parameters.rope_type");
  EXPECT_EQ(parse_draft(with(flat, "rope_theta", "1e6")), config);

  Keys nested = without(flat_dflash(), "target_layer_ids");
  nested.erase("mask_token_id");
  nested = merged(nested, {{"dflash_config.target_layer_ids", "[1, 9, 17, 25, 33]"},
                           {"dflash_config.mask_token_id", "151669"}});
  EXPECT_EQ(parse_draft(nested), parse_draft(flat_dflash()));
  // Both: the draft's own object comes first.
  EXPECT_EQ(parse_draft(with(nested, "mask_token_id", "5")), parse_draft(flat_dflash()));

  EXPECT_EQ(parse_draft(with(deepspec_dspark(), "sample_from_anchor", "true")),
            parse_draft(deepspec_dspark()));
}

TEST(BlockDraftConfig, has_as_many_parameters_as_the_published_files) {
  const auto parameters = [](const Keys& keys) {
    return num_block_draft_parameters(parse_draft(keys));
  };
  EXPECT_EQ(parameters(glm_dflash2()), 2'459'424'256);
  EXPECT_EQ(2 * parameters(speculators_dspark()), 2'499'130'626);  // bytes of bf16
  // Without the selector, and the two convolutions of six layers.
  Keys plain = with(glm_dflash2(), "architectures", R"(["DFlashDraftModel"])");
  for (const char* key :
       {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"}) {
    plain.erase(absl::StrCat("dflash_config.", key));
  }
  EXPECT_EQ(parameters(glm_dflash2()) - parameters(plain),
            256 * 6144 + 2 * 154880 * 256 + 12 * (4 * 6144 + 1536 * 6144));
}

// ---- Blocks, masks ----------------------------------------------------------------------------

TEST(BlockDraftConfig, sample_from_anchor_says_which_rows_propose) {
  EXPECT_TRUE(parse_draft(deepspec_dspark()).proposes_from_anchor);
  for (const Keys& keys : {deepspec_dspark(), speculators_dspark()}) {
    const BlockDraftConfig config = parse_draft(with(keys, "sample_from_anchor", "false"));
    EXPECT_FALSE(config.proposes_from_anchor);
    EXPECT_EQ(config.num_proposals(), config.block_rows - 1);
  }
  EXPECT_THAT(draft_error(without(speculators_dspark(), "sample_from_anchor")),
              HasSubstr("sample_from_anchor: is missing"));
  EXPECT_THAT(draft_error(with(flat_dflash(), "sample_from_anchor", "true")),
              HasSubstr("sample_from_anchor: true: unknown key"));
}

TEST(BlockDraftConfig, needs_a_row_that_proposes) {
  EXPECT_THAT(draft_error(with(flat_dflash(), "block_size", "1")),
              HasSubstr("block_size: 1 leaves no row that proposes"));
  EXPECT_EQ(parse_draft(with(deepspec_dspark(), "block_size", "1")).num_proposals(), 1);
  EXPECT_THAT(draft_error(with(glm_dflash2(), "dflash_config.block_size", "65")),
              HasSubstr("dflash_config.block_size: 65 is outside [1, 64]"));
}

std::vector<bool> causality(const Keys& keys) {
  std::vector<bool> is_causal;
  for (const BlockLayerMask& mask : parse_draft(keys).masks) is_causal.push_back(mask.is_causal);
  return is_causal;
}

TEST(BlockDraftConfig, each_word_on_causality_overrides_the_next) {
  Keys keys = merged(flat_dflash(), {{"layer_types", R"(["sliding_attention", "full_attention"])"},
                                     {"sliding_window", "100"}});
  EXPECT_THAT(causality(keys), ElementsAre(true, false)) << "the type of the layer";
  keys["dflash_config.causal"] = "true";
  EXPECT_THAT(causality(keys), ElementsAre(true, true));
  keys["dflash_config.causal"] = "false";
  EXPECT_THAT(causality(keys), ElementsAre(false, false));
  keys["is_causal"] = "true";
  EXPECT_THAT(causality(keys), ElementsAre(true, true));
  keys["dflash_config.causal"] = "true";
  keys["is_causal"] = "false";
  EXPECT_THAT(causality(keys), ElementsAre(false, false));
}

TEST(BlockDraftConfig, a_window_of_the_drafts_own_says_nothing_of_causality) {
  const Keys keys = merged(
      flat_dflash(), {{"dflash_config.use_swa", "true"}, {"dflash_config.swa_window_size", "512"}});
  EXPECT_THAT(parse_draft(keys).masks, AllOf(SizeIs(2), Each(BlockLayerMask{false, 512})));
}

TEST(BlockDraftConfig, speculators_say_causality_their_own_way) {
  Keys keys = speculators_dspark();
  keys["transformer_layer_config.layer_types"] =
      R"(["sliding_attention", "full_attention", "sliding_attention"])";
  EXPECT_THAT(causality(keys), ElementsAre(true, false, true));
  EXPECT_THAT(causality(without(keys, "sliding_window_non_causal")),
              ElementsAre(true, false, true));
  EXPECT_THAT(causality(with(keys, "sliding_window_non_causal", "true")),
              ElementsAre(false, false, false));
  EXPECT_THAT(draft_error(with(keys, "is_causal", "false")),
              HasSubstr("is_causal: false: unknown key"));
  EXPECT_THAT(draft_error(with(flat_dflash(), "sliding_window_non_causal", "true")),
              HasSubstr("sliding_window_non_causal: true: unknown key"));
}

TEST(BlockDraftConfig, takes_windows_from_both_styles) {
  const std::string types = R"(["full_attention", "sliding_attention"])";
  const Keys mixed = merged(flat_dflash(), {{"layer_types", types}, {"sliding_window", "300"}});
  EXPECT_THAT(parse_draft(mixed).masks, ElementsAre(kFull, BlockLayerMask{true, 300}));
  EXPECT_EQ(parse_draft(mixed).context_window(), 0) << "one layer needs everything";
  const Keys own =
      merged(mixed, {{"dflash_config.use_swa", "true"}, {"dflash_config.swa_window_size", "512"}});
  EXPECT_EQ(parse_draft(own).context_window(), 512);
  const Keys unused = with(flat_dflash(), "sliding_window", "300");
  EXPECT_THAT(parse_draft(unused).masks, Each(kFull)) << "no layer slides";
  const Keys off = merged(flat_dflash(), {{"dflash_config.use_swa", "false"},
                                          {"dflash_config.swa_window_size", "512"}});
  EXPECT_THAT(parse_draft(off).masks, Each(kFull));
}

TEST(BlockDraftConfig, refuses_windows_that_are_not_clear) {
  const Keys sliding =
      with(flat_dflash(), "layer_types", R"(["full_attention", "sliding_attention"])");
  EXPECT_THAT(draft_error(sliding), HasSubstr("sliding_window: is missing; layers slide"));
  EXPECT_THAT(draft_error(with(sliding, "sliding_window", "7")),
              HasSubstr("sliding_window: 7 is shorter than the block of 8 rows"));
  EXPECT_THAT(
      draft_error(merged(sliding, {{"sliding_window", "99"}, {"use_sliding_window", "false"}})),
      HasSubstr("use_sliding_window: false contradicts"));
  EXPECT_THAT(draft_error(with(flat_dflash(), "dflash_config.use_swa", "true")),
              HasSubstr("swa_window_size: is missing"));
  Keys untyped = without(with(flat_dflash(), "use_sliding_window", "true"), "layer_types");
  EXPECT_THAT(draft_error(untyped), HasSubstr("layer_types: is missing"));
  EXPECT_THAT(draft_error(with(flat_dflash(), "layer_types", R"(["full_attention"])")),
              HasSubstr("layer_types: 1 layers, num_hidden_layers is 2"));
  EXPECT_THAT(draft_error(with(flat_dflash(), "layer_types", R"(["full_attention", "linear"])")),
              HasSubstr("\"linear\" is neither full_attention nor sliding_attention"));
}

// ---- Taps, tokens -----------------------------------------------------------------------------

TEST(BlockDraftConfig, converts_taps_that_are_numbered_by_inputs) {
  EXPECT_THAT(parse_draft(with(speculators_dspark(), "aux_hidden_state_layer_ids", "[1, 78]"))
                  .target_layers,
              ElementsAre(0, 77));
  EXPECT_THAT(draft_error(with(speculators_dspark(), "aux_hidden_state_layer_ids", "[0, 2]")),
              HasSubstr("aux_hidden_state_layer_ids: 0 is outside [1, 1024]"));
  EXPECT_THAT(parse_draft(with(flat_dflash(), "target_layer_ids", "[0, 2]")).target_layers,
              ElementsAre(0, 2));
  EXPECT_THAT(draft_error(with(flat_dflash(), "target_layer_ids", "[-1, 2]")),
              HasSubstr("target_layer_ids: -1 is outside [0, 1023]"));
}

TEST(BlockDraftConfig, never_guesses_which_layers_are_tapped) {
  EXPECT_THAT(draft_error(without(glm_dflash2(), "dflash_config.target_layer_ids")),
              HasSubstr("target_layer_ids: is missing; it says which hidden states"));
  EXPECT_THAT(draft_error(without(deepspec_dspark(), "target_layer_ids")),
              HasSubstr("target_layer_ids: is missing"));
  EXPECT_THAT(draft_error(with(flat_dflash(), "target_layer_ids", "[]")),
              HasSubstr("target_layer_ids: [] is empty"));
  // A name of another format, whose numbering is another too.
  const Keys other = with(without(speculators_dspark(), "aux_hidden_state_layer_ids"),
                          "target_layer_ids", "[1, 19]");
  EXPECT_THAT(draft_error(other), AllOf(HasSubstr("aux_hidden_state_layer_ids: is missing"),
                                        HasSubstr("target_layer_ids: [1, 19]: unknown key")));
  EXPECT_THAT(draft_error(with(flat_dflash(), "aux_hidden_state_layer_ids", "[2, 20]")),
              HasSubstr("aux_hidden_state_layer_ids: [2, 20]: unknown key"));
}

TEST(BlockDraftConfig, the_mask_token_is_a_token) {
  EXPECT_THAT(draft_error(with(glm_dflash2(), "dflash_config.mask_token_id", "154880")),
              HasSubstr("dflash_config.mask_token_id: 154880 is outside [0, 154879]"));
  EXPECT_THAT(draft_error(with(flat_dflash(), "mask_token_id", "-1")),
              HasSubstr("mask_token_id: -1 is outside"));
  EXPECT_THAT(draft_error(without(flat_dflash(), "mask_token_id")),
              HasSubstr("mask_token_id: is missing"));
}

// ---- Refused ----------------------------------------------------------------------------------

TEST(BlockDraftConfig, dflash2_is_whole_or_an_error) {
  for (const char* key :
       {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"}) {
    EXPECT_THAT(draft_error(without(glm_dflash2(), absl::StrCat("dflash_config.", key))),
                HasSubstr(absl::StrCat(key, ": is missing")));
    EXPECT_THAT(draft_error(with(glm_dflash2(), "architectures", R"(["DFlashDraftModel"])")),
                HasSubstr(absl::StrCat("config.json: dflash_config.", key, ": ")));
  }
  EXPECT_THAT(draft_error(with(glm_dflash2(), "architectures", R"(["DFlashDraftModel"])")),
              HasSubstr("only drafts whose architectures is DFlash2DraftModel have it"));
  EXPECT_THAT(draft_error(with(glm_dflash2(), "dflash_config.conv_group_size", "20")),
              HasSubstr("conv_group_size: 20 does not divide hidden_size 6144"));
  EXPECT_THAT(draft_error(with(glm_dflash2(), "dflash_config.selector_rank", "4097")),
              HasSubstr("selector_rank: 4097 is outside [1, 4096]"));
  EXPECT_THAT(draft_error(with(glm_dflash2(), "dflash_config.selector_top_k", "65")),
              HasSubstr("selector_top_k: 65 is outside [1, 64]"));
}

TEST(BlockDraftConfig, refuses_other_architectures) {
  const auto status_with = [](const Keys& keys) {
    return parse_block_draft_config(nested_json(keys)).status();
  };
  for (const Keys& keys : {with(flat_dflash(), "architectures", R"(["Qwen3DFlashModel"])"),
                           without(flat_dflash(), "architectures"),
                           with(flat_dflash(), "architectures", R"("DFlashDraftModel")"),
                           with(flat_dflash(), "speculators_model_type", R"("dflash")"),
                           without(speculators_dspark(), "speculators_model_type")}) {
    EXPECT_EQ(status_with(keys).code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(status_with(keys).message(), HasSubstr("supported are DFlashDraftModel"));
  }
  const Keys v4 = {{"architectures", R"(["DeepseekV4ForCausalLM"])"},
                   {"model_type", R"("deepseek_v4")"},
                   {"dspark_block_size", "5"},
                   {"dspark_noise_token_id", "128799"},
                   {"dspark_target_layer_ids", "[40, 41, 42]"}};
  EXPECT_EQ(status_with(v4).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status_with(v4).message(),
              AllOf(HasSubstr("dspark_block_size"), HasSubstr("DeepseekV4ForCausalLM"),
                    HasSubstr("only DSpark drafts with a checkpoint of their own")));
}

TEST(BlockDraftConfig, refuses_keys_that_change_the_math) {
  const Keys refused = {{"attention_value_scale", "0.707"}, {"projector_type", R"("domino")"},
                        {"attention_sink_bias", "true"},    {"add_swa_attention_sink_bias", "true"},
                        {"input_embedding_scale", "8"},     {"is_neox_style", "false"},
                        {"rope_is_neox_style", "false"}};
  for (const auto& [key, value] : refused) {
    for (const std::string prefix : {"", "dflash_config."}) {
      EXPECT_THAT(draft_error(with(qwen_dflash(), prefix + key, value)),
                  HasSubstr(absl::StrCat(prefix, key, ": ", value, " is not supported, only ")));
    }
  }
  for (const char* key : {"mystery", "gru_hidden_dim", "causal", "fc_bias"}) {
    EXPECT_THAT(draft_error(with(qwen_dflash(), key, "1")),
                HasSubstr(absl::StrCat("config.json: ", key, ": 1: unknown key")));
  }
  for (const char* key :
       {"dflash_config.is_causal", "dflash_config.hidden_act", "dflash_config.mystery"}) {
    EXPECT_THAT(draft_error(with(qwen_dflash(), key, "1")),
                HasSubstr(absl::StrCat("config.json: ", key, ": 1: unknown key")));
  }
}

TEST(BlockDraftConfig, refuses_layers_that_it_does_not_implement) {
  for (const Keys& keys : {glm_dflash2(), qwen_dflash(), deepspec_dspark()}) {
    for (const auto& [key, value] : Keys{{"attention_bias", "true"},
                                         {"mlp_bias", "true"},
                                         {"hidden_act", R"("gelu")"},
                                         {"partial_rotary_factor", "0.5"},
                                         {"model_type", R"("llama")"}}) {
      EXPECT_THAT(draft_error(with(keys, key, value)),
                  HasSubstr(absl::StrCat("config.json: ", key, ": ", value, " is not supported")));
    }
  }
  EXPECT_THAT(
      draft_error(with(speculators_dspark(), "transformer_layer_config.hidden_act", R"("gelu")")),
      HasSubstr("transformer_layer_config.hidden_act: \"gelu\" is not supported"));
  EXPECT_THAT(
      draft_error(with(speculators_dspark(), "transformer_layer_config.model_type", R"("llama")")),
      HasSubstr("transformer_layer_config.model_type: \"llama\" is not supported"));
  EXPECT_THAT(draft_error(with(flat_dflash(), "head_dim", "512")),
              HasSubstr("head_dim: 512 is outside [1, 256]"));
  EXPECT_THAT(draft_error(with(flat_dflash(), "num_key_value_heads", "5")),
              HasSubstr("num_key_value_heads: 5 does not divide the 32 attention heads"));
  EXPECT_THAT(draft_error(with(flat_dflash(), "head_dim", "127")),
              HasSubstr("head_dim: 127 is no multiple of 8"));
}

TEST(BlockDraftConfig, refuses_scaled_rope) {
  const std::string yarn = R"({"rope_type": "yarn", "factor": 4})";
  EXPECT_THAT(draft_error(with(flat_dflash(), "rope_scaling", yarn)),
              HasSubstr("rope_scaling: {\"rope_type\": \"yarn\", \"factor\": 4} is not supported"));
  EXPECT_THAT(draft_error(with(glm_dflash2(), "rope_parameters.rope_type", R"("yarn")")),
              HasSubstr("rope_parameters.rope_type: \"yarn\" is not supported"));
  EXPECT_THAT(draft_error(with(glm_dflash2(), "rope_parameters.factor", "4")),
              HasSubstr("rope_parameters.factor: 4: unknown key"));
  EXPECT_THAT(draft_error(with(glm_dflash2(), "rope_theta", "10000")),
              HasSubstr("rope_theta: 10000 is not supported, only 1e+06 is"));
}

TEST(BlockDraftConfig, refuses_a_reduced_vocabulary) {
  EXPECT_THAT(draft_error(with(speculators_dspark(), "draft_vocab_size", "32000")),
              HasSubstr("draft_vocab_size: 32000 is not vocab_size 154880"));
}

TEST(BlockDraftConfig, refuses_quantised_drafts) {
  EXPECT_THAT(draft_error(with(flat_dflash(), "quantization_config", R"({"quant_method": "fp8"})")),
              AllOf(HasSubstr("quantization_config: {\"quant_method\": \"fp8\"} is not supported"),
                    HasSubstr("take the draft in bf16")));
}

TEST(BlockDraftConfig, scales_of_logits_count_where_they_change_a_choice) {
  for (const char* name : {"output_multiplier", "logit_scale"}) {
    const BlockDraftConfig dflash2 =
        parse_draft(merged(glm_dflash2(), Keys{{name, "0.5"}, {"final_logit_softcapping", "30"}}));
    EXPECT_EQ(dflash2.logit_multiplier, 0.5);
    EXPECT_EQ(dflash2.logit_softcap, 30);
  }
  const Keys scales = {
      {"output_multiplier", "0.5"}, {"logit_scale", "3"}, {"final_logit_softcapping", "30"}};
  EXPECT_THAT(draft_error(merged(glm_dflash2(), scales)),
              HasSubstr("logit_scale: 3 and output_multiplier 0.5 name one number"));
  // The largest of a row stays the largest.
  EXPECT_EQ(parse_draft(merged(flat_dflash(), scales)), parse_draft(flat_dflash()));
  EXPECT_THAT(draft_error(merged(deepspec_dspark(), scales)),
              AllOf(HasSubstr("output_multiplier: 0.5 is not supported"),
                    HasSubstr("logit_scale: 3 is not supported"),
                    HasSubstr("final_logit_softcapping: is not supported")));
  EXPECT_THAT(draft_error(with(deepspec_dspark(), "final_logit_softcapping", "1")),
              HasSubstr("final_logit_softcapping: is not supported"));
}

TEST(BlockDraftConfig, reads_the_sequential_heads) {
  const auto markov = [](const std::string& kind) {
    return parse_draft(with(deepspec_dspark(), "markov_head_type", "\"" + kind + "\"")).markov;
  };
  EXPECT_EQ(markov("vanilla"), MarkovKind::kVanilla);
  EXPECT_EQ(markov("gated"), MarkovKind::kGated);
  EXPECT_EQ(markov("rnn"), MarkovKind::kRnn);
  EXPECT_THAT(draft_error(with(deepspec_dspark(), "markov_head_type", R"("lstm")")),
              HasSubstr("markov_head_type: \"lstm\" is none of vanilla, gated and rnn"));
  const BlockDraftConfig none = parse_draft(with(deepspec_dspark(), "markov_rank", "0"));
  EXPECT_EQ(none.markov, MarkovKind::kNone);
  EXPECT_TRUE(none.has_confidence);
  EXPECT_FALSE(none.confidence_sees_markov) << "there is none to see";
  EXPECT_FALSE(
      parse_draft(with(deepspec_dspark(), "enable_confidence_head", "false")).has_confidence);
}

TEST(BlockDraftConfig, reports_all_errors_at_once) {
  Keys keys = glm_dflash2();
  keys["hidden_act"] = R"("gelu")";
  keys["dflash_config.mask_token_id"] = "-3";
  keys["dflash_config.mystery"] = "1";
  keys.erase("dflash_config.target_layer_ids");
  EXPECT_THAT(draft_error(keys), AllOf(HasSubstr("hidden_act"), HasSubstr("mask_token_id: -3"),
                                       HasSubstr("mystery"), HasSubstr("target_layer_ids")));
}

TEST(BlockDraftConfig, refuses_what_is_no_object) {
  EXPECT_THAT(parse_block_draft_config("").status().message(), HasSubstr("config.json: not JSON"));
  EXPECT_THAT(parse_block_draft_config("[]").status().message(),
              HasSubstr("is an array, not an object"));
  EXPECT_THAT(draft_error(with(flat_dflash(), "dflash_config", "7")),
              HasSubstr("dflash_config: 7 is not an object"));
  Keys bare;
  for (const auto& [key, value] : speculators_dspark()) {
    if (key.substr(0, 11) != "transformer") bare[key] = value;
  }
  EXPECT_THAT(draft_error(bare), HasSubstr("transformer_layer_config: is missing"));
}

// ---- The target -------------------------------------------------------------------------------

std::string target_error(const Keys& draft, const TargetConfig& target) {
  return std::string(check_target(parse_draft(draft), target).message());
}

TEST(BlockDraftConfig, fits_the_target_that_it_was_made_for) {
  EXPECT_EQ(target_error(glm_dflash2(), parse(glm())), "");
  EXPECT_EQ(target_error(speculators_dspark(), parse(glm())), "");
}

TEST(BlockDraftConfig, fits_no_other_target) {
  EXPECT_THAT(target_error(glm_dflash2(), parse(deepseek())),
              AllOf(HasSubstr("the draft's vocab_size is 154880, the target's is 129280"),
                    HasSubstr("the draft's target hidden size is 6144, the target's is 7168"),
                    HasSubstr("the draft's num_target_layers is 78, the target's is 61"),
                    HasSubstr("the draft taps layer 61 of a target of 61 layers"),
                    HasSubstr("the draft taps layer 75")));
  // A draft of another width would need an embedding of its own.
  EXPECT_THAT(
      target_error(with(with(glm_dflash2(), "hidden_size", "4096"), "target_hidden_size", "6144"),
                   parse(glm())),
      HasSubstr("the draft's hidden_size (it uses the target's embedding and head) is 4096"));
}

TEST(BlockDraftConfig, taps_neither_the_last_layer_nor_any_beyond) {
  const auto error_of_taps = [](const std::string& ids) {
    return target_error(with(glm_dflash2(), "dflash_config.target_layer_ids", ids), parse(glm()));
  };
  EXPECT_EQ(error_of_taps("[75, 76]"), "");
  EXPECT_THAT(error_of_taps("[5, 77]"), HasSubstr("taps layer 77 of a target of 78 layers"));
  EXPECT_THAT(error_of_taps("[5, 100]"), HasSubstr("taps layer 100"));
  EXPECT_THAT(target_error(with(speculators_dspark(), "aux_hidden_state_layer_ids", "[2, 78]"),
                           parse(glm())),
              HasSubstr("taps layer 77"));
}

}  // namespace
}  // namespace dhs
