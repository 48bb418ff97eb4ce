// Streams: in order within, in any order between.
#include <set>
#include <thread>
#include <vector>

#include "simt/kernels/faulty.cuh"
#include "simt/kernels/queued.cuh"
#include "simt/launch_fixture.h"

namespace simt {
namespace {

constexpr int kThreads = 64;
constexpr size_t kBytes = kThreads * sizeof(int);
using Values = std::vector<int>;

class StreamsTest : public LaunchTest {
 protected:
  cudaError_t fill(const DeviceBuffer<int>& x, int value, cudaStream_t stream) {
    return launch(queued::fill, 1, kThreads, 0, stream, x.data(), value);
  }
  cudaError_t add(const DeviceBuffer<int>& x, int value, cudaStream_t stream) {
    return launch(queued::add, 1, kThreads, 0, stream, x.data(), value);
  }
};

TEST_F(StreamsTest, nothing_runs_before_the_host_waits) {
  const DeviceBuffer<int> x(Values(kThreads, 1));
  const TestStream stream;
  EXPECT_EQ(fill(x, 7, stream), cudaSuccess);
  EXPECT_EQ(x.download(), Values(kThreads, 1));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(x.download(), Values(kThreads, 7));
}

TEST_F(StreamsTest, one_stream_keeps_its_order) {
  for (uint64_t seed : {0, 1, 2, 3}) {
    options().stream_seed = seed;
    const DeviceBuffer<int> x(kThreads);
    const TestStream stream;
    cudaMemsetAsync(x.data(), 0, kBytes, stream);
    add(x, 3, stream);
    fill(x, 5, stream);
    add(x, 1, stream);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(x.download(), Values(kThreads, 6));
  }
}

TEST_F(StreamsTest, an_event_orders_two_streams_under_every_seed) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    options().stream_seed = seed;
    const DeviceBuffer<int> x(Values(kThreads, 1));
    const DeviceBuffer<int> y(Values(kThreads, 0));
    const TestStream a;
    const TestStream b;
    const TestEvent filled;
    fill(x, int(seed), a);
    cudaEventRecord(filled, a);
    cudaStreamWaitEvent(b, filled, 0);
    launch(queued::reverse, 1, kThreads, 0, b, x.data(), y.data());
    EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
    EXPECT_EQ(y.download(), Values(kThreads, int(seed)));
  }
}

TEST_F(StreamsTest, without_an_event_some_seed_breaks_the_order) {
  options().stream_races = false;  // here it is the results that tell
  std::set<int> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    options().stream_seed = seed;
    const DeviceBuffer<int> x(Values(kThreads, 1));
    const DeviceBuffer<int> y(Values(kThreads, 0));
    const TestStream a;
    const TestStream b;
    fill(x, 2, a);
    launch(queued::reverse, 1, kThreads, 0, b, x.data(), y.data());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    seen.insert(y.download()[0]);
  }
  EXPECT_EQ(seen, (std::set<int>{1, 2}));
}

TEST_F(StreamsTest, copies_without_an_event_are_reported_in_every_build) {
  const DeviceBuffer<int> x(Values(kThreads, 1));
  const DeviceBuffer<int> y(Values(kThreads, 0));
  const TestStream a;
  const TestStream b;
  cudaMemsetAsync(x.data(), 0, kBytes, a);
  cudaMemcpyAsync(y.data(), x.data(), kBytes, cudaMemcpyDeviceToDevice, b);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  const auto errors = take_errors();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_NE(errors[0].find("stream race: "), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("memset"), std::string::npos) << errors[0];
}

TEST_F(StreamsTest, kernels_without_an_event_are_reported_in_the_checked_build) {
  const DeviceBuffer<int> x(Values(kThreads, 1));
  const TestStream a;
  const TestStream b;
  add(x, 1, a);
  add(x, 1, b);
  const cudaError_t error = cudaDeviceSynchronize();
  const auto errors = take_errors();
  if (!accesses_are_checked()) return;
  EXPECT_EQ(error, cudaErrorLaunchFailure);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_NE(errors[0].find("stream race: kernel at"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("queued.cu"), std::string::npos) << errors[0];
}

TEST_F(StreamsTest, a_host_wait_between_two_streams_orders_them) {
  const DeviceBuffer<int> x(Values(kThreads, 1));
  const TestStream a;
  const TestStream b;
  add(x, 1, a);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  add(x, 1, b);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(x.download(), Values(kThreads, 3));
}

TEST_F(StreamsTest, streams_that_touch_different_bytes_are_not_reported) {
  const DeviceBuffer<int> x(Values(2 * kThreads, 1));
  const TestStream a;
  const TestStream b;
  launch(queued::add, 1, kThreads, 0, a, x.data(), 1);
  launch(queued::add, 1, kThreads, 0, b, x.data() + kThreads, 1);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(StreamsTest, a_long_exchange_between_two_streams_is_silent) {
  const DeviceBuffer<int> x(Values(kThreads, 0));
  const TestStream a;
  const TestStream b;
  const TestEvent a_done;
  const TestEvent b_done;
  for (int i = 0; i < 300; ++i) {
    cudaStreamWaitEvent(a, b_done, 0);
    add(x, 1, a);
    cudaEventRecord(a_done, a);
    cudaStreamWaitEvent(b, a_done, 0);
    add(x, 1, b);
    cudaEventRecord(b_done, b);
    if (i % 50 == 0) cudaEventSynchronize(b_done);
  }
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(x.download(), Values(kThreads, 600));
}

TEST_F(StreamsTest, a_wait_is_for_the_record_before_it) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    options().stream_seed = seed;
    options().stream_races = false;
    const DeviceBuffer<int> x(Values(kThreads, 1));
    const DeviceBuffer<int> y(Values(kThreads, 0));
    const TestStream a;
    const TestStream b;
    const TestEvent event;
    cudaStreamWaitEvent(b, event, 0);  // never recorded: no wait
    fill(x, 2, a);
    cudaEventRecord(event, a);
    cudaStreamWaitEvent(b, event, 0);
    cudaMemcpyAsync(y.data(), x.data(), kBytes, cudaMemcpyDeviceToDevice, b);
    cudaEventRecord(event, b);  // b waits for a's record all the same
    EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
    EXPECT_EQ(y.download(), Values(kThreads, 2));
  }
}

