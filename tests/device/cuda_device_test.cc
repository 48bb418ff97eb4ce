// The CUDA device on the emulated machine: nothing that is queued runs before the host waits, and
// what no stream or event orders runs in a seeded order.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "device/pinned_memory.h"
#include "emulated_gpu.h"
#include "kernels/add/add.h"

namespace {

// How many registrations succeed before one is refused (the linker's --wrap).
std::atomic<int> registrations_left = 1 << 30;

}  // namespace

extern "C" {
cudaError_t __real_cudaHostRegister(void* data, size_t bytes, unsigned flags);
cudaError_t __wrap_cudaHostRegister(void* data, size_t bytes, unsigned flags) {
  if (registrations_left-- <= 0) return cudaErrorMemoryAllocation;
  return __real_cudaHostRegister(data, bytes, flags);
}
}

namespace dhs {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

constexpr uint64_t kNumSeeds = 12;

using CudaDevice = EmulatedGpu;

TEST_F(CudaDevice, says_what_it_is) {
  simt::options().compute_capability = 86;
  const auto device = open_gpu();
  EXPECT_EQ(device->kind(), BackendKind::kCuda);
  EXPECT_EQ(device->description(), "cuda (GPU 0: Emulated device 0, sm_86, 4 SMs, 1024 MiB)");
  EXPECT_TRUE(device->has_graphs());
}

TEST_F(CudaDevice, has_two_streams_with_scratch_of_their_own) {
  const auto device = open_gpu();
  const Stream streams[] = {device->stream(), device->copy_stream()};
  EXPECT_NE(streams[0].handle, streams[1].handle);
  for (const Stream& stream : streams) {
    EXPECT_NE(stream.handle, nullptr);
    EXPECT_EQ(stream.scratch_bytes, kTestScratchBytes);
    EXPECT_EQ(stream.num_sms, 4);
    EXPECT_EQ(stream.compute_capability, 90);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(stream.scratch) % 256, 0u);
    device->fill(stream.scratch, std::byte{1}, stream.scratch_bytes, stream);
  }
  EXPECT_GE(std::abs(streams[0].scratch - streams[1].scratch), kTestScratchBytes);
  device->synchronize();
}

TEST_F(CudaDevice, memory_of_both_tiers_is_zero_filled_and_copies_reach_all_of_it) {
  const auto device = open_gpu();
  for (int64_t bytes : {int64_t{1}, int64_t{4095}, int64_t{70000}}) {
    const MemoryRange memory = device_memory(*device, bytes);
    const MemoryRange host = host_memory(*device, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 256, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(host.data()) % 4096, 0u);
    EXPECT_EQ(count_of(host, 0), bytes);
    device->fill(host.data(), std::byte{9}, bytes, device->stream());
    device->copy(host.data(), memory.data(), bytes, device->stream());
    device->synchronize();
    EXPECT_EQ(count_of(host, 0), bytes);
    device->fill(memory.data(), std::byte{5}, bytes, device->stream());
    device->copy(host.data(), memory.data(), bytes, device->stream());
    device->synchronize();
    EXPECT_EQ(count_of(host, 5), bytes);
  }
  EXPECT_EQ(device_memory(*device, 0).data(), nullptr);
  EXPECT_EQ(host_memory(*device, 0).data(), nullptr);
}

TEST_F(CudaDevice, queued_work_is_done_when_the_device_is_synchronized_and_not_before) {
  const auto device = open_gpu();
  const MemoryRange host = host_memory(*device, 64);
  device->fill(host.data(), std::byte{3}, 64, device->copy_stream());
  EXPECT_EQ(count_of(host, 3), 0);
  device->synchronize();
  EXPECT_EQ(count_of(host, 3), 64);
}

