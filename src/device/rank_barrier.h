// Where the threads of a group of ranks meet, and where one of them can call the meeting off.
#pragma once

#include <string>

#include "dhisparse/base.h"
#include "dhisparse/sync.h"

namespace dhs {

// Thread-safe. An exchange enters, touches what the others published, and exits; only entering can
// be called off, so nobody's memory goes away while another rank is at it.
class RankBarrier {
 public:
  explicit RankBarrier(int size) : size_(size) {}

  // Waits for all ranks. False: aborted, at the same place for every rank that waited here.
  bool enter();
  // Waits for all ranks that have entered, which is all of them.
  void exit();

  // The first reason stays.
  void abort(absl::Status why);
  absl::Status status() const;

 private:
  // True for the last to arrive: everyone may go on.
  bool arrive() DHS_REQUIRES(mutex_);

  const int size_;
  mutable Mutex mutex_;
  Condition changed_;
  int num_arrived_ DHS_GUARDED_BY(mutex_) = 0;
  uint64_t num_meetings_ DHS_GUARDED_BY(mutex_) = 0;
  absl::Status status_ DHS_GUARDED_BY(mutex_);
};

}  // namespace dhs
