#include "model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint_files.h"

namespace dhs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kIndex[] = "model.safetensors.index.json";

class CheckpointDirectory : public testing::Test {
 protected:
  CheckpointDirectory() { directory_.write("config.json", "{\"a\": 1}"); }

  void write_shards() {
    directory_.write("s1.safetensors", build_safetensors({{"x", "U8", {2}, "ab"}}));
    directory_.write("s2.safetensors",
                     build_safetensors({{"a", "U8", {1}, "c"}, {"z", "U8", {1}, "d"}}));
  }
  void write_map(const std::string& map) {
    directory_.write(kIndex, "{\"metadata\":{},\"weight_map\":" + map + "}");
  }
  absl::StatusOr<Checkpoint> open() { return Checkpoint::open(directory_.path()); }
  std::string error() {
    const auto checkpoint = open();
    return checkpoint.ok() ? "" : std::string(checkpoint.status().message());
  }

  TempDirectory directory_;
};

TEST_F(CheckpointDirectory, reads_a_single_file) {
  directory_.write("model.safetensors", build_safetensors({{"w", "U8", {2}, "ab"}}));
  directory_.write("generation_config.json", "{}");
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->config_json(), "{\"a\": 1}");
  EXPECT_EQ(checkpoint->generation_config_json(), "{}");
  EXPECT_THAT(checkpoint->tensor_names(), ElementsAre("w"));
  EXPECT_EQ(checkpoint->find("w")->data[1], std::byte{'b'});
  EXPECT_FALSE(checkpoint->find("v").has_value());
}

TEST_F(CheckpointDirectory, joins_the_shards_of_an_index) {
  write_shards();
  write_map(R"({"z":"s2.safetensors","x":"s1.safetensors","a":"s2.safetensors"})");
  auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Checkpoint checkpoint = *std::move(opened);
  EXPECT_THAT(checkpoint.tensor_names(), ElementsAre("a", "x", "z"));
  EXPECT_EQ(checkpoint.find("a")->data[0], std::byte{'c'});
  EXPECT_EQ(checkpoint.find("x")->data[1], std::byte{'b'});
  EXPECT_EQ(checkpoint.find("z")->data[0], std::byte{'d'});
  EXPECT_EQ(checkpoint.generation_config_json(), "");
}

TEST_F(CheckpointDirectory, ignores_tensors_and_files_that_the_index_does_not_name) {
  write_shards();
  directory_.write("model.safetensors", "not even a tensor file");
  write_map(R"({"z":"s2.safetensors"})");
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->tensor_names(), ElementsAre("z"));
  EXPECT_FALSE(checkpoint->find("a").has_value());
}

TEST_F(CheckpointDirectory, names_the_tensor_that_is_not_in_its_shard) {
  write_shards();
  write_map(R"({"z":"s1.safetensors","x":"s1.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("s1.safetensors: tensor \"z\" is missing, although"));
}

TEST_F(CheckpointDirectory, names_the_missing_file) {
  EXPECT_THAT(error(), HasSubstr("holds neither model.safetensors nor"));
  EXPECT_EQ(open().status().code(), absl::StatusCode::kNotFound);
  write_map(R"({"z":"absent.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("absent.safetensors: cannot open: No such file"));
  EXPECT_EQ(open().status().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove(directory_.path() + "/config.json");
  EXPECT_THAT(error(), HasSubstr("config.json: cannot read: No such file"));
  EXPECT_EQ(open().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointDirectory, refuses_shards_outside_the_directory) {
  write_shards();
  for (const char* shard : {"/etc/passwd", "../s1.safetensors", "sub/s1.safetensors", "..", ".", "",
                            "s1\\\\s", "s1.safetensors\\u0000"}) {
    write_map(absl::StrCat("{\"x\":\"", shard, "\"}"));
    EXPECT_THAT(error(), HasSubstr("is not the plain name of a file beside it")) << shard;
    EXPECT_THAT(error(), HasSubstr("weight_map: tensor \"x\"")) << shard;
  }
}

TEST_F(CheckpointDirectory, refuses_a_malformed_index) {
  directory_.write(kIndex, "{");
  EXPECT_THAT(error(), HasSubstr("index.json: not JSON"));
  directory_.write(kIndex, "{}");
  EXPECT_THAT(error(), HasSubstr("weight_map is missing"));
  write_map("[]");
  EXPECT_THAT(error(), HasSubstr("weight_map is missing, empty or no object"));
  write_map("{\"x\":7}");
  EXPECT_THAT(error(), HasSubstr("tensor \"x\": 7 is not the plain name"));
  write_map(R"({"x":"s1.safetensors","x":"s2.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("duplicate key \"x\""));
}

TEST_F(CheckpointDirectory, refuses_a_config_beyond_its_limit) {
  directory_.write("config.json", std::string((16 << 20) + 1, ' '));
  EXPECT_THAT(error(), HasSubstr("config.json: has 16777217 bytes, the limit is 16777216"));
}

TEST_F(CheckpointDirectory, names_a_damaged_shard) {
  directory_.write("model.safetensors", "short");
  EXPECT_THAT(error(), HasSubstr("model.safetensors: has 5 bytes"));
}

}  // namespace
}  // namespace dhs
