// Ranks on emulated GPUs: the local twin on their streams, and NCCL with a library that only
// remembers how it was called.
#include <gmock/gmock.h>

#include <array>

#include "device/library.h"
#include "device/nccl_group.h"
#include "emulated_gpu.h"
#include "rank_threads.h"

namespace dhs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using LocalCommunicatorOnStreams = EmulatedGpu;

// One rank's exchanges, each between queued work that it must wait for and that waits for it.
void exchange(Communicator& group) {
  const auto device = open_gpu(group.rank());
  const Stream stream = device->stream();
  const int size = group.size();
  const MemoryRange input = host_memory(*device, 16);
  const MemoryRange data = device_memory(*device, 16);
  const MemoryRange all = device_memory(*device, 16 * size);
  const MemoryRange output = host_memory(*device, 16 * size);
  for (int i = 0; i < 4; ++i) input.as<float>()[i] = static_cast<float>(group.rank() + 1);

  device->copy(data.data(), input.data(), 16, stream);
  group.all_reduce_sum(data.as<float>(), 4, stream);
  group.all_gather(data.data(), all.data(), 16, stream);
  device->copy(output.data(), all.data(), 16 * size, stream);
  device->synchronize();
  const float sum = static_cast<float>(size * (size + 1) / 2);
  for (int i = 0; i < 4 * size; ++i) EXPECT_EQ(output.as<float>()[i], sum);

  group.reduce_scatter_sum(all.as<float>(), data.as<float>(), 4, stream);
  device->copy(output.data(), data.data(), 16, stream);
  device->synchronize();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(output.as<float>()[i], sum * static_cast<float>(size));

  device->copy(data.data(), input.data(), 16, stream);
  group.broadcast(data.data(), 16, size - 1, stream);
  device->copy(output.data(), data.data(), 16, stream);
  device->synchronize();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(output.as<float>()[i], static_cast<float>(size));
}

TEST_F(LocalCommunicatorOnStreams,
       exchanges_follow_queued_work_and_come_before_what_is_queued_next) {
  simt::options().device_count = 4;
  for (int size : {1, 2, 4}) {
    for (uint64_t seed : {0, 1, 2}) {
      simt::options().stream_seed = seed;
      run_ranks(make_local_communicators(size), exchange);
    }
  }
}

using PeerAccess = EmulatedGpu;

TEST_F(PeerAccess, is_enabled_between_all_and_leaves_the_current_device_as_it_was) {
  simt::options().device_count = 3;
  EXPECT_TRUE(enable_peer_access({0, 1, 2}).ok());
  EXPECT_TRUE(enable_peer_access({}).ok());
  const absl::Status status = enable_peer_access({0, 3});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("peer access of GPU 0 to GPU 3"));
}

