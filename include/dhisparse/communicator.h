// Exchange of data between the ranks of one process: one rank per device, each used by one thread.
//
// Every rank calls the same functions in the same order with the same sizes. `send`, `receive` and
// `data` lie in memory of the rank's own device (on the CPU: anywhere); they stay untouched by the
// caller until the work on `stream` is done. Sizes of 0 are legal and still meet the others.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "dhisparse/stream.h"

namespace dhs {

class Communicator {
 public:
  // Leaves the group: whoever waits for this rank, or will, gets an abort instead. Device work that
  // uses the communicator is done before.
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // receive[r * bytes ...] = the `bytes` of rank r. `send` may be this rank's place in `receive`.
  virtual void all_gather(const void* send, void* receive, int64_t bytes, Stream stream) = 0;
  // data[i] = sum over the ranks, the same bits on every rank.
  virtual void all_reduce_sum(float* data, int64_t count, Stream stream) = 0;
  // receive[i] = sum over the ranks of send[rank() * count + i], for i < count. `receive` may be
  // this rank's place in `send`.
  virtual void reduce_scatter_sum(const float* send, float* receive, int64_t count,
                                  Stream stream) = 0;
  // data = the root's.
  virtual void broadcast(void* data, int64_t bytes, int root, Stream stream) = 0;
  // Returns when every rank has called it. Of the threads only: it waits for no stream.
  virtual void barrier() = 0;

  // Whether the exchanges are only queued, so that a stream's capture can record them.
  virtual bool can_be_captured() const = 0;

  // Ends the whole group, from any thread: every rank that waits returns, later calls do nothing,
  // and what an interrupted exchange has written is unspecified.
  virtual void abort() = 0;
  // OK, or why exchanges do nothing any more. To be asked before results are used.
  virtual absl::Status status() const = 0;
};

// Ranks of threads in this process, on CPU or CUDA streams. Sums are taken in ascending order of
// rank. An exchange is done when it returns, and waits for the stream: exact, not fast.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int size);

// Ranks on GPUs through NCCL, rank i on ordinals[i]; exchanges are queued on the stream. NCCL
// chooses the order of a sum by its size: with more than two ranks the bits of an element may
// depend on how many others are summed with it. FAILED_PRECONDITION without CUDA, a GPU or NCCL.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> make_nccl_communicators(
    const std::vector<int>& ordinals);

// Lets each of these GPUs address the memory of every other one.
absl::Status enable_peer_access(const std::vector<int>& ordinals);

}  // namespace dhs
