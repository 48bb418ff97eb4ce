#include <absl/container/flat_hash_map.h>
#include <gtest/gtest.h>

#include <limits>
#include <type_traits>

#include "dhisparse/base.h"

namespace dhs {
namespace {

TEST(StrongId, one_kind_is_not_another_nor_a_plain_integer) {
  static_assert(!std::is_convertible_v<HostBlockId, ChunkId>);
  static_assert(!std::is_constructible_v<HostBlockId, ChunkId>);
  static_assert(!std::is_convertible_v<int32_t, HostBlockId>);
  static_assert(!std::is_convertible_v<HostBlockId, int32_t>);
  static_assert(std::is_trivially_copyable_v<RequestId>);
  static_assert(sizeof(HostBlockId) == sizeof(int32_t));
  EXPECT_EQ(HostBlockId().value, 0);
  EXPECT_EQ(HostBlockId(7).value, 7);
}

TEST(StrongId, compares_as_its_value_does) {
  EXPECT_EQ(ChunkId(3), ChunkId(3));
  EXPECT_NE(ChunkId(3), ChunkId(4));
  EXPECT_LT(ChunkId(-1), ChunkId(0));
  EXPECT_GT(RequestId(std::numeric_limits<uint64_t>::max()), RequestId(1));
}

TEST(StrongId, is_a_key_of_a_hash_map) {
  absl::flat_hash_map<RequestId, int> squares;
  for (uint64_t i = 0; i < 1000; ++i) squares[RequestId(i)] = static_cast<int>(i * i);
  EXPECT_EQ(squares.size(), 1000u);
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(squares.at(RequestId(i)), static_cast<int>(i * i));
  EXPECT_FALSE(squares.contains(RequestId(1000)));
}

TEST(Rounding, ceil_div_and_round_up_reach_the_next_multiple_and_no_further) {
  for (int64_t multiple : {1, 2, 3, 7, 64}) {
    for (int64_t value = 0; value < 200; ++value) {
      const int64_t up = round_up(value, multiple);
      EXPECT_EQ(up % multiple, 0);
      EXPECT_GE(up, value);
      EXPECT_LT(up, value + multiple);
      EXPECT_EQ(ceil_div(value, multiple) * multiple, up);
    }
  }
}

}  // namespace
}  // namespace dhs
