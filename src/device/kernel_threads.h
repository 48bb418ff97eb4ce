// The CPU backend's threads: a team that runs the pieces of one job at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dhs {

// A job is open from run() until its caller has seen all pieces taken; a helper joins an open job,
// takes pieces until none is left, and leaves. The caller works too, so a helper that wakes late
// costs nothing: it finds the job closed. Helpers spin briefly between jobs, since kernels follow
// each other within microseconds, and sleep otherwise.
class KernelThreads {
 public:
  // num_threads counts the caller: KernelThreads(1) has no helpers.
  explicit KernelThreads(int num_threads);
  ~KernelThreads();

  int num_threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls piece(i) once for every i in [0, num_pieces), on any thread of the team, and returns when
  // all calls have. One caller at a time: a second one runs its pieces alone.
  void run(int64_t num_pieces, const std::function<void(int64_t)>& piece);

 private:
  void help();
  bool wait_for_job(uint32_t seen);
  bool join();
  void work();

  // generation << 32 | kOpen | helpers that have joined: one word, so that joining and closing
  // cannot miss each other. The job below changes only while nobody has joined a closed job.
  static constexpr uint64_t kOpen = uint64_t{1} << 31;
  static constexpr uint64_t kJoined = kOpen - 1;
  std::atomic<uint64_t> state_{0};
  std::atomic<uint32_t> num_jobs_{0};  // what helpers wait on
  std::atomic<uint32_t> num_sleeping_{0};
  std::atomic<bool> stopping_{false};

  std::atomic<int64_t> next_piece_{0};
  int64_t num_pieces_ = 0;
  const std::function<void(int64_t)>* piece_ = nullptr;

  std::mutex callers_;
  std::vector<std::thread> helpers_;
};

}  // namespace dhs
