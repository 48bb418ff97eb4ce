// One thread per rank, which does all that is ever done with the rank's device.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "dhisparse/sync.h"

namespace dhs {

class RankThreads {
 public:
  explicit RankThreads(int num_ranks);
  ~RankThreads();

  // Calls body(rank) on every rank's thread at once, and returns when all calls have. One caller
  // at a time.
  void run(const std::function<void(int rank)>& body);

 private:
  void work(int rank);

  Mutex mutex_;
  Condition started_;
  Condition finished_;
  uint64_t num_runs_ DHS_GUARDED_BY(mutex_) = 0;
  const std::function<void(int)>* body_ DHS_GUARDED_BY(mutex_) = nullptr;  // null: stop
  size_t num_busy_ DHS_GUARDED_BY(mutex_) = 0;

  std::vector<std::thread> threads_;
};

}  // namespace dhs
