// Engines that take turns: one that is stopped stands between two steps, with its requests and its
// memory as they are. So what takes seconds on a shared machine disturbs all of them alike.
#pragma once

#include <absl/time/time.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "dhisparse/engine.h"

namespace dhs::bench {

class Gate {
 public:
  void open();
  // Stops the engine where its step ends; when it got there. Precondition: it makes steps.
  absl::Time close();
  // Of the engine, between two steps.
  void pass();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
  bool is_waiting_ = false;  // the engine, until it is opened
  int64_t num_openings_ = 0;
  absl::Time arrived_;
};

struct GatedEngine {
  std::shared_ptr<Gate> gate;  // open
  std::unique_ptr<Engine> engine;
};

// All threads that are started from now on stay on the processor of this one: those of a shared
// machine differ in speed, and engines would be compared by where they happen to run.
void stay_on_this_processor();

// Stops the process with a message on an error.
GatedEngine start_gated_engine(const EngineConfig& config);

}  // namespace dhs::bench
