// One entry per op, two versions behind it: the stream says which device the launch is for.
#pragma once

#include "dhisparse/stream.h"

namespace dhs {

// Stops the process: the op was launched on a CUDA stream in a program without CUDA kernels.
[[noreturn]] void no_cuda_version(const char* op);

}  // namespace dhs

// DHS_LAUNCHER(launch_add, AddParams) defines launch_add(params, stream) over
// launch_add_cpu(params) and launch_add_cuda(params, stream). The CUDA version is weak: it is there
// when the program links the op's CUDA object, compiled by nvcc or for the emulator. Inside
// namespace dhs.
#define DHS_LAUNCHER(launch, Params)                                     \
  [[gnu::weak]] void launch##_cuda(const Params& params, Stream stream); \
  void launch(const Params& params, Stream stream) {                     \
    if (stream.handle == nullptr) return launch##_cpu(params);           \
    if (&launch##_cuda == nullptr) no_cuda_version(#launch);             \
    launch##_cuda(params, stream);                                       \
  }
