#include <absl/time/clock.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "dhisparse/device.h"

namespace dhs {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

constexpr int64_t kAbsurdBytes = int64_t{1} << 60;

std::unique_ptr<Device> open_cpu() {
  auto device = open_device({.backend = BackendKind::kCpu, .num_threads = 2});
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

void expect_zero_filled_and_writable(const absl::StatusOr<MemoryRange>& range, int64_t bytes) {
  ASSERT_TRUE(range.ok()) << range.status();
  ASSERT_EQ(range->bytes(), bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(range->data()) % 4096, 0u);
  EXPECT_EQ(std::count(range->data(), range->data() + bytes, std::byte{0}), bytes);
  std::fill_n(range->data(), bytes, std::byte{0x5a});
  EXPECT_EQ(std::count(range->data(), range->data() + bytes, std::byte{0x5a}), bytes);
}

TEST(CpuDevice, memory_of_both_kinds_is_zero_filled_aligned_and_writable) {
  const auto device = open_cpu();
  // Twice each: memory that was written and given back must come back clean.
  for (int round = 0; round < 2; ++round) {
    for (int64_t bytes : {int64_t{1}, int64_t{4095}, int64_t{65537}, int64_t{5} << 20}) {
      expect_zero_filled_and_writable(device->allocate(bytes), bytes);
      expect_zero_filled_and_writable(device->allocate_host(bytes), bytes);
    }
  }
}

TEST(CpuDevice, two_allocations_do_not_overlap) {
  const auto device = open_cpu();
  const auto first = device->allocate(10000);
  const auto second = device->allocate_host(10000);
  ASSERT_TRUE(first.ok() && second.ok());
  std::fill_n(first->data(), 10000, std::byte{1});
  EXPECT_EQ(std::count(second->data(), second->data() + 10000, std::byte{0}), 10000);
}

TEST(CpuDevice, an_allocation_of_nothing_succeeds) {
  const auto range = open_cpu()->allocate(0);
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->bytes(), 0);
}

TEST(CpuDevice, an_absurd_size_is_refused_with_what_was_asked_and_what_there_is) {
  const auto device = open_cpu();
  const absl::Status memory = device->allocate(kAbsurdBytes).status();
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(memory.message()),
              ContainsRegex("device memory of 1152921504606846976 bytes asked for, [0-9]+ bytes "
                            "available to this process; lower device.memory or host.pool"));
  const absl::Status host = device->allocate_host(kAbsurdBytes).status();
  EXPECT_EQ(host.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(host.message()), HasSubstr("host memory of 1152921504606846976 bytes"));
}

TEST(CpuDevice, says_what_it_is) {
  const auto device = open_cpu();
  EXPECT_EQ(device->kind(), BackendKind::kCpu);
  EXPECT_EQ(device->description(), absl::StrCat("cpu (2 threads, ", cpu_isa_name(cpu_isa()), ")"));
  EXPECT_EQ(device->stream().handle, nullptr);
  device->synchronize();
}

TEST(CpuDevice, copies_and_fills_are_done_when_they_return) {
  const auto device = open_cpu();
  const auto memory = device->allocate(100);
  const auto host = device->allocate_host(100);
  ASSERT_TRUE(memory.ok() && host.ok());
  device->fill(host->data(), std::byte{7}, 100, device->copy_stream());
  device->copy(memory->data() + 10, host->data(), 80, device->stream());
  EXPECT_EQ(std::count(memory->data(), memory->data() + 100, std::byte{7}), 80);
  EXPECT_EQ(memory->data()[9], std::byte{0});
  EXPECT_EQ(memory->data()[90], std::byte{0});
  device->copy(nullptr, nullptr, 0, device->stream());
  device->fill(nullptr, std::byte{1}, 0, device->stream());
}

TEST(CpuDevice, events_have_always_passed) {
  const auto device = open_cpu();
  const auto event = device->make_event();
  EXPECT_TRUE(event->is_done());
  event->record(device->stream());
  event->block(device->copy_stream());
  EXPECT_TRUE(event->is_done());
  event->synchronize();
}

TEST(CpuDeviceDeathTest, a_capture_without_graphs_stops_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto device = open_cpu();
  EXPECT_FALSE(device->has_graphs());
  EXPECT_DEATH(device->begin_capture(), "the CPU backend has no graphs");
}

TEST(CpuDevice, any_thread_may_attach_and_ranges_of_time_may_nest) {
  const auto device = open_cpu();
  const TraceRange outer("outer");
  const TraceRange inner("inner");
  device->attach_thread();
}

TEST(OpenDevice, cuda_in_a_build_without_it_is_a_failed_precondition_with_a_remedy) {
  const absl::Status status = open_device({.backend = BackendKind::kCuda}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "device.backend: cuda: this program was built without CUDA; use cpu or auto");
}

TEST(OpenDevice, auto_takes_the_cpu_and_logs_why) {
  testing::internal::CaptureStderr();
  const auto device = open_device({.backend = BackendKind::kAuto});
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->kind(), BackendKind::kCpu);
  EXPECT_THAT(log, HasSubstr("device.backend: auto: using the CPU: this program was built "
                             "without CUDA; use cpu or auto"));
}

TEST(CpuDevice, an_emulated_link_takes_its_latency_and_its_time_per_byte) {
  const auto device = open_device({.backend = BackendKind::kCpu,
                                   .num_threads = 2,
                                   .link_bandwidth = 1'000'000,
                                   .link_latency = absl::Microseconds(300),
                                   .emulate_link = true});
  ASSERT_TRUE(device.ok()) << device.status();
  const int32_t none = 0, ten = 10;
  (*device)->cross_link(&none, 100, {});
  EXPECT_EQ((*device)->emulated_link_time(), absl::ZeroDuration());
  const absl::Time begin = absl::Now();
  (*device)->cross_link(&ten, 100, {});
  EXPECT_GE(absl::Now() - begin, absl::Microseconds(1300));
  EXPECT_EQ((*device)->emulated_link_time(), absl::Microseconds(1300));
}

TEST(CpuDevice, a_link_is_not_emulated_unless_it_is_asked_for) {
  EXPECT_EQ(open_cpu()->emulated_link_time(), std::nullopt);
}

}  // namespace
}  // namespace dhs
