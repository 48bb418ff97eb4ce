// Must not pass a clang build with -Wthread-safety: the plant of the thread_safety_selftest.
#include "dhisparse/sync.h"

namespace dhs {

class Counter {
 public:
  int unlocked() const { return count_; }

 private:
  mutable Mutex mutex_;
  int count_ DHS_GUARDED_BY(mutex_) = 0;
};

int read_without_the_lock(const Counter& counter) { return counter.unlocked(); }

}  // namespace dhs
