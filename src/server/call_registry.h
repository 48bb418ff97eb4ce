// The Generate calls in progress: what a drain waits for, and ends when it has waited enough.
#pragma once

#include <absl/status/status.h>
#include <absl/time/time.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "dhisparse/sync.h"

namespace dhs {

class ActiveCall {
 public:
  virtual ~ActiveCall() = default;
  // Ends the call soon with `status`. Must not call back into the registry.
  virtual void abort(const absl::Status& status) = 0;
};

// Any thread may call any method. A call must be removed before it is destroyed.
class CallRegistry {
 public:
  // False once closed.
  bool add(ActiveCall* call) {
    MutexLock lock(mutex_);
    if (closed_) return false;
    calls_.insert(call);
    return true;
  }

  void remove(ActiveCall* call) {
    // Notified under the lock: the waiter may destroy the registry as soon as it sees it empty.
    MutexLock lock(mutex_);
    calls_.erase(call);
    if (calls_.empty()) empty_.notify_all();
  }

  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }

  bool closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }

  size_t size() const {
    MutexLock lock(mutex_);
    return calls_.size();
  }

  // False when `timeout` passed first.
  bool wait_until_empty(absl::Duration timeout) {
    const absl::Duration longest = std::min(timeout, absl::Hours(24 * 365));
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(longest);
    MutexLock lock(mutex_);
    while (!calls_.empty() && lock.wait_until(empty_, deadline)) {
    }
    return calls_.empty();
  }

  void abort_all(const absl::Status& status) {
    MutexLock lock(mutex_);
    for (ActiveCall* call : calls_) call->abort(status);
  }

 private:
  mutable Mutex mutex_;
  Condition empty_;
  std::set<ActiveCall*> calls_ DHS_GUARDED_BY(mutex_);
  bool closed_ DHS_GUARDED_BY(mutex_) = false;
};

}  // namespace dhs
