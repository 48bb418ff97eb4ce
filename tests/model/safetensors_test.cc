#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "checkpoint_files.h"

namespace dhs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return absl::StrCat("{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":", offsets,
                      "}");
}

class Safetensors : public testing::Test {
 protected:
  absl::StatusOr<SafetensorsFile> open(const std::string& bytes) {
    return SafetensorsFile::open(directory_.write("t.safetensors", bytes));
  }
  std::string error_of(const std::string& header, size_t data_bytes) {
    const auto file = open(safetensors_file(header, std::string(data_bytes, '\1')));
    if (file.ok()) return "";
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(file.status().message(), HasSubstr("t.safetensors: "));
    return std::string(file.status().message());
  }
  // Of one tensor called "w".
  std::string error_of_tensor(const std::string& value, size_t data_bytes) {
    return error_of("{\"w\":" + value + "}", data_bytes);
  }

  TempDirectory directory_;
};

TEST_F(Safetensors, finds_tensors_by_name_with_their_bytes) {
  const std::vector<float> values = {1.5f, -2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
  const auto file = open(build_safetensors({{"z", "F32", {2, 3}, bytes_of(values)},
                                            {"a", "U8", {3}, "xyz"},
                                            {"scalar", "BF16", {}, "\x80\x3f"},
                                            {"empty", "I64", {4, 0}, ""}}));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->names(), ElementsAre("a", "empty", "scalar", "z"));
  const auto z = file->find("z");
  ASSERT_TRUE(z.has_value());
  EXPECT_EQ(z->dtype, DType::kF32);
  EXPECT_THAT(z->shape, ElementsAre(2, 3));
  ASSERT_EQ(z->bytes, 24);
  EXPECT_EQ(std::memcmp(z->data, values.data(), 24), 0);
  EXPECT_EQ(file->find("a")->data[2], std::byte{'z'});
  EXPECT_EQ(file->find("scalar")->bytes, 2);
  EXPECT_TRUE(file->find("scalar")->shape.empty());
  EXPECT_EQ(file->find("empty")->bytes, 0);
  EXPECT_FALSE(file->find("absent").has_value());
  EXPECT_EQ(file->metadata("format"), "pt");
  EXPECT_FALSE(file->metadata("absent").has_value());
}

TEST_F(Safetensors, views_survive_a_move_of_the_file) {
  auto file = open(build_safetensors({{"w", "U8", {2}, "ab"}}));
  ASSERT_TRUE(file.ok());
  const TensorBytes view = *file->find("w");
  const SafetensorsFile moved = *std::move(file);
  EXPECT_EQ(moved.find("w")->data, view.data);
  EXPECT_EQ(view.data[1], std::byte{'b'});
  EXPECT_EQ(view.dtype_name, "U8");
  EXPECT_THAT(view.shape, ElementsAre(2));
}

TEST_F(Safetensors, accepts_a_file_without_tensors_and_a_padded_header) {
  EXPECT_EQ(error_of("{}", 0), "");
  EXPECT_EQ(error_of("{\"w\":" + entry("U8", "[1]", "[0,1]") + "}     ", 1), "");
}

TEST_F(Safetensors, opens_a_dtype_it_cannot_decode_and_says_so_on_use) {
  const auto file = open(build_safetensors({{"half", "F16", {2}, "abcd"},
                                            {"new", "F7_NEW", {3}, "abc"},
                                            {"four", "F4", {2, 3}, "abc"}}));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(file->find("half")->dtype.has_value());
  EXPECT_EQ(file->find("new")->dtype_name, "F7_NEW");
  EXPECT_FALSE(file->find("four")->dtype.has_value());
}

TEST_F(Safetensors, refuses_a_file_that_is_not_there_or_not_a_file) {
  const auto absent = SafetensorsFile::open(directory_.path() + "/absent");
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(absent.status().message(), HasSubstr("absent: cannot open: No such file"));
  const auto folder = SafetensorsFile::open(directory_.path());
  EXPECT_THAT(folder.status().message(), HasSubstr("not a regular file"));
}

