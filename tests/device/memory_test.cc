#include <gtest/gtest.h>

#include <vector>

#include "dhisparse/device.h"

namespace dhs {
namespace {

// Ranges over borrowed bytes that count how often each is released.
class Lender {
 public:
  MemoryRange lend(int64_t bytes) {
    return MemoryRange(bytes_.data(), bytes, [this](std::byte* data, int64_t released) {
      EXPECT_EQ(data, bytes_.data());
      released_.push_back(released);
    });
  }
  const std::vector<int64_t>& released() const { return released_; }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64);
  std::vector<int64_t> released_;
};

TEST(MemoryRange, releases_what_it_owns_once_however_often_it_moves) {
  Lender lender;
  {
    MemoryRange first = lender.lend(16);
    MemoryRange second = std::move(first);
    MemoryRange third;
    third = std::move(second);
    EXPECT_EQ(third.bytes(), 16);
    EXPECT_EQ(third.as<int32_t>(), reinterpret_cast<int32_t*>(third.data()));
    EXPECT_TRUE(lender.released().empty());
  }
  EXPECT_EQ(lender.released(), std::vector<int64_t>{16});
}

TEST(MemoryRange, assignment_releases_both_sides_in_the_end) {
  Lender lender;
  {
    MemoryRange kept = lender.lend(1);
    kept = lender.lend(2);
    EXPECT_EQ(kept.bytes(), 2);
  }
  EXPECT_EQ(lender.released(), (std::vector<int64_t>{1, 2}));
}

TEST(MemoryRange, an_empty_range_releases_nothing) {
  const MemoryRange empty;
  EXPECT_EQ(empty.data(), nullptr);
  EXPECT_EQ(empty.bytes(), 0);
}

TEST(ArenaCarver, measures_without_memory_and_places_the_same_layout) {
  ArenaCarver measure(nullptr);
  EXPECT_EQ(measure.take<int32_t>(3).data, nullptr);
  EXPECT_EQ(measure.bytes(), 64);
  EXPECT_EQ(measure.take<double>(9).sizes[0], 9);
  EXPECT_EQ(measure.bytes(), 192);
  measure.take<char>(0);
  EXPECT_EQ(measure.bytes(), 192);
}

TEST(Carve, arrays_are_aligned_disjoint_and_inside_the_range) {
  const auto device = *open_device({.backend = BackendKind::kCpu, .num_threads = 1});
  TensorView<std::byte, 1> bytes;
  TensorView<int32_t, 1> integers;
  TensorView<double, 1> numbers;
  const auto range = carve(*device, [&](ArenaCarver& carver) {
    bytes = carver.take<std::byte>(65);
    integers = carver.take<int32_t>(7);
    numbers = carver.take<double>(8);
  });
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->bytes(), 128 + 64 + 64);
  EXPECT_EQ(bytes.data, range->data());
  EXPECT_EQ(reinterpret_cast<std::byte*>(integers.data), range->data() + 128);
  EXPECT_EQ(reinterpret_cast<std::byte*>(numbers.data), range->data() + 192);
  EXPECT_EQ(bytes.sizes[0], 65);
  EXPECT_EQ(integers.sizes[0], 7);
  EXPECT_EQ(numbers.sizes[0], 8);
}

TEST(Carve, passes_the_devices_refusal_on) {
  const auto device = *open_device({.backend = BackendKind::kCpu, .num_threads = 1});
  const auto range =
      carve(*device, [](ArenaCarver& carver) { carver.take<double>(int64_t{1} << 57); });
  EXPECT_EQ(range.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace dhs
