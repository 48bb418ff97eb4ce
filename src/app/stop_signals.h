// SIGTERM, SIGINT and SIGHUP as something to wait for, from the first moment of the process.
#pragma once

#include <thread>

#include "dhisparse/sync.h"

namespace dhs {

// Create it before any other thread: threads inherit the blocked signals. One per process.
//
// SIGTERM or SIGINT before set_ready() ends the process at once, since there is nothing to drain;
// the first one after it wakes wait(); the next one ends the process at once. Always with status 0:
// it was asked to stop. SIGHUP wakes wait() too, which may be later; several meanwhile are one.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  enum class Wish { kReload, kStop };

  void set_ready();
  // A stop goes before a reload.
  Wish wait();

 private:
  void watch();
  void on_stop_signal(int signal);
  void on_reload_signal();

  Mutex mutex_;
  bool is_ready_ DHS_GUARDED_BY(mutex_) = false;
  bool stop_wanted_ DHS_GUARDED_BY(mutex_) = false;
  bool reload_wanted_ DHS_GUARDED_BY(mutex_) = false;
  bool is_closing_ DHS_GUARDED_BY(mutex_) = false;
  Condition wanted_;
  std::thread watcher_;
};

}  // namespace dhs