TEST_F(Safetensors, refuses_a_header_size_beyond_the_file_or_the_limit) {
  EXPECT_THAT(open("").status().message(), HasSubstr("has 0 bytes, fewer than the 8"));
  EXPECT_THAT(open("1234567").status().message(), HasSubstr("has 7 bytes"));
  EXPECT_THAT(open(std::string("\x05\0\0\0\0\0\0\0{}", 10)).status().message(),
              HasSubstr("header of 5 bytes, but only 2 follow; the file is truncated"));
  EXPECT_THAT(open(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)).status().message(),
              HasSubstr("header of 18446744073709551615 bytes, the limit is 100000000"));
  EXPECT_THAT(open(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)).status().message(),
              HasSubstr("header of 100000001 bytes, the limit is 100000000"));
}

TEST_F(Safetensors, refuses_a_header_that_is_not_an_object_of_objects) {
  EXPECT_THAT(error_of("", 0), HasSubstr("header: not JSON"));
  EXPECT_THAT(error_of("{\"w\":", 0), HasSubstr("header: not JSON"));
  EXPECT_THAT(error_of("[]", 0), HasSubstr("header is an array, not an object"));
  EXPECT_THAT(error_of_tensor("3", 0), HasSubstr("tensor \"w\": is an integer, not an object"));
  const std::string one = entry("U8", "[1]", "[0,1]");
  EXPECT_THAT(error_of("{\"w\":" + one + ",\"w\":" + one + "}", 1),
              HasSubstr("duplicate key \"w\""));
}

TEST_F(Safetensors, refuses_metadata_that_is_not_strings) {
  EXPECT_THAT(error_of(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__ is an array"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"format":1}})", 0),
              HasSubstr("__metadata__: \"format\" is an integer, not a string"));
}

TEST_F(Safetensors, refuses_missing_and_unknown_fields) {
  EXPECT_THAT(error_of_tensor(R"({"shape":[1],"data_offsets":[0,1]})", 1),
              HasSubstr("dtype is missing or no string"));
  EXPECT_THAT(error_of_tensor(R"({"dtype":7,"shape":[1],"data_offsets":[0,1]})", 1),
              HasSubstr("dtype is missing or no string"));
  EXPECT_THAT(error_of_tensor(R"({"dtype":"U8","data_offsets":[0,1]})", 1),
              HasSubstr("shape is missing or no array"));
  EXPECT_THAT(error_of_tensor(R"({"dtype":"U8","shape":[1]})", 1),
              HasSubstr("data_offsets is missing"));
  EXPECT_THAT(
      error_of_tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]})", 1),
      HasSubstr("unknown field \"strides\""));
}

TEST_F(Safetensors, refuses_a_shape_that_is_negative_fractional_or_overflows) {
  EXPECT_THAT(error_of_tensor(entry("U8", "[-1]", "[0,1]"), 1),
              HasSubstr("tensor \"w\": shape [-1]: sizes must be integers >= 0"));
  EXPECT_THAT(error_of_tensor(entry("U8", "[1.0]", "[0,1]"), 1), HasSubstr("integers >= 0"));
  EXPECT_THAT(error_of_tensor(entry("U8", "[\"1\"]", "[0,1]"), 1), HasSubstr("integers >= 0"));
  EXPECT_THAT(error_of_tensor(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0),
              HasSubstr("overflows"));
  EXPECT_THAT(error_of_tensor(entry("F32", "[4611686018427387904]", "[0,0]"), 0),
              HasSubstr("overflows"));
}

TEST_F(Safetensors, refuses_offsets_that_are_no_range_of_the_data) {
  for (const char* offsets : {"[0]", "[0,1,2]", "[0,1.0]", "[0,\"1\"]", "{}", "null"}) {
    EXPECT_THAT(error_of_tensor(entry("U8", "[1]", offsets), 1), HasSubstr("not [begin, end]"))
        << offsets;
  }
  EXPECT_THAT(error_of_tensor(entry("U8", "[1]", "[-1,0]"), 1),
              HasSubstr("data_offsets [-1, 0): needs 0 <= begin <= end"));
  EXPECT_THAT(error_of_tensor(entry("U8", "[1]", "[1,0]"), 1), HasSubstr("0 <= begin <= end"));
  EXPECT_THAT(error_of_tensor(entry("U8", "[4]", "[0,4]"), 3),
              HasSubstr("[0, 4) go beyond the 3 bytes of data"));
  EXPECT_THAT(error_of_tensor(entry("U8", "[4]", "[0,9223372036854775807]"), 3),
              HasSubstr("go beyond"));
}