TEST_F(CudaDevice, too_large_a_request_is_refused_with_what_was_asked_and_what_is_free) {
  const auto device = open_gpu();
  const absl::Status status = device->allocate(int64_t{2} << 30).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("device memory of 2147483648 bytes asked for, 1071644672 of 1073741824 "
                        "bytes free on GPU 0; lower device.memory"));
  const absl::Status host = device->allocate_host(int64_t{1} << 60).status();
  EXPECT_EQ(host.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(host.message()),
              ContainsRegex("pinned host memory of 1152921504606846976 bytes asked for, [0-9]+"));
  // And it is still in order.
  EXPECT_EQ(device_memory(*device, 100).bytes(), 100);
}

TEST_F(CudaDevice, kernels_use_host_memory_through_the_pointer_that_the_host_uses) {
  const auto device = open_gpu();
  const MemoryRange memory = device_memory(*device, 8 * sizeof(float));
  const MemoryRange host = host_memory(*device, 8 * sizeof(float));
  for (int i = 0; i < 8; ++i) host.as<float>()[i] = static_cast<float>(i);
  launch_add({.x = view<const float>(host.as<float>(), 2, 4),
              .out = view<float>(memory.as<float>(), 2, 4)},
             device->stream());
  launch_add({.x = view<const float>(memory.as<float>(), 2, 4),
              .out = view<float>(host.as<float>(), 2, 4)},
             device->stream());
  device->synchronize();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(host.as<float>()[i], static_cast<float>(2 * i));
}

// A fetch on one stream, its use on the other. Gives what the user saw.
int64_t bytes_seen_through(bool with_event, uint64_t seed) {
  simt::options().stream_seed = seed;
  const auto device = open_gpu();
  const auto fetched = device->make_event();
  const MemoryRange memory = device_memory(*device, 64);
  const MemoryRange host = host_memory(*device, 64);
  device->fill(memory.data(), std::byte{7}, 64, device->copy_stream());
  fetched->record(device->copy_stream());
  if (with_event) fetched->block(device->stream());
  device->copy(host.data(), memory.data(), 64, device->stream());
  device->synchronize();
  return count_of(host, 7);
}

TEST_F(CudaDevice, work_behind_an_event_follows_what_was_recorded_in_every_order_of_streams) {
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) EXPECT_EQ(bytes_seen_through(true, seed), 64);
}

TEST_F(CudaDevice, without_the_event_some_order_of_streams_shows_the_fault) {
  simt::options().stream_races = false;  // the wrong bytes, not the report
  int num_wrong = 0;
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    num_wrong += bytes_seen_through(false, seed) != 64 ? 1 : 0;
  }
  EXPECT_GT(num_wrong, 0);
}

TEST_F(CudaDevice, an_event_has_passed_when_the_work_before_its_latest_record_is_done) {
  const auto device = open_gpu();
  const auto event = device->make_event();
  EXPECT_TRUE(event->is_done());  // never recorded
  event->synchronize();
  const MemoryRange host = host_memory(*device, 64);
  for (int value = 1; value < 3; ++value) {
    device->fill(host.data(), static_cast<std::byte>(value), 64, device->stream());
    event->record(device->stream());
    EXPECT_EQ(count_of(host, value), 0);
    event->synchronize();
    EXPECT_EQ(count_of(host, value), 64);
    EXPECT_TRUE(event->is_done());
  }
}

TEST_F(CudaDevice, an_event_that_is_asked_often_enough_passes) {
  const auto device = open_gpu();
  const auto event = device->make_event();
  const MemoryRange host = host_memory(*device, 64);
  for (int i = 0; i < 20; ++i) device->fill(host.data(), std::byte{1}, 64, device->stream());
  event->record(device->stream());
  int num_asked = 0;
  while (!event->is_done()) ASSERT_LT(++num_asked, 1000);
  EXPECT_GT(num_asked, 0);
  EXPECT_EQ(count_of(host, 1), 64);
}

