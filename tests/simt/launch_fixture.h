// Sets the emulator's options before each test and shows its report when a check fails.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/cuda.h"

namespace simt {

class LaunchTest : public testing::Test {
 protected:
  void SetUp() override {
    options() = Options{};
    options().leaks_fail = true;
    take_errors();
  }

  // A test that expects errors of queued work takes them.
  void TearDown() override {
    const auto errors = take_errors();
    EXPECT_TRUE(errors.empty()) << errors.front();
  }

  // The report's errors, one a line.
  static std::string errors() {
    std::string text;
    for (const std::string& error : last_report().errors) {
      text += error + "\n";
    }
    return text;
  }

  static testing::AssertionResult succeeded(cudaError_t error) {
    if (error == cudaSuccess) {
      return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << "error " << error << "\n" << errors();
  }

  // The launch failed, and a report has `text` in it.
  static testing::AssertionResult failed_with(cudaError_t error, const std::string& text) {
    if (error == cudaSuccess) {
      return testing::AssertionFailure() << "the launch succeeded";
    }
    const auto& found = last_report().errors;
    const auto has_text = [&](const std::string& report) {
      return report.find(text) != std::string::npos;
    };
    if (std::any_of(found.begin(), found.end(), has_text)) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "reported:\n" << errors();
  }
};

// Device memory of the emulated runtime.
template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t size) : size_(size) { cudaMalloc(&data_, size * sizeof(T)); }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) {
    cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  // What is there now: waits for nothing but blocking streams.
  std::vector<T> download() const {
    std::vector<T> values(size_);
    cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

class TestStream {
 public:
  explicit TestStream(unsigned flags = cudaStreamNonBlocking) {
    cudaStreamCreateWithFlags(&handle_, flags);
  }
  ~TestStream() { cudaStreamDestroy(handle_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

class TestEvent {
 public:
  TestEvent() { cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming); }
  ~TestEvent() { cudaEventDestroy(handle_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator cudaEvent_t() const { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
};

}  // namespace simt
