#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "published_draft_configs.h"

namespace dhs {
namespace {

std::vector<std::pair<std::string, Keys>> published() {
  return {{"glm_dflash2", glm_dflash2()},
          {"qwen_dflash", qwen_dflash()},
          {"flat_dflash", flat_dflash()},
          {"deepspec_dspark", deepspec_dspark()},
          {"speculators_dspark", speculators_dspark()}};
}

// Keys that have a value of their own where a file leaves them out.
const std::set<std::string>& keys_with_another_meaning() {
  static const std::set<std::string> keys = {"is_causal", "num_target_layers", "markov_rank",
                                             "enable_confidence_head",
                                             "confidence_head_with_markov"};
  return keys;
}

// Nothing in it can lead a forward pass astray.
void expect_sound(const BlockDraftConfig& config) {
  EXPECT_GT(config.vocab_size, 0);
  EXPECT_GT(config.hidden_dim, 0);
  EXPECT_GT(config.head_dim, 0);
  EXPECT_EQ(config.head_dim % 8, 0);
  EXPECT_EQ(config.num_heads % config.num_kv_heads, 0);
  EXPECT_GT(config.rope_theta, 1);
  EXPECT_GT(config.rms_norm_eps, 0);
  EXPECT_FALSE(config.target_layers.empty());
  for (int layer : config.target_layers) EXPECT_GE(layer, 0);
  EXPECT_EQ(std::ssize(config.masks), config.num_layers);
  EXPECT_GE(config.num_proposals(), 1);
  EXPECT_GE(config.mask_token, 0);
  EXPECT_LT(config.mask_token, config.vocab_size);
  if (config.family == BlockDraftFamily::kDflash2) {
    EXPECT_EQ(config.hidden_dim % config.conv_group_channels, 0);
    EXPECT_GT(config.selector_top_k, 0);
  }
  EXPECT_EQ(config.markov == MarkovKind::kNone, config.markov_rank == 0);
}

// One key of one published file, with another value or without any.
struct Change {
  std::string name, key, value;
  Keys changed;
  BlockDraftConfig whole;  // of the file as published
};

std::vector<Change> each_key_as(const std::string& value) {
  std::vector<Change> changes;
  for (const auto& [name, keys] : published()) {
    const BlockDraftConfig whole = parse_draft(keys);
    for (const auto& [key, unused] : keys) {
      changes.push_back({name, key, value, with(keys, key, value), whole});
    }
  }
  return changes;
}

std::vector<Change> each_key_removed() {
  std::vector<Change> changes = each_key_as("0");
  for (Change& change : changes) {
    change.value = "nothing";
    change.changed.erase(change.key);
  }
  return changes;
}

// An error, or the same structure, or one that `may_differ` allows; sound whatever it is.
template <class Allowed>
void expect_error_or_same(const Change& change, const Allowed& may_differ) {
  SCOPED_TRACE(absl::StrCat(change.name, ": ", change.key, " = ", change.value));
  const auto config = parse_block_draft_config(nested_json(change.changed));
  if (!config.ok()) {
    EXPECT_FALSE(config.status().message().empty());
    return;
  }
  expect_sound(*config);
  EXPECT_TRUE(*config == change.whole || may_differ(change));
}

TEST(BlockDraftConfig, without_a_key_it_means_the_same_or_is_an_error) {
  const auto has_default = [](const Change& change) {
    return keys_with_another_meaning().count(change.key) > 0;
  };
  for (const Change& change : each_key_removed()) expect_error_or_same(change, has_default);
  for (const Change& change : each_key_as("null")) expect_error_or_same(change, has_default);
}

TEST(BlockDraftConfig, a_value_of_a_wrong_type_means_nothing_or_is_an_error) {
  const auto never = [](const Change&) { return false; };
  for (const char* value : {"{}", "[]", "\"\"", "\"x\"", "-1", "1e300", "[[]]", "{\"a\": {}}",
                            "[null]", "9223372036854775807", "-9223372036854775808",
                            "[9223372036854775807]", "[-9223372036854775808]"}) {
    for (const Change& change : each_key_as(value)) expect_error_or_same(change, never);
  }
  // Right types for some: a flag may be true, a rope base 1.5.
  const auto is_flag_or_base = [](const Change& change) {
    return change.value == "true"
               ? change.key == "is_causal" || change.key == "sliding_window_non_causal"
               : change.key.find("rope_theta") != std::string::npos;
  };
  for (const char* value : {"true", "1.5"}) {
    for (const Change& change : each_key_as(value)) expect_error_or_same(change, is_flag_or_base);
  }
}

TEST(BlockDraftConfig, a_key_that_nobody_knows_is_an_error_in_every_object) {
  for (const auto& [name, keys] : published()) {
    for (const auto& [key, value] : keys) {
      SCOPED_TRACE(absl::StrCat(name, ": ", key));
      const auto config = parse_block_draft_config(nested_json(with(keys, key + "_", value)));
      EXPECT_THAT(config.status().message(), testing::HasSubstr(key + "_: "));
    }
  }
}

TEST(BlockDraftConfig, refuses_a_key_of_drafts_that_propose_from_another_row) {
  EXPECT_THAT(
      draft_error(with(flat_dflash(), "num_anchors", "512")),
      testing::HasSubstr("num_anchors: 512: whoever writes it has drafts that propose from"));
}

TEST(BlockDraftConfig, survives_random_damage) {
  std::mt19937 random(11);
  int num_accepted = 0;
  for (const auto& [name, keys] : published()) {
    const std::string intact = nested_json(keys);
    for (int i = 0; i < 1500; ++i) {
      std::string text = intact;
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random());
      } else {
        text.replace(at, 1 + random() % 3, 1, "0123456789{}[],\":-.e"[random() % 20]);
      }
      const auto config = parse_block_draft_config(text);
      if (!config.ok()) {
        EXPECT_FALSE(config.status().message().empty());
        continue;
      }
      ++num_accepted;
      expect_sound(*config);
    }
  }
  EXPECT_GT(num_accepted, 50);
  EXPECT_LT(num_accepted, 5000);
}

}  // namespace
}  // namespace dhs