TEST_F(StreamsTest, queries_say_not_ready_and_come_to_an_end) {
  const DeviceBuffer<int> x(Values(kThreads, 1));
  const TestStream stream;
  const TestEvent event;
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  add(x, 1, stream);
  cudaEventRecord(event, stream);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  int num_queries = 1;
  while (cudaEventQuery(event) == cudaErrorNotReady) ++num_queries;
  EXPECT_EQ(num_queries, 2);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(StreamsTest, arguments_and_pageable_sources_are_read_when_queued) {
  const DeviceBuffer<int> x(kThreads);
  const TestStream stream;
  Values values(kThreads, 4);
  cudaMemcpyAsync(x.data(), values.data(), kBytes, cudaMemcpyHostToDevice, stream);
  values.assign(kThreads, 5);
  int value = 10;
  add(x, value, stream);
  value = 20;
  Values result(kThreads);
  // Into pageable memory the copy has arrived when the call returns.
  cudaMemcpyAsync(result.data(), x.data(), kBytes, cudaMemcpyDeviceToHost, stream);
  EXPECT_EQ(result, Values(kThreads, 14));
}

TEST_F(StreamsTest, pinned_sources_are_read_when_the_copy_runs) {
  const DeviceBuffer<int> x(kThreads);
  const TestStream stream;
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, kBytes, cudaHostAllocDefault), cudaSuccess);
  std::fill_n(static_cast<int*>(pinned), kThreads, 4);
  cudaMemcpyAsync(x.data(), pinned, kBytes, cudaMemcpyHostToDevice, stream);
  std::fill_n(static_cast<int*>(pinned), kThreads, 5);  // too early
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(x.download(), Values(kThreads, 5));
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(StreamsTest, a_blocking_copy_waits_for_blocking_streams_only) {
  const DeviceBuffer<int> x(Values(kThreads, 1));
  const DeviceBuffer<int> y(Values(kThreads, 1));
  options().stream_races = false;
  options().stream_seed = 0;
  const TestStream other;
  const TestStream blocking(cudaStreamDefault);
  fill(x, 2, blocking);
  fill(y, 2, other);
  EXPECT_EQ(x.download(), Values(kThreads, 2));
  cudaDeviceSynchronize();
  fill(y, 3, other);
  EXPECT_EQ(y.download(), Values(kThreads, 2));
  cudaDeviceSynchronize();
}

TEST_F(StreamsTest, a_host_function_runs_in_order) {
  const DeviceBuffer<int> x(Values(kThreads, 1));
  const TestStream stream;
  struct Probe {
    const int* x;
    int seen;
  } probe = {x.data(), 0};
  fill(x, 9, stream);
  cudaLaunchHostFunc(
      stream, [](void* data) { static_cast<Probe*>(data)->seen = *static_cast<Probe*>(data)->x; },
      &probe);
  fill(x, 10, stream);
  EXPECT_EQ(probe.seen, 0);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(probe.seen, 9);
}

TEST_F(StreamsTest, a_host_function_must_not_call_the_runtime) {
  const TestStream stream;
  cudaLaunchHostFunc(
      stream, [](void*) { EXPECT_EQ(cudaFree(nullptr), cudaErrorNotPermitted); }, nullptr);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(take_errors().size(), 1u);
}

TEST_F(StreamsTest, a_failed_kernel_breaks_the_context) {
  const DeviceBuffer<float> x(kThreads);
  const TestStream stream;
  EXPECT_EQ(launch(faulty::divergent_barrier, 1, kThreads, 0, stream, x.data()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(take_errors().size(), 1u);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
}

TEST_F(StreamsTest, elapsed_time_needs_events_that_keep_time) {
  const TestStream stream;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin, stream);
  cudaEventRecord(end, stream);
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  cudaStreamSynchronize(stream);
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
  EXPECT_GE(ms, 0);
  const TestEvent timeless;
  cudaEventRecord(timeless, stream);
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, timeless), cudaErrorInvalidResourceHandle);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

}  // namespace
}  // namespace simt
