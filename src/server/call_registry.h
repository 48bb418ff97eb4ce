// The Generate calls in progress: what a drain waits for, and ends when it has waited enough.
#pragma once

#include <absl/status/status.h>
#include <absl/time/time.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>

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
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    calls_.insert(call);
    return true;
  }

  void remove(ActiveCall* call) {
    // Notified under the lock: the waiter may destroy the registry as soon as it sees it empty.
    std::lock_guard lock(mutex_);
    calls_.erase(call);
    if (calls_.empty()) empty_.notify_all();
  }

  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return calls_.size();
  }

  // False when `timeout` passed first.
  bool wait_until_empty(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    const auto is_empty = [this] { return calls_.empty(); };
    if (timeout == absl::InfiniteDuration()) {
      empty_.wait(lock, is_empty);
      return true;
    }
    return empty_.wait_for(lock, absl::ToChronoMilliseconds(timeout), is_empty);
  }

  void abort_all(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    for (ActiveCall* call : calls_) call->abort(status);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  std::set<ActiveCall*> calls_;
  bool closed_ = false;
};

}  // namespace dhs
