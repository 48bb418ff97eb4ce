#include "model/mtp_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "checkpoint_files.h"
#include "model/weights.h"

namespace dhs {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kGlm[] = DHS_SOURCE_DIR "/tests/golden/draft/mtp_glm";  // layer 3 is the MTP's
constexpr char kDeepseek[] = DHS_SOURCE_DIR "/tests/golden/draft/mtp_dsv32";  // layer 2 is

// A checkpoint in memory, to be changed before it is written.
struct Files {
  std::string config;
  std::vector<BuiltTensor> tensors;

  explicit Files(const std::string& directory) {
    const auto checkpoint = Checkpoint::open(directory);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    config = checkpoint->config_json();
    for (std::string_view name : checkpoint->tensor_names()) {
      const TensorBytes tensor = *checkpoint->find(name);
      const char* data = reinterpret_cast<const char*>(tensor.data);
      tensors.push_back({std::string(name),
                         std::string(tensor.dtype_name),
                         {tensor.shape.begin(), tensor.shape.end()},
                         {data, data + tensor.bytes}});
    }
  }
  void replace_in_config(const std::string& from, const std::string& to) {
    const size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    config.replace(at, from.size(), to);
  }
  BuiltTensor& tensor(const std::string& name) {
    for (BuiltTensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    return tensors.front();
  }
  void remove(const std::string& part) {
    const size_t removed = std::erase_if(tensors, [&](const BuiltTensor& tensor) {
      return tensor.name.find(part) != std::string::npos;
    });
    EXPECT_GT(removed, 0u) << part;
  }
  // Under another name, a tensor that is there.
  void add_copy(const std::string& name, const std::string& of) {
    BuiltTensor copy = tensor(of);
    copy.name = name;
    tensors.push_back(std::move(copy));
  }
  void write(const TempDirectory& directory) const {
    directory.write("config.json", config);
    directory.write("model.safetensors", build_safetensors(tensors));
  }
};

class MtpFiles : public testing::Test {
 protected:
  // The layer behind its own trunk.
  absl::StatusOr<MtpWeights> load(const Files& files) {
    files.write(target_);
    return load_from("");
  }
  absl::StatusOr<MtpWeights> load(const Files& draft, const Files& target) {
    target.write(target_);
    draft.write(draft_);
    return load_from(draft_.path());
  }
  absl::Status error(const Files& files) { return load(files).status(); }

  TempDirectory target_, draft_;
  std::optional<MtpCheckpoint> opened_;

