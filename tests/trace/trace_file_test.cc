#include "dhisparse/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "trace/crc32.h"
#include "trace/trace_codec.h"

namespace dhs {
namespace {

using testing::HasSubstr;

// A file of its own for every test.
class TraceFile : public testing::Test {
 protected:
  TraceFile()
      : path_(std::filesystem::temp_directory_path() /
              absl::StrCat("dhisparse_trace_", ::getpid(), "_",
                           testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~TraceFile() override { std::filesystem::remove(path_); }

  void write_trace(TraceShape shape, const std::vector<TracedSelection>& selections) {
    absl::StatusOr<TraceWriter> writer = TraceWriter::create(path_, shape);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const TracedSelection& selection : selections) {
      const absl::Status status = writer->append(selection);
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_TRUE(writer->close().ok());
  }

  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void replace_bytes(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  // What reading the whole file says; OK when there was nothing to say.
  absl::Status read_all(std::vector<TracedSelection>* selections = nullptr) {
    absl::StatusOr<TraceReader> reader = TraceReader::open(path_);
    if (!reader.ok()) return reader.status();
    while (true) {
      TracedSelection selection;
      const absl::StatusOr<bool> more = reader->next(selection);
      if (!more.ok()) return more.status();
      if (!*more) return absl::OkStatus();
      if (selections != nullptr) selections->push_back(selection);
    }
  }
  std::string damage() { return std::string(read_all().message()); }

  const std::string path_;
};

bool operator==(const TracedSelection& a, const TracedSelection& b) {
  return a.request == b.request && a.step == b.step && a.group == b.group && a.query == b.query &&
         a.positions == b.positions;
}

TracedSelection random_selection(TraceShape shape, std::mt19937_64& random) {
  TracedSelection selection;
  selection.request = RequestId(random() >> (random() % 64));
  selection.step = random() >> (random() % 64);
  selection.group = static_cast<int32_t>(random() % shape.num_groups);
  selection.query = static_cast<Position>((random() & INT32_MAX) >> (random() % 31));
  const auto wanted = static_cast<int64_t>(random() % (shape.top_k + 1));
  int64_t position = -1;
  while (std::ssize(selection.positions) < wanted) {
    position += 1 + static_cast<int64_t>((random() & 0xffffff) >> (random() % 25));
    if (position > selection.query) break;
    selection.positions.push_back(static_cast<Position>(position));
  }
  return selection;
}

TEST_F(TraceFile, gives_back_what_was_written) {
  std::mt19937_64 random(1);
  for (const TraceShape shape : {TraceShape{1, 1}, {3, 17}, {78, 2048}}) {
    std::vector<TracedSelection> written;
    for (int i = 0; i < 200; ++i) written.push_back(random_selection(shape, random));
    TracedSelection extreme = {RequestId(UINT64_MAX), UINT64_MAX, shape.num_groups - 1, INT32_MAX};
    extreme.positions = {INT32_MAX};
    written.push_back(extreme);
    write_trace(shape, written);
    std::vector<TracedSelection> read;
    const absl::Status status = read_all(&read);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(read.size(), written.size());
    for (size_t i = 0; i < read.size(); ++i) EXPECT_TRUE(read[i] == written[i]) << i;
    absl::StatusOr<TraceReader> reader = TraceReader::open(path_);
    EXPECT_EQ(reader->shape().num_groups, shape.num_groups);
    EXPECT_EQ(reader->shape().top_k, shape.top_k);
  }
}

TEST_F(TraceFile, a_trace_of_nothing_is_a_header) {
  write_trace({2, 4}, {});
  EXPECT_EQ(bytes().size(), trace::kHeaderBytes);
  EXPECT_TRUE(read_all().ok());
}

TEST_F(TraceFile, the_bytes_are_the_documented_ones) {
  write_trace({2, 4}, {{RequestId(5), 300, 1, 1000, {0, 1, 7, 1000}}});
  const std::string head("DHSTRACE\x01\x00\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00", 20);
  const std::string frame("\x0c\x00\x00\x00\x05\xac\x02\x01\xe8\x07\x04\x00\x00\x05\xe0\x07", 16);
  const std::string all = bytes();
  ASSERT_EQ(all.size(), 24u + 20u);
  EXPECT_EQ(all.substr(0, 20), head);
  EXPECT_EQ(trace::read_u32(all.substr(20)), trace::crc32(head));
  EXPECT_EQ(all.substr(24, 16), frame);
  EXPECT_EQ(trace::read_u32(all.substr(40)), trace::crc32(frame));
  EXPECT_EQ(trace::crc32("123456789"), 0xcbf43926u);
}

TEST_F(TraceFile, the_writer_refuses_what_breaks_the_contract) {
  absl::StatusOr<TraceWriter> writer = TraceWriter::create(path_, {2, 3});
  ASSERT_TRUE(writer.ok());
  const auto message = [&](const TracedSelection& selection) {
    return std::string(writer->append(selection).message());
  };
  EXPECT_THAT(message({RequestId(1), 0, 2, 9, {}}), HasSubstr("group is 2, the trace has 2"));
  EXPECT_THAT(message({RequestId(1), 0, 0, -1, {}}), HasSubstr("query is -1"));
  EXPECT_THAT(message({RequestId(1), 0, 0, 9, {1, 2, 3, 4}}), HasSubstr("4 positions"));
  EXPECT_THAT(message({RequestId(1), 0, 0, 9, {3, 3}}), HasSubstr("position 3 after 3"));
  EXPECT_THAT(message({RequestId(1), 0, 0, 9, {-1}}), HasSubstr("position -1"));
  EXPECT_THAT(message({RequestId(1), 0, 0, 9, {10}}), HasSubstr("end at the query row's, 9"));
  EXPECT_FALSE(TraceWriter::create(path_, {0, 3}).ok());
  EXPECT_FALSE(TraceWriter::create(path_, {1, 0}).ok());
}

TEST_F(TraceFile, a_file_that_cannot_be_opened_is_named) {
  const absl::Status status = TraceReader::open(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  EXPECT_FALSE(TraceWriter::create(path_ + "/no/such/folder", {1, 1}).ok());
}

// ---- Damage -------------------------------------------------------------------------------------

constexpr TraceShape kShape = {2, 4};
constexpr size_t kSecond = trace::kHeaderBytes + 20;  // where the second selection begins

// Two selections of 20 bytes each.
std::vector<TracedSelection> two_selections() {
  return {{RequestId(5), 300, 1, 1000, {0, 1, 7, 1000}},
          {RequestId(6), 301, 0, 1001, {2, 3, 4, 999}}};
}

// A whole frame around any payload, with a checksum that fits.
std::string sealed(const std::string& payload) {
  std::string frame(4, '\0');
  frame[0] = static_cast<char>(payload.size());
  frame += payload;
  const uint32_t crc = trace::crc32(frame);
  for (int i = 0; i < 4; ++i) frame.push_back(static_cast<char>(crc >> (8 * i)));
  return frame;
}

TEST_F(TraceFile, every_flipped_bit_is_found) {
  write_trace(kShape, two_selections());
  const std::string good = bytes();
  ASSERT_EQ(good.size(), kSecond + 20);
  for (size_t i = 0; i < good.size() * 8; ++i) {
    std::string bad = good;
    bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << (i % 8)));
    replace_bytes(bad);
    EXPECT_FALSE(read_all().ok()) << "bit " << i;
  }
}

TEST_F(TraceFile, a_file_cut_short_keeps_what_lies_before_the_cut) {
  write_trace(kShape, two_selections());
  const std::string good = bytes();
  for (size_t size = 0; size < good.size(); ++size) {
    replace_bytes(good.substr(0, size));
    std::vector<TracedSelection> read;
    const absl::Status status = read_all(&read);
    const bool is_between = size == trace::kHeaderBytes || size == kSecond;
    EXPECT_EQ(status.ok(), is_between) << size;
    EXPECT_EQ(read.size(), size >= kSecond ? 1u : 0u) << size;
  }
}

TEST_F(TraceFile, says_where_the_damage_begins_and_what_to_do) {
  write_trace(kShape, two_selections());
  std::string bad = bytes();
  bad[kSecond + 7] ^= 1;
  replace_bytes(bad);
  const std::string message = damage();
  EXPECT_THAT(message, HasSubstr(absl::StrCat(path_, ": the selection at byte 44 is damaged")));
  EXPECT_THAT(message, HasSubstr("does not fit its checksum"));
  EXPECT_THAT(message, HasSubstr(absl::StrCat("'truncate -s 44 ", path_, "'")));
  replace_bytes(bad.substr(0, 44));
  EXPECT_TRUE(read_all().ok());
}

TEST_F(TraceFile, damage_of_every_header_field_is_named) {
  write_trace(kShape, two_selections());
  const std::string good = bytes();
  // The header with four bytes replaced and a checksum that fits.
  const auto with = [&](size_t at, const std::string& value) {
    std::string bad = good;
    bad.replace(at, value.size(), value);
    const uint32_t crc = trace::crc32(bad.substr(0, 20));
    for (int i = 0; i < 4; ++i) bad[20 + i] = static_cast<char>(crc >> (8 * i));
    replace_bytes(bad);
    return damage();
  };
  EXPECT_THAT(with(0, "DHSTRACK"), HasSubstr("does not begin with DHSTRACE"));
  EXPECT_THAT(with(8, std::string("\x02", 1)), HasSubstr("format version 2, this program reads 1"));
  EXPECT_THAT(with(12, std::string(4, '\0')), HasSubstr("num_groups is 0"));
  EXPECT_THAT(with(12, "\xff\xff\xff\xff"), HasSubstr("num_groups"));
  EXPECT_THAT(with(16, std::string(4, '\0')), HasSubstr("top_k is 0"));
  std::string bad = good;
  bad[21] ^= 1;
  replace_bytes(bad);
  EXPECT_THAT(damage(), HasSubstr("header does not fit its checksum"));
  replace_bytes(good.substr(0, 23));
  EXPECT_THAT(damage(), HasSubstr("it has 23 bytes, a header has 24"));
}

TEST_F(TraceFile, damage_of_every_field_of_a_selection_is_named) {
  write_trace(kShape, two_selections());
  const std::string before = bytes().substr(0, kSecond);
  const auto with = [&](const std::string& frame) {
    replace_bytes(before + frame);
    return damage();
  };
  const std::string overlong(10, '\xff');
  EXPECT_THAT(with("\x0c"), HasSubstr("ends within its length"));
  EXPECT_THAT(with("\xff\xff\xff\x7f"),
              HasSubstr("its length is 2147483647 bytes, the limit is 90"));
  EXPECT_THAT(with(sealed("\x06\x01").substr(0, 9)), HasSubstr("the file ends 1 bytes too early"));
  EXPECT_THAT(with(sealed("")), HasSubstr("its head ends early"));
  EXPECT_THAT(with(sealed(overlong)), HasSubstr("its head ends early"));           // request
  EXPECT_THAT(with(sealed("\x06" + overlong)), HasSubstr("its head ends early"));  // step
  EXPECT_THAT(with(sealed("\x06\x01\x02\x09\x01\x01")), HasSubstr("group is 2, the file has 2"));
  EXPECT_THAT(with(sealed("\x06\x01\x01\x80\x80\x80\x80\x08\x01\x01")),
              HasSubstr("query is 2147483648"));
  EXPECT_THAT(with(sealed("\x06\x01\x01\x09\x05\x01")),
              HasSubstr("it has 5 positions, top_k is 4"));
  EXPECT_THAT(with(sealed("\x06\x01\x01\x09\x02\x01")), HasSubstr("ends within position 1 of 2"));
  EXPECT_THAT(with(sealed("\x06\x01\x01\x09\x02\x01\x08")),
              HasSubstr("position 1 lies behind the query row's, 9"));
  EXPECT_THAT(with(sealed("\x06\x01\x01\x09\x01\x01\x01")),
              HasSubstr("1 bytes follow its last position"));
}

}  // namespace
}  // namespace dhs