TEST_F(PeerAccess, without_a_driver_is_refused_with_its_words) {
  simt::options().driver_error = cudaErrorInsufficientDriver;
  const absl::Status status = enable_peer_access({0, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cudaErrorInsufficientDriver"));
}

// The library under DHS_FAKE_NCCL, and what it was told to do and remembers.
class NcclCommunicators : public EmulatedGpu {
 protected:
  NcclCommunicators() {
    simt::options().device_count = 4;
    const absl::StatusOr<Library> library = Library::load(DHS_FAKE_NCCL);
    EXPECT_TRUE(library.ok()) << library.status();
    EXPECT_TRUE(library->find("fake_nccl_reset", reset_).ok());
    EXPECT_TRUE(library->find("fake_nccl_calls", calls_).ok());
    reset_(0, 0);
  }
  ~NcclCommunicators() override { reset_(0, 0); }

  // From now on calls are in progress for `num_polls` questions and end with `result`.
  void answer(int num_polls, int result) { reset_(num_polls, result); }
  // Since the last time; one line per call.
  std::vector<std::string> calls() {
    std::vector<std::string> lines;
    std::string line;
    for (const char* next = calls_(); *next != '\0'; ++next) {
      if (*next != '\n') {
        line += *next;
        continue;
      }
      lines.push_back(line);
      line.clear();
    }
    return lines;
  }
  Ranks open(const std::vector<int>& ordinals) {
    auto ranks = open_nccl_group_of(DHS_FAKE_NCCL, ordinals);
    EXPECT_TRUE(ranks.ok()) << ranks.status();
    return *std::move(ranks);
  }

 private:
  void (*reset_)(int num_polls, int result) = nullptr;
  const char* (*calls_)() = nullptr;
};

TEST_F(NcclCommunicators, connect_rank_by_rank_in_one_group_and_wait_until_it_is_done) {
  answer(3, 0);
  const Ranks ranks = open({2, 0});
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[1]->rank(), 1);
  EXPECT_EQ(ranks[1]->size(), 2);
  EXPECT_TRUE(ranks[1]->can_be_captured());
  EXPECT_THAT(calls(),
              ElementsAre("group start", "init 0 of 2 blocking 0", "init 1 of 2 blocking 0",
                          "group end", "poll 0", "poll 0", "poll 0", "poll 1"));
}

TEST_F(NcclCommunicators, queue_each_exchange_with_its_count_type_and_stream) {
  Ranks ranks = open({0, 1});
  calls();
  const auto device = open_gpu();
  const Stream stream{.handle = reinterpret_cast<void*>(0x50)};
  float* data = reinterpret_cast<float*>(0x100);
  answer(1, 0);
  ranks[1]->all_reduce_sum(data, 5, stream);
  answer(0, 0);
  ranks[0]->reduce_scatter_sum(data, data + 4, 3, stream);
  ranks[0]->all_gather(data, data + 4, 12, stream);
  ranks[1]->broadcast(data, 9, 1, stream);
  EXPECT_THAT(calls(), ElementsAre("reduce_scatter 0: 0x100 to 0x110, 3 of type 7, op 0, on 0x50",
                                   "all_gather 0: 0x100 to 0x110, 12 of type 0, on 0x50",
                                   "broadcast 1: 0x100 to 0x100, 9 of type 0, root 1, on 0x50"));
  EXPECT_TRUE(ranks[0]->status().ok());
}

TEST_F(NcclCommunicators, an_exchange_in_progress_is_polled_until_it_is_queued) {
  Ranks ranks = open({0, 1});
  answer(2, 0);
  ranks[1]->all_reduce_sum(reinterpret_cast<float*>(0x100), 5, {});
  EXPECT_THAT(calls(), ElementsAre("all_reduce 1: 0x100 to 0x100, 5 of type 7, op 0, on 0",
                                   "poll 1", "poll 1"));
}

TEST_F(NcclCommunicators, a_failed_exchange_ends_the_group_and_says_why) {
  Ranks ranks = open({0, 1});
  answer(1, 6);
  ranks[0]->all_reduce_sum(nullptr, 0, {});
  EXPECT_THAT(calls(), ElementsAre("all_reduce 0: 0 to 0, 0 of type 7, op 0, on 0", "poll 0",
                                   "abort 0", "abort 1"));
  const absl::Status status = ranks[1]->status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "nccl: all_reduce_sum of rank 0: result 6");
  ranks[1]->all_reduce_sum(nullptr, 0, {});
  ranks[1]->barrier();
  ranks.clear();
  EXPECT_THAT(calls(), ElementsAre());
}

TEST_F(NcclCommunicators, a_rank_that_leaves_aborts_those_whose_exchanges_it_will_never_join) {
  Ranks ranks = open({0, 1, 2});
  for (auto& rank : ranks) rank->all_reduce_sum(nullptr, 0, {});
  ranks[1]->all_reduce_sum(nullptr, 0, {});  // rank 1 waits for the others
  answer(0, 0);
  ranks[0].reset();
  EXPECT_THAT(calls(), ElementsAre("abort 1", "abort 0"));
  EXPECT_THAT(std::string(ranks[2]->status().message()), HasSubstr("rank 0 has left"));
  ranks[2]->all_reduce_sum(nullptr, 0, {});
  EXPECT_THAT(calls(), ElementsAre());
  ranks.clear();
  EXPECT_THAT(calls(), ElementsAre("abort 2"));
}

TEST_F(NcclCommunicators, an_abort_from_another_thread_frees_a_rank_that_polls) {
  Ranks ranks = open({0, 1});
  answer(1 << 30, 0);
  std::thread polling([&] { ranks[0]->all_reduce_sum(nullptr, 0, {}); });
  ranks[1]->abort();
  polling.join();
  EXPECT_EQ(ranks[0]->status().code(), absl::StatusCode::kAborted);
}

TEST_F(NcclCommunicators, a_failed_connection_is_a_failed_precondition_and_leaves_nothing) {
  answer(0, 2);
  const absl::Status status = open_nccl_group_of(DHS_FAKE_NCCL, {0, 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "nccl: connecting 2 GPUs: result 2");
}

TEST_F(NcclCommunicators, wrong_devices_and_a_missing_library_are_refused_with_the_value) {
  const absl::Status missing = open_nccl_group_of("libdhs_no_nccl.so.2", {0}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("libdhs_no_nccl.so.2"));
  const absl::Status beyond = open_nccl_group_of(DHS_FAKE_NCCL, {0, 4}).status();
  EXPECT_EQ(beyond.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("GPU 4 is not there, 4 GPUs are visible"));
  const absl::Status twice = open_nccl_group_of(DHS_FAKE_NCCL, {1, 1}).status();
  EXPECT_EQ(twice.code(), absl::StatusCode::kInvalidArgument);
  simt::options().driver_error = cudaErrorInsufficientDriver;
  const absl::Status no_driver = open_nccl_group_of(DHS_FAKE_NCCL, {0}).status();
  EXPECT_EQ(no_driver.code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace dhs