 private:
  absl::StatusOr<MtpWeights> load_from(const std::string& directory) {
    auto opened = open_mtp_checkpoint(directory, target_.path());
    if (!opened.ok()) return opened.status();
    opened_.emplace(*std::move(opened));
    return load_mtp_weights(opened_->checkpoint, opened_->config, opened_->target);
  }
};

TEST_F(MtpFiles, the_layer_is_one_more_with_an_index_group_of_its_own) {
  const auto weights = load(Files(kGlm));
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(opened_->config.num_layers, 4);
  EXPECT_EQ(opened_->config.index_groups.back(), (IndexGroup{.first_layer = 3, .num_layers = 1}));
  EXPECT_TRUE(opened_->config.mtp_shares_selection);
  EXPECT_TRUE(weights->layer.indexer.has_value());
  EXPECT_EQ(weights->projection.columns, 2 * opened_->config.hidden_dim);
  EXPECT_EQ(weights->projection.name, "model.layers.3.eh_proj.weight");
}

TEST_F(MtpFiles, without_a_head_of_its_own_it_has_the_targets) {
  Files files(kGlm);
  auto weights = load(files);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_FALSE(weights->head.has_value());
  // A copy is none of its own.
  files.add_copy("model.layers.3.shared_head.head.weight", "lm_head.weight");
  weights = load(files);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_FALSE(weights->head.has_value());
}

TEST_F(MtpFiles, a_head_of_its_own_is_taken) {
  Files files(kDeepseek);
  const auto weights = load(files);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ASSERT_TRUE(weights->head.has_value());
  EXPECT_EQ(weights->head->name, "model.layers.2.shared_head.head.weight");
  EXPECT_FALSE(opened_->config.mtp_shares_selection);
  files.tensor("model.layers.2.shared_head.head.weight").shape = {64, 256};
  EXPECT_THAT(error(files).message(), HasSubstr("shared_head.head.weight: has shape [64, 256]"));
}

TEST_F(MtpFiles, an_embedding_must_be_the_targets) {
  Files files(kDeepseek);  // it has a copy
  files.tensor("model.layers.2.embed_tokens.weight").bytes[9] ^= 1;
  EXPECT_THAT(error(files).message(),
              HasSubstr("embed_tokens.weight: differs from the target's embedding"));
  files.remove("layers.2.embed_tokens");
  EXPECT_TRUE(error(files).ok());
}

TEST_F(MtpFiles, may_be_a_directory_of_the_layer_alone) {
  Files draft(kGlm);
  for (const char* part : {"layers.0.", "layers.1.", "layers.2.", "embed_tokens", "lm_head"}) {
    draft.remove(part);
  }
  Files target(kGlm);
  target.remove("layers.3.");
  target.replace_in_config(R"("num_nextn_predict_layers": 1)", R"("num_nextn_predict_layers": 0)");
  EXPECT_TRUE(load(draft, target).ok()) << load(draft, target).status();
  EXPECT_THAT(load(target, target).status().message(),
              HasSubstr("num_nextn_predict_layers is 0; one MTP layer is supported"));
}

TEST_F(MtpFiles, config_must_announce_one_layer) {
  for (const char* number : {"0", "2"}) {
    Files files(kGlm);
    files.replace_in_config(R"("num_nextn_predict_layers": 1)",
                            absl::StrCat(R"("num_nextn_predict_layers": )", number));
    EXPECT_THAT(error(files).message(),
                HasSubstr(absl::StrCat("num_nextn_predict_layers is ", number)));
  }
}

TEST_F(MtpFiles, the_announced_layer_must_be_there) {
  Files files(kGlm);
  files.remove("layers.3.");
  EXPECT_THAT(error(files).message(), AllOf(HasSubstr("model.layers.3.eh_proj.weight is missing"),
                                            HasSubstr("let draft.path name one that has it")));
}

TEST_F(MtpFiles, the_layer_must_have_an_indexer) {
  Files files(kGlm);
  files.remove("layers.3.self_attn.indexer.");
  EXPECT_THAT(error(files).message(),
              AllOf(HasSubstr("model.layers.3.self_attn.indexer.wk.weight is missing"),
                    HasSubstr("without an indexer of its own is not supported")));
  Files part(kGlm);
  part.remove("layers.3.self_attn.indexer.wq_b.weight");
  EXPECT_THAT(error(part).message(), HasSubstr("indexer.wq_b.weight: is missing"));
}

TEST_F(MtpFiles, each_of_its_tensors_is_needed_and_known) {
  const Files whole(kGlm);
  for (const BuiltTensor& tensor : whole.tensors) {
    if (tensor.name.find("layers.3.") == std::string::npos) continue;
    SCOPED_TRACE(tensor.name);
    Files files = whole;
    files.remove(tensor.name);
    const absl::Status status = error(files);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(tensor.name));
  }
  Files files = whole;
  files.add_copy("model.layers.3.e_proj.weight", "model.layers.3.eh_proj.weight");
  EXPECT_THAT(error(files).message(),
              HasSubstr("model.layers.3.e_proj.weight: unexpected tensor of the MTP layer"));
}

TEST_F(MtpFiles, the_layer_must_be_this_targets) {
  const absl::Status status = load(Files(kDeepseek), Files(kGlm)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("the MTP layer's num_hidden_layers is 2, the target's is 3"),
                    HasSubstr("it was made for another target")));
  Files other(kGlm);
  other.replace_in_config(R"("index_topk": 64)", R"("index_topk": 32)");
  EXPECT_THAT(load(other, Files(kGlm)).status().message(),
              HasSubstr("the MTP layer's index_topk is 32, the target's is 64"));
}

// DSpark stages inside DeepSeek-V4 run as a block; run as a layer they would propose garbage.
TEST_F(MtpFiles, stages_of_dspark_are_no_mtp_layer) {
  Files files(kGlm);
  files.add_copy("mtp.0.main_proj.weight", "model.layers.3.eh_proj.weight");
  EXPECT_EQ(error(files).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(error(files).message(),
              AllOf(HasSubstr("mtp.0.main_proj.weight is a tensor of a DSpark stage"),
                    HasSubstr("draft.kind")));
  Files keys(kGlm);
  keys.replace_in_config(R"("num_nextn_predict_layers": 1)",
                         R"("num_nextn_predict_layers": 1, "dspark_block_size": 5)");
  EXPECT_THAT(error(keys).message(), HasSubstr("dspark_block_size: 5: unknown key"));
}

}  // namespace
}  // namespace dhs
