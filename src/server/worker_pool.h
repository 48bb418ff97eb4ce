// Threads for work too long for gRPC's own: parsing and tokenizing prompts of many megabytes there
// would stall every other stream and the health checks.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "dhisparse/sync.h"

namespace dhs {

class WorkerPool {
 public:
  WorkerPool(int num_threads, size_t max_num_queued) : jobs_(max_num_queued) {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] {
        while (auto job = jobs_.pop()) (*job)();
      });
    }
  }

  // Runs what is queued, then joins.
  ~WorkerPool() {
    jobs_.close();
    for (std::thread& thread : threads_) thread.join();
  }

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full: the job will not run.
  bool try_run(std::function<void()> job) { return jobs_.try_push(job); }

 private:
  BoundedQueue<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
};

}  // namespace dhs
