// sync: what threads share. A mutex whose use the compiler checks, and a bounded queue.
//
// Data that a mutex guards says so (DHS_GUARDED_BY), a function that needs it held says so
// (DHS_REQUIRES); a clang build with -Wthread-safety then refuses code that forgets the lock. Wait
// in a loop over the condition, not with a predicate: the analysis does not look into lambdas.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#if defined(__clang__)
#define DHS_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define DHS_THREAD_ANNOTATION(x)
#endif
#define DHS_CAPABILITY(name) DHS_THREAD_ANNOTATION(capability(name))
#define DHS_SCOPED_CAPABILITY DHS_THREAD_ANNOTATION(scoped_lockable)
#define DHS_GUARDED_BY(mutex) DHS_THREAD_ANNOTATION(guarded_by(mutex))
#define DHS_REQUIRES(...) DHS_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define DHS_ACQUIRE(...) DHS_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define DHS_RELEASE(...) DHS_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace dhs {

class DHS_CAPABILITY("mutex") Mutex {
 public:
  void lock() DHS_ACQUIRE() { mutex_.lock(); }
  void unlock() DHS_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

using Condition = std::condition_variable_any;

// Holds the mutex for its lifetime.
class DHS_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) DHS_ACQUIRE(mutex) : mutex_(mutex) { mutex.lock(); }
  ~MutexLock() DHS_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // Lets go of the mutex, waits for a notification (or none: wake-ups can be spurious), takes it
  // again.
  void wait(Condition& condition) { condition.wait(mutex_); }
  // The same until `deadline` at most; false when that has passed.
  bool wait_until(Condition& condition, std::chrono::steady_clock::time_point deadline) {
    return condition.wait_until(mutex_, deadline) == std::cv_status::no_timeout;
  }

 private:
  Mutex& mutex_;
};

// Multi-producer, multi-consumer queue with a limit. Closing wakes everyone; what is queued can
// still be popped.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False when full or closed; `value` is then untouched.
  bool try_push(T& value) {
    {
      MutexLock lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(value));
    }
    not_empty_.notify_one();
    return true;
  }

  // Waits for room; false once the queue is closed.
  bool push(T value) {
    {
      MutexLock lock(mutex_);
      while (!closed_ && items_.size() >= capacity_) lock.wait(not_full_);
      if (closed_) return false;
      items_.push_back(std::move(value));
    }
    not_empty_.notify_one();
    return true;
  }

  std::optional<T> try_pop() {
    MutexLock lock(mutex_);
    return take();
  }

  // Waits for an item; nullopt once the queue is closed and empty.
  std::optional<T> pop() {
    MutexLock lock(mutex_);
    while (!closed_ && items_.empty()) lock.wait(not_empty_);
    return take();
  }

  // Waits until `deadline` at most; nullopt when nothing came.
  std::optional<T> pop_until(std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (!closed_ && items_.empty() && lock.wait_until(not_empty_, deadline)) {
    }
    return take();
  }

  void close() {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    not_empty_.notify_all();
    not_full_.notify_all();
  }

  size_t size() const {
    MutexLock lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> take() DHS_REQUIRES(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    not_full_.notify_one();
    return value;
  }

  const size_t capacity_;
  mutable Mutex mutex_;
  Condition not_empty_;
  Condition not_full_;
  std::deque<T> items_ DHS_GUARDED_BY(mutex_);
  bool closed_ DHS_GUARDED_BY(mutex_) = false;
};

}  // namespace dhs
