#include "dhisparse/draft_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace dhs {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string directory_of(const std::string& name) {
  return std::string(DHS_SOURCE_DIR "/tests/golden/") + name;
}

absl::StatusOr<DraftDescription> describe(DraftKind kind, const std::string& name,
                                          const std::string& target = "model/glm_share") {
  return describe_draft({.kind = kind, .path = directory_of("draft/" + name)}, directory_of(target),
                        DType::kBf16);
}

TEST(DraftDescription, says_how_drafts_of_each_family_come_about) {
  const auto dflash = describe(DraftKind::kDflash, "dflash_causal");
  ASSERT_TRUE(dflash.ok()) << dflash.status();
  EXPECT_EQ(dflash->kind, ProposalKind::kChosen);
  EXPECT_EQ(dflash->num_proposals, 5);
  EXPECT_FALSE(dflash->has_confidence);
  EXPECT_EQ(dflash->context_window, 0);
  const auto dflash2 = describe(DraftKind::kDflash2, "dflash2");
  ASSERT_TRUE(dflash2.ok()) << dflash2.status();
  EXPECT_EQ(dflash2->kind, ProposalKind::kCandidates);
  EXPECT_EQ(dflash2->num_proposals, 7);
  EXPECT_EQ(dflash2->num_candidates, 4);
  EXPECT_TRUE(dflash2->has_confidence);
  EXPECT_EQ(dflash2->context_window, 16);
  const auto dspark = describe(DraftKind::kDspark, "dspark_speculators");
  ASSERT_TRUE(dspark.ok()) << dspark.status();
  EXPECT_EQ(dspark->kind, ProposalKind::kDense);
  EXPECT_EQ(dspark->num_proposals, 4);
  EXPECT_TRUE(dspark->has_confidence);
  EXPECT_THAT(dspark->target_layers, ElementsAre(0, 2, 4));
  EXPECT_EQ(dspark->page.num_layers, 2);
  EXPECT_EQ(dspark->page.width(), 4 * 16);
}

TEST(DraftDescription, of_the_demo_fits_the_demo) {
  const std::string demo = DHS_SOURCE_DIR "/tests/models/demo";
  const auto draft =
      describe_draft({.kind = DraftKind::kDflash2, .path = demo + "/dflash2"}, demo, DType::kBf16);
  ASSERT_TRUE(draft.ok()) << draft.status();
  EXPECT_EQ(draft->kind, ProposalKind::kCandidates);
}

TEST(DraftDescription, an_mtp_layer_has_an_index_group_and_no_pages) {
  const auto mtp =
      describe_draft({.kind = DraftKind::kMtp}, directory_of("draft/mtp_glm"), DType::kBf16);
  ASSERT_TRUE(mtp.ok()) << mtp.status();
  EXPECT_EQ(mtp->page.num_layers, 0);
  EXPECT_THAT(mtp->layers_per_group, ElementsAre(1));
  EXPECT_TRUE(mtp->taps_final_hidden);
}

TEST(DraftDescription, the_configured_kind_must_be_the_checkpoints) {
  EXPECT_THAT(describe(DraftKind::kDflash, "dflash2").status().message(),
              HasSubstr("which is a dflash2 draft; set draft.kind: dflash2"));
  EXPECT_THAT(describe(DraftKind::kDflash2, "dspark_rnn").status().message(),
              HasSubstr("which is a dspark draft; set draft.kind: dspark"));
  EXPECT_EQ(describe(DraftKind::kDflash, "mtp_glm", "draft/mtp_glm").status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(DraftDescription, the_target_must_be_the_one_it_was_made_for) {
  const absl::Status status = describe(DraftKind::kDflash, "dflash_full", "draft/mtp_glm").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("num_target_layers is 6, the target's is 3"),
                                      HasSubstr("the draft taps layer 2 of a target of 3 layers"),
                                      HasSubstr("the draft taps layer 4")));
}

absl::StatusOr<std::vector<float>> temperatures_of(const std::string& json) {
  const std::string file = testing::TempDir() + "/temperatures.json";
  std::ofstream(file) << json;
  return read_confidence_temperatures(file, 3);
}

TEST(ConfidenceTemperatures, are_an_array_of_positive_numbers_of_at_most_a_block) {
  EXPECT_THAT(temperatures_of("[1.5, 2, 0.25]").value(), ElementsAre(1.5f, 2.0f, 0.25f));
  EXPECT_THAT(temperatures_of("[2]").value(), ElementsAre(2.0f));
  EXPECT_TRUE(read_confidence_temperatures("", 3).value().empty());
  for (const char* wrong : {"{}", "[1, 0]", "[-1]", "[\"1\"]", "[1, 1, 1, 1]", "[1", "[1e9]"}) {
    const auto read = temperatures_of(wrong);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(read.status().message()),
                AllOf(HasSubstr("temperatures.json"), HasSubstr("at most 3 positive numbers")));
  }
  EXPECT_EQ(read_confidence_temperatures("/no/such/file", 3).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace dhs
