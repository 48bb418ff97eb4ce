// Runs the tests of a program on the GPU; 77 when there is none.
#include <cuda_runtime_api.h>

#include <cstdio>

#include "gtest/gtest.h"

int main(int argc, char** argv) {
  constexpr int kNoGpu = 77;
  int num_gpus = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_gpus);
  if (error != cudaSuccess || num_gpus == 0) {
    std::printf("no GPU: %s\n", error == cudaSuccess ? "0 are visible" : cudaGetErrorString(error));
    return kNoGpu;
  }
  testing::InitGoogleTest(&argc, argv);
  return testing::run_all_tests();
}