TEST_F(CudaDevice, a_captured_step_runs_at_each_launch_with_the_data_of_that_moment) {
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    simt::options().stream_seed = seed;
    const auto device = open_gpu();
    const auto forked = device->make_event();
    const auto joined = device->make_event();
    const MemoryRange input = host_memory(*device, 64);
    const MemoryRange output = host_memory(*device, 64);
    const MemoryRange memory = device_memory(*device, 64);
    device->begin_capture();
    forked->record(device->stream());
    forked->block(device->copy_stream());
    device->copy(memory.data(), input.data(), 64, device->copy_stream());
    joined->record(device->copy_stream());
    joined->block(device->stream());
    device->copy(output.data(), memory.data(), 64, device->stream());
    const std::unique_ptr<Graph> graph = device->end_capture();
    device->synchronize();
    EXPECT_EQ(count_of(output, 0), 64);  // recorded, not run
    for (int value = 1; value < 4; ++value) {
      std::fill_n(input.data(), 64, static_cast<std::byte>(value));
      device->launch(*graph);
      device->synchronize();
      EXPECT_EQ(count_of(output, value), 64) << "seed " << seed;
    }
  }
}

TEST_F(CudaDevice, another_thread_that_attaches_itself_may_launch) {
  simt::options().device_count = 2;
  const auto device = open_gpu(1);
  const MemoryRange host = host_memory(*device, 64);
  std::thread([&] {
    device->attach_thread();
    device->fill(host.data(), std::byte{8}, 64, device->stream());
    device->synchronize();
  }).join();
  EXPECT_EQ(count_of(host, 8), 64);
}

TEST_F(CudaDevice, pieces_of_pinned_memory_are_registered_and_given_back_each) {
  constexpr int64_t kPieceBytes = 64 << 10;
  constexpr int64_t kBytes = 5 * kPieceBytes + 100;
  const auto device = open_gpu();
  for (int round = 0; round < 2; ++round) {  // giving back lets the next round register again
    auto range = reserve_pinned_memory(kBytes, 0, kPieceBytes);
    ASSERT_TRUE(range.ok()) << range.status();
    EXPECT_EQ(count_of(*range, 0), kBytes);
    int num_parts = 0;
    for_each_part(
        range->data(), range->data(), kBytes, kPieceBytes, [&](int64_t offset, int64_t part_bytes) {
          ++num_parts;
          device->fill(range->data() + offset, std::byte{6}, part_bytes, device->stream());
        });
    EXPECT_GE(num_parts, 6);
    device->synchronize();
    EXPECT_EQ(count_of(*range, 6), kBytes);
  }
}

TEST_F(CudaDevice, one_refused_piece_of_pinned_memory_gives_back_the_others) {
  const auto device = open_gpu();
  constexpr int64_t kPieceBytes = 64 << 10;
  for (int num_registered : {0, 1, 3}) {
    registrations_left = num_registered;
    const absl::Status status = reserve_pinned_memory(4 * kPieceBytes, 0, kPieceBytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("pinned host memory of 262144 bytes: the driver refuses to register it"));
  }
  registrations_left = 1 << 30;  // a piece that stayed registered fails the process when it ends
}

using CudaDeviceDeathTest = EmulatedGpu;

TEST_F(CudaDeviceDeathTest,
       an_error_that_is_not_about_memory_stops_the_process_and_names_the_work) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto device = open_gpu();
        device->begin_capture();
        device->synchronize();
      },
      "cuda: work launched before a synchronisation: .*cudaErrorStreamCapture");
}

TEST(CopyParts, end_where_either_side_meets_a_border_and_cover_everything_in_order) {
  const auto at = [](uintptr_t address) { return reinterpret_cast<void*>(address); };
  std::vector<std::pair<int64_t, int64_t>> parts;
  const auto collect = [&](int64_t offset, int64_t bytes) { parts.emplace_back(offset, bytes); };
  for_each_part(at(96), at(150), 110, 100, collect);
  EXPECT_EQ(parts, (std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 46}, {50, 54}, {104, 6}}));
  parts.clear();
  for_each_part(at(200), at(300), 100, 100, collect);
  EXPECT_EQ(parts, (std::vector<std::pair<int64_t, int64_t>>{{0, 100}}));
  parts.clear();
  for_each_part(nullptr, nullptr, 0, 100, collect);
  EXPECT_TRUE(parts.empty());
}

}  // namespace
}  // namespace dhs
