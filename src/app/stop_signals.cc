#include "app/stop_signals.h"

#include <signal.h>

#include <cstdlib>
#include <cstring>

#include "dhisparse/base.h"

namespace dhs {
namespace {

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

StopSignals::StopSignals() {
  const sigset_t set = watched_signals();
  DHS_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0, "the signal set is valid");
  signal(SIGPIPE, SIG_IGN);  // a closed log pipe must not end the daemon
  watcher_ = std::thread([this] { watch(); });
}

StopSignals::~StopSignals() {
  {
    MutexLock lock(mutex_);
    is_closing_ = true;
  }
  pthread_kill(watcher_.native_handle(), SIGTERM);
  watcher_.join();
}

void StopSignals::set_ready() {
  MutexLock lock(mutex_);
  is_ready_ = true;
}

StopSignals::Wish StopSignals::wait() {
  MutexLock lock(mutex_);
  while (!stop_wanted_ && !reload_wanted_) lock.wait(wanted_);
  if (stop_wanted_) return Wish::kStop;
  reload_wanted_ = false;
  return Wish::kReload;
}

void StopSignals::watch() {
  const sigset_t set = watched_signals();
  for (;;) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    {
      MutexLock lock(mutex_);
      if (is_closing_) return;
    }
    if (signal == SIGHUP) {
      on_reload_signal();
    } else {
      on_stop_signal(signal);
    }
  }
}

void StopSignals::on_reload_signal() {
  log_info("SIGHUP: reloading the configuration");
  MutexLock lock(mutex_);
  reload_wanted_ = true;
  wanted_.notify_all();
}

void StopSignals::on_stop_signal(int signal) {
  const std::string name = strsignal(signal);
  MutexLock lock(mutex_);
  if (!is_ready_ || stop_wanted_) {
    log_warning(name, is_ready_ ? " again: stopping without draining" : ": stopping during start");
    std::_Exit(0);
  }
  log_info(name, ": draining; send it again to stop at once");
  stop_wanted_ = true;
  wanted_.notify_all();
}

}  // namespace dhs