TEST_F(Safetensors, refuses_a_size_that_is_not_shape_times_dtype) {
  EXPECT_THAT(error_of_tensor(entry("F32", "[2,3]", "[0,23]"), 23),
              HasSubstr("dtype and shape need 24 bytes, data_offsets give 23"));
  EXPECT_THAT(error_of_tensor(entry("F16", "[2]", "[0,2]"), 2), HasSubstr("need 4 bytes"));
  EXPECT_THAT(error_of_tensor(entry("F4", "[3]", "[0,1]"), 1), HasSubstr("need 1 bytes"));
}

TEST_F(Safetensors, refuses_overlaps_holes_and_data_of_no_tensor) {
  const auto pair_header = [](const std::string& a, const std::string& b) {
    return "{\"a\":" + a + ",\"b\":" + b + "}";
  };
  EXPECT_THAT(error_of(pair_header(entry("U8", "[4]", "[0,4]"), entry("U8", "[4]", "[3,7]")), 7),
              HasSubstr("tensor \"b\" begins at 3 and overlaps another one that ends at 4"));
  EXPECT_THAT(error_of(pair_header(entry("U8", "[4]", "[0,4]"), entry("U8", "[2]", "[5,7]")), 7),
              HasSubstr("tensor \"b\" begins at 5, which leaves a hole after 4"));
  EXPECT_THAT(error_of(pair_header(entry("U8", "[2]", "[5,7]"), entry("U8", "[4]", "[1,5]")), 7),
              HasSubstr("tensor \"b\" begins at 1, which leaves a hole after 0"));
  EXPECT_THAT(error_of_tensor(entry("U8", "[4]", "[0,4]"), 6),
              HasSubstr("the tensors cover 4 of 6 bytes of data"));
}

// ---- Fuzz: whatever the bytes, an answer; and an accepted file names only bytes it has. ---------

int64_t sum_of_all_bytes(const SafetensorsFile& file, int64_t file_bytes) {
  int64_t sum = 0;
  int64_t covered = 0;
  for (std::string_view name : file.names()) {
    const TensorBytes tensor = *file.find(name);
    for (int64_t i = 0; i < tensor.bytes; ++i) sum += std::to_integer<int>(tensor.data[i]);
    covered += tensor.bytes;
  }
  EXPECT_LE(covered, file_bytes);
  return sum;
}

std::string mutate(std::string bytes, std::mt19937& random) {
  const size_t at = random() % bytes.size();
  switch (random() % 5) {
    case 0:
      bytes.resize(at);
      break;
    case 1:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
      break;
    case 2:
      bytes[at] = static_cast<char>(random());
      break;
    case 3:
      bytes.insert(at, 1 + random() % 4, "0123456789{}[],\":-.e"[random() % 20]);
      break;
    default:
      bytes.erase(at, 1 + random() % 4);
  }
  return bytes;
}

TEST_F(Safetensors, survives_random_damage) {
  const std::string intact = build_safetensors({{"a", "F32", {2}, "abcdefgh"},
                                                {"model.layers.0.q", "BF16", {1, 2}, "ijkl"},
                                                {"c", "F8_E4M3", {3}, "mno"}});
  std::mt19937 random(17);
  int num_accepted = 0;
  int num_refused = 0;
  for (int i = 0; i < 2500; ++i) {
    std::string bytes = mutate(intact, random);
    if (i % 3 == 0 && !bytes.empty()) bytes = mutate(bytes, random);
    const auto file = open(bytes);
    if (file.ok()) {
      ++num_accepted;
      EXPECT_GE(sum_of_all_bytes(*file, static_cast<int64_t>(bytes.size())), 0);
    } else {
      ++num_refused;
      EXPECT_THAT(file.status().message(), HasSubstr("t.safetensors: "));
    }
  }
  // Both happen often: damage to the data cannot be seen, damage to the structure must be.
  EXPECT_GT(num_accepted, 50);
  EXPECT_GT(num_refused, 1000);
}

TEST_F(Safetensors, refuses_every_truncation) {
  const std::string intact = build_safetensors({{"a", "F32", {2}, "abcdefgh"}});
  ASSERT_TRUE(open(intact).ok());
  for (size_t size = 0; size < intact.size(); ++size) {
    EXPECT_FALSE(open(intact.substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace dhs
