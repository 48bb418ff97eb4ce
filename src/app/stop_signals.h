// SIGTERM and SIGINT as something to wait for, from the first moment of the process.
#pragma once

#include <thread>

#include "dhisparse/sync.h"

namespace dhs {

// Create it before any other thread: threads inherit the blocked signals. One per process.
//
// A signal before set_ready() ends the process at once, since there is nothing to drain; the first
// one after it wakes wait(); the next one ends the process at once. Always with status 0: it was
// asked to stop. SIGHUP is logged and ignored.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void set_ready();
  void wait();

 private:
  void watch();
  void on_stop_signal(int signal);

  Mutex mutex_;
  bool is_ready_ DHS_GUARDED_BY(mutex_) = false;
  bool stop_wanted_ DHS_GUARDED_BY(mutex_) = false;
  bool is_closing_ DHS_GUARDED_BY(mutex_) = false;
  Condition wanted_;
  std::thread watcher_;
};

}  // namespace dhs
