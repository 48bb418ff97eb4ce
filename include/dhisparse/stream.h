// An ordered queue of device work, as kernels see it. Plain data: nvcc compiles this header.
#pragma once

namespace dhs {

// The CPU backend runs every launch before it returns and its handle is null; a CUDA stream's
// handle is its cudaStream_t. Copied freely; the Device that made it owns the queue.
struct Stream {
  void* handle = nullptr;
};

}  // namespace dhs
