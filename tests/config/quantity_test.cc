#include "src/config/quantity.h"

#include <gtest/gtest.h>

#include <limits>

#include "dhisparse/config.h"

namespace dhs {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string bytes_error(std::string_view text) {
  return std::string(parse_bytes(text).status().message());
}

std::string duration_error(std::string_view text) {
  return std::string(parse_duration(text).status().message());
}

TEST(Bytes, accept_every_unit) {
  EXPECT_EQ(*parse_bytes("0"), 0);
  EXPECT_EQ(*parse_bytes("4096"), 4096);
  EXPECT_EQ(*parse_bytes("7B"), 7);
  EXPECT_EQ(*parse_bytes("2KB"), 2000);
  EXPECT_EQ(*parse_bytes("2MB"), 2000000);
  EXPECT_EQ(*parse_bytes("2GB"), 2000000000);
  EXPECT_EQ(*parse_bytes("2TB"), 2000000000000);
  EXPECT_EQ(*parse_bytes("3KiB"), 3 * 1024);
  EXPECT_EQ(*parse_bytes("64MiB"), int64_t{64} << 20);
  EXPECT_EQ(*parse_bytes("160GiB"), int64_t{160} << 30);
  EXPECT_EQ(*parse_bytes("3TiB"), int64_t{3} << 40);
}

TEST(Bytes, accept_a_fraction_and_round_down) {
  EXPECT_EQ(*parse_bytes("1.5GiB"), int64_t{3} << 29);
  EXPECT_EQ(*parse_bytes("0.001KB"), 1);
  EXPECT_EQ(*parse_bytes("1.1KiB"), 1126);                // 1126.4
  EXPECT_EQ(*parse_bytes("0.999999TiB"), 1099510528264);  // 1099510528264.4
}

TEST(Bytes, stop_exactly_at_63_bits) {
  EXPECT_EQ(*parse_bytes("9223372036854775807"), kMax);
  EXPECT_EQ(*parse_bytes("8388607.999999TiB"), 9223372036853676296);
  for (const char* text : {"9223372036854775808", "8388608TiB", "9223372.1TB",
                           "9007199254740992KiB", "99999999999999999999999999999999"}) {
    EXPECT_NE(bytes_error(text).find("it does not fit in 63 bits"), std::string::npos) << text;
  }
}

TEST(Bytes, say_why_a_text_is_not_a_size) {
  const std::string remedy =
      "; write a number and B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 64MiB";
  EXPECT_EQ(bytes_error(""), "'' is not a size: it does not start with a digit" + remedy);
  EXPECT_EQ(bytes_error("-1"), "'-1' is not a size: it does not start with a digit" + remedy);
  EXPECT_EQ(bytes_error("MiB"), "'MiB' is not a size: it does not start with a digit" + remedy);
  EXPECT_EQ(bytes_error("010KiB"), "'010KiB' is not a size: it has a leading zero" + remedy);
  EXPECT_EQ(bytes_error("64M"), "'64M' is not a size: 'M' is not a unit" + remedy);
  EXPECT_EQ(bytes_error("64mib"), "'64mib' is not a size: 'mib' is not a unit" + remedy);
  EXPECT_EQ(bytes_error("64 MiB"), "'64 MiB' is not a size: ' MiB' is not a unit" + remedy);
  EXPECT_EQ(bytes_error("1.5"),
            "'1.5' is not a size: it is a fraction of the smallest unit" + remedy);
  EXPECT_EQ(bytes_error("1.5B"),
            "'1.5B' is not a size: it is a fraction of the smallest unit" + remedy);
  EXPECT_EQ(bytes_error("1.GiB"),
            "'1.GiB' is not a size: it has 0 digits after the point, 1 to 6 are read" + remedy);
  EXPECT_EQ(
      bytes_error("1.0000000GiB"),
      "'1.0000000GiB' is not a size: it has 7 digits after the point, 1 to 6 are read" + remedy);
}

TEST(Bytes, print_as_the_shortest_exact_text) {
  EXPECT_EQ(format_bytes(0), "0");
  EXPECT_EQ(format_bytes(1000), "1000");
  EXPECT_EQ(format_bytes(1024), "1KiB");
  EXPECT_EQ(format_bytes(1536), "1536");
  EXPECT_EQ(format_bytes(int64_t{3} << 29), "1536MiB");
  EXPECT_EQ(format_bytes(int64_t{2} << 40), "2TiB");
  EXPECT_EQ(format_bytes(kMax), "9223372036854775807");
}

TEST(Bytes, survive_printing_and_parsing) {
  for (int64_t bytes = 1; bytes < kMax / 3; bytes = bytes * 3 - (bytes % 2)) {
    EXPECT_EQ(*parse_bytes(format_bytes(bytes)), bytes);
    EXPECT_EQ(*parse_bytes(format_bytes(bytes / 1024 * 1024)), bytes / 1024 * 1024);
  }
}

TEST(Duration, accepts_every_unit) {
  EXPECT_EQ(*parse_duration("250us"), absl::Microseconds(250));
  EXPECT_EQ(*parse_duration("25ms"), absl::Milliseconds(25));
  EXPECT_EQ(*parse_duration("30s"), absl::Seconds(30));
  EXPECT_EQ(*parse_duration("2m"), absl::Minutes(2));
  EXPECT_EQ(*parse_duration("1.5h"), absl::Minutes(90));
  EXPECT_EQ(*parse_duration("0s"), absl::ZeroDuration());
  EXPECT_EQ(*parse_duration("inf"), absl::InfiniteDuration());
}

TEST(Duration, says_why_a_text_is_not_one) {
  const std::string remedy = "; write a number and us, ms, s, m or h, such as 30s, or inf";
  EXPECT_EQ(duration_error("30"), "'30' is not a duration: it has no unit" + remedy);
  EXPECT_EQ(duration_error("-5s"),
            "'-5s' is not a duration: it does not start with a digit" + remedy);
  EXPECT_EQ(duration_error("-inf"),
            "'-inf' is not a duration: it does not start with a digit" + remedy);
  EXPECT_EQ(duration_error("5 s"), "'5 s' is not a duration: ' s' is not a unit" + remedy);
  EXPECT_EQ(duration_error("1h30m"), "'1h30m' is not a duration: 'h30m' is not a unit" + remedy);
  EXPECT_EQ(duration_error("5d"), "'5d' is not a duration: 'd' is not a unit" + remedy);
  EXPECT_EQ(duration_error("9999999999999h"),
            "'9999999999999h' is not a duration: it does not fit in 63 bits" + remedy);
}

TEST(Duration, prints_in_the_largest_exact_unit) {
  EXPECT_EQ(format_duration(absl::ZeroDuration()), "0s");
  EXPECT_EQ(format_duration(absl::Microseconds(1)), "1us");
  EXPECT_EQ(format_duration(absl::Milliseconds(1500)), "1500ms");
  EXPECT_EQ(format_duration(absl::Seconds(120)), "2m");
  EXPECT_EQ(format_duration(absl::Hours(24)), "24h");
  EXPECT_EQ(format_duration(absl::InfiniteDuration()), "inf");
}

}  // namespace
}  // namespace dhs
