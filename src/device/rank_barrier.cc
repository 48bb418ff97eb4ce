#include "rank_barrier.h"

namespace dhs {

bool RankBarrier::arrive() {
  if (++num_arrived_ < size_) return false;
  num_arrived_ = 0;
  ++num_meetings_;
  changed_.notify_all();
  return true;
}

bool RankBarrier::enter() {
  MutexLock lock(mutex_);
  if (!status_.ok()) return false;
  const uint64_t meeting = num_meetings_;
  if (arrive()) return true;
  while (num_meetings_ == meeting && status_.ok()) lock.wait(changed_);
  return num_meetings_ != meeting;  // the last arrival counts, whatever came after it
}

void RankBarrier::exit() {
  MutexLock lock(mutex_);
  const uint64_t meeting = num_meetings_;
  if (arrive()) return;
  while (num_meetings_ == meeting) lock.wait(changed_);
}

void RankBarrier::abort(absl::Status why) {
  DHS_CHECK(!why.ok(), "an abort without a reason");
  MutexLock lock(mutex_);
  if (status_.ok()) status_ = std::move(why);
  changed_.notify_all();
}

absl::Status RankBarrier::status() const {
  MutexLock lock(mutex_);
  return status_;
}

}  // namespace dhs
