#include "engine/rank_threads.h"

namespace dhs {

RankThreads::RankThreads(int num_ranks) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads_.emplace_back([this, rank] { work(rank); });
  }
}

RankThreads::~RankThreads() {
  {
    MutexLock lock(mutex_);
    body_ = nullptr;
    ++num_runs_;
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::run(const std::function<void(int)>& body) {
  MutexLock lock(mutex_);
  body_ = &body;
  num_busy_ = threads_.size();
  ++num_runs_;
  started_.notify_all();
  while (num_busy_ > 0) lock.wait(finished_);
}

void RankThreads::work(int rank) {
  uint64_t num_seen = 0;
  while (true) {
    const std::function<void(int)>* body = nullptr;
    {
      MutexLock lock(mutex_);
      while (num_runs_ == num_seen) lock.wait(started_);
      num_seen = num_runs_;
      body = body_;
    }
    if (body == nullptr) return;
    (*body)(rank);
    MutexLock lock(mutex_);
    if (--num_busy_ == 0) finished_.notify_all();
  }
}

}  // namespace dhs
