// The CUDA runtime's functions, as src/device uses them.
#include <thread>
#include <vector>

#include "simt/emu/garbage.h"
#include "simt/kernels/queued.cuh"
#include "simt/launch_fixture.h"

namespace simt {
namespace {

class RuntimeTest : public LaunchTest {
 protected:
  // The one error that was reported has `text` in it.
  static void expect_error(const std::string& text) {
    const auto errors = take_errors();
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_NE(errors[0].find(text), std::string::npos) << errors[0];
  }
};

// ---------------------------------------------------------------------------------- device, driver

TEST_F(RuntimeTest, a_missing_driver_answers_as_the_real_runtime_does) {
  options().driver_error = cudaErrorInsufficientDriver;
  int count = 17;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, 17) << "left untouched";
  int version = -1;
  EXPECT_EQ(cudaDriverGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, 0);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 16), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(RuntimeTest, a_machine_without_devices_says_so) {
  options().device_count = 0;
  int count = 17;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorNoDevice);
}

TEST_F(RuntimeTest, devices_are_numbered_from_zero) {
  options().device_count = 2;
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  int can = 0;
  EXPECT_EQ(cudaDeviceCanAccessPeer(&can, 0, 1), cudaSuccess);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(RuntimeTest, properties_and_attributes_agree) {
  options().compute_capability = 103;
  options().num_sms = 7;
  cudaDeviceProp prop;
  ASSERT_EQ(cudaGetDeviceProperties(&prop, 0), cudaSuccess);
  EXPECT_EQ(prop.major, 10);
  EXPECT_EQ(prop.minor, 3);
  int num_sms = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  EXPECT_EQ(num_sms, 7);
  EXPECT_EQ(prop.multiProcessorCount, 7);
  EXPECT_EQ(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, 1),
            cudaErrorInvalidDevice);
}

TEST_F(RuntimeTest, errors_have_names) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

// ------------------------------------------------------------------------------------------ memory

TEST_F(RuntimeTest, fresh_memory_is_not_zero) {
  const DeviceBuffer<int> x(4);
  EXPECT_EQ(x.download(), std::vector<int>(4, int(kGarbageWord)));
}

TEST_F(RuntimeTest, memory_runs_out) {
  options().device_memory_bytes = 1 << 20;
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, (1 << 20) + 1), cudaErrorMemoryAllocation);
  const DeviceBuffer<std::byte> half(1 << 19);
  size_t free = 0;
  size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, size_t{1} << 19);
  EXPECT_EQ(total, size_t{1} << 20);
}

TEST_F(RuntimeTest, a_copy_past_an_allocation_is_refused) {
  const DeviceBuffer<int> x(4);
  const std::vector<int> values(5);
  EXPECT_EQ(cudaMemcpy(x.data(), values.data(), 20, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  expect_error("writes 20 bytes at byte 0 of 16");
}

TEST_F(RuntimeTest, a_copy_into_freed_memory_is_refused) {
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 16), cudaSuccess);
  ASSERT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaMemset(data, 0, 16), cudaErrorInvalidValue);
  expect_error("which is freed");
}

TEST_F(RuntimeTest, a_kind_that_contradicts_the_memory_is_refused) {
  const DeviceBuffer<int> x(4);
  int value = 0;
  EXPECT_EQ(cudaMemcpy(&value, x.data(), 4, cudaMemcpyHostToHost), cudaErrorInvalidMemcpyDirection);
  expect_error("the kind says host");
}

TEST_F(RuntimeTest, freeing_twice_is_refused) {
  void* data = nullptr;
  ASSERT_EQ(cudaHostAlloc(&data, 16, cudaHostAllocDefault), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue);
  expect_error("not by this kind of call");
  EXPECT_EQ(cudaFreeHost(data), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(data), cudaErrorInvalidValue);
  expect_error("free of memory that is not allocated");
}

TEST_F(RuntimeTest, registered_host_memory_is_reachable_until_it_is_unregistered) {
  std::vector<int> host(64, 1);
  const size_t bytes = host.size() * sizeof(int);
  ASSERT_EQ(cudaHostRegister(host.data(), bytes, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(host.data() + 1, 4, 0), cudaErrorHostMemoryAlreadyRegistered);
  void* device_data = nullptr;
  EXPECT_EQ(cudaHostGetDevicePointer(&device_data, host.data(), 0), cudaSuccess);
  const TestStream stream;
  EXPECT_EQ(launch(queued::add, 2, 32, 0, stream, host.data(), 5), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(host[63], 6);
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaErrorHostMemoryNotRegistered);
}

TEST_F(RuntimeTest, a_2d_copy_moves_the_rows_and_nothing_between_them) {
  const DeviceBuffer<int> x(std::vector<int>{1, 2, 3, 4, 5, 6});
  const DeviceBuffer<int> y(std::vector<int>(8, 0));
  const TestStream stream;
  ASSERT_EQ(cudaMemcpy2DAsync(y.data(), 16, x.data(), 12, 8, 2, cudaMemcpyDeviceToDevice, stream),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(y.download(), (std::vector<int>{1, 2, 0, 0, 4, 5, 0, 0}));
}

// ----------------------------------------------------------------------------------------- kernels

TEST_F(RuntimeTest, much_shared_memory_must_be_asked_for) {
  const DeviceBuffer<int> x(std::vector<int>(32, 0));
  const auto* kernel = reinterpret_cast<const void*>(&queued::reverse);
  const auto try_launch = [&] {
    return launch(queued::reverse, 1, 32, 100 << 10, nullptr, x.data(), x.data());
  };
  EXPECT_EQ(try_launch(), cudaErrorInvalidValue);
  int num_blocks = -1;
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&num_blocks, kernel, 32, 100 << 10),
            cudaSuccess);
  EXPECT_EQ(num_blocks, 0);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10),
            cudaSuccess);
  options().shared_races = false;
  EXPECT_EQ(try_launch(), cudaSuccess);
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&num_blocks, kernel, 32, 100 << 10),
            cudaSuccess);
  EXPECT_EQ(num_blocks, 2);
}

TEST_F(RuntimeTest, handles_that_are_gone_are_reported) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  expect_error("no such stream");
}

TEST_F(RuntimeTest, several_host_threads_can_use_the_device) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      const DeviceBuffer<int> x(std::vector<int>(64, i));
      const TestStream stream;
      for (int step = 0; step < 20; ++step) launch(queued::add, 1, 64, 0, stream, x.data(), 1);
      cudaStreamSynchronize(stream);
      EXPECT_EQ(x.download(), std::vector<int>(64, i + 20));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace simt
