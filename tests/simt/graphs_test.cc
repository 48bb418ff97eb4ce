// Captured work: recorded, not run, and replayed as often as it is launched.
#include <vector>

#include "simt/kernels/queued.cuh"
#include "simt/launch_fixture.h"

namespace simt {
namespace {

constexpr int kThreads = 64;
using Values = std::vector<int>;

class GraphsTest : public LaunchTest {
 protected:
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  }
  // Ends the capture and makes it launchable.
  cudaGraphExec_t end() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return exec;
  }
  // The capture cannot be used.
  void expect_end(cudaError_t error) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), error);
    EXPECT_EQ(graph, nullptr);
  }
  void add(int value, cudaStream_t stream) {
    EXPECT_EQ(launch(queued::add, 1, kThreads, 0, stream, x_.data(), value), cudaSuccess);
  }

  const TestStream stream_;
  const TestStream other_;
  const TestEvent forked_;
  const TestEvent joined_;
  const DeviceBuffer<int> x_{Values(kThreads, 1)};
  const DeviceBuffer<int> y_{Values(kThreads, 0)};
};

TEST_F(GraphsTest, captured_work_runs_once_per_launch) {
  begin();
  add(2, stream_);
  const cudaGraphExec_t exec = end();
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(x_.download(), Values(kThreads, 1)) << "ran while it was captured";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);  // queued launches do not need it
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(x_.download(), Values(kThreads, 7));
}

TEST_F(GraphsTest, a_fork_that_is_joined_keeps_its_order_under_every_seed) {
  begin();
  add(2, stream_);
  cudaEventRecord(forked_, stream_);
  cudaStreamWaitEvent(other_, forked_, 0);
  launch(queued::reverse, 1, kThreads, 0, other_, x_.data(), y_.data());
  cudaEventRecord(joined_, other_);
  cudaStreamWaitEvent(stream_, joined_, 0);
  add(10, stream_);
  const cudaGraphExec_t exec = end();
  for (int i = 0; i < 20; ++i) {
    options().stream_seed = uint64_t(i);
    cudaGraphLaunch(exec, stream_);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(y_.download(), Values(kThreads, 12 * i + 3));
  }
  cudaGraphExecDestroy(exec);
}

TEST_F(GraphsTest, branches_that_meet_in_memory_are_reported) {
  begin();
  cudaEventRecord(forked_, stream_);
  cudaStreamWaitEvent(other_, forked_, 0);
  cudaMemsetAsync(x_.data(), 0, 16, stream_);
  cudaMemsetAsync(x_.data(), 1, 16, other_);
  cudaEventRecord(joined_, other_);
  cudaStreamWaitEvent(stream_, joined_, 0);
  const cudaGraphExec_t exec = end();
  cudaGraphLaunch(exec, stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
  EXPECT_EQ(take_errors().size(), 1u);
  cudaGraphExecDestroy(exec);
}

TEST_F(GraphsTest, a_fork_that_is_not_joined_fails_the_capture) {
  begin();
  cudaEventRecord(forked_, stream_);
  cudaStreamWaitEvent(other_, forked_, 0);
  add(1, other_);
  expect_end(cudaErrorStreamCaptureUnjoined);
  add(1, other_);  // which captures no more
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
}

TEST_F(GraphsTest, waiting_for_a_capturing_stream_fails_the_capture) {
  begin();
  add(1, stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
  expect_end(cudaErrorStreamCaptureInvalidated);
}

TEST_F(GraphsTest, reserving_memory_fails_a_global_capture) {
  begin();
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 16), cudaErrorStreamCaptureUnsupported);
  expect_end(cudaErrorStreamCaptureInvalidated);
}

TEST_F(GraphsTest, reserving_memory_is_allowed_beside_a_relaxed_capture) {
  begin(cudaStreamCaptureModeRelaxed);
  const DeviceBuffer<int> fresh(16);
  EXPECT_NE(fresh.data(), nullptr);
  cudaGraphExecDestroy(end());
}

TEST_F(GraphsTest, the_default_stream_fails_a_capture) {
  begin();
  EXPECT_EQ(cudaMemcpy(x_.data(), y_.data(), 4, cudaMemcpyDeviceToDevice),
            cudaErrorStreamCaptureImplicit);
  expect_end(cudaErrorStreamCaptureInvalidated);
}

TEST_F(GraphsTest, waiting_for_work_outside_the_capture_fails_it) {
  cudaEventRecord(forked_, other_);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream_, forked_, 0), cudaErrorStreamCaptureIsolation);
  expect_end(cudaErrorStreamCaptureInvalidated);
}

TEST_F(GraphsTest, a_captured_event_cannot_be_waited_for_by_the_host) {
  begin();
  cudaEventRecord(forked_, stream_);
  EXPECT_EQ(cudaEventSynchronize(forked_), cudaErrorCapturedEvent);
  expect_end(cudaErrorStreamCaptureInvalidated);
}

TEST_F(GraphsTest, the_stream_that_began_ends_the_capture) {
  begin();
  cudaEventRecord(forked_, stream_);
  cudaStreamWaitEvent(other_, forked_, 0);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureUnmatched);
  expect_end(cudaErrorStreamCaptureInvalidated);
}

TEST_F(GraphsTest, a_capture_counts_its_nodes) {
  begin();
  add(1, stream_);
  cudaMemsetAsync(y_.data(), 0, 4, stream_);
  cudaEventRecord(forked_, stream_);  // no node
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  size_t num_nodes = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &num_nodes), cudaSuccess);
  EXPECT_EQ(num_nodes, 2u);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace simt
