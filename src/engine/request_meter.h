// Keeps the figures of requests: hears of every output as it leaves for its sink.
//
// Owned by the output thread; figures() is for any thread.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/time/time.h>

#include "dhisparse/base.h"
#include "dhisparse/figures.h"
#include "dhisparse/sync.h"

namespace dhs {

class RequestMeter {
 public:
  void on_tokens(RequestId request, absl::Time arrived, int64_t num_tokens, absl::Time now);
  void on_finished(RequestId request, absl::Time arrived, const Finished& finished, absl::Time now);

  RequestFigures figures() const;

 private:
  struct Progress {
    int64_t num_tokens = 0;
    absl::Time first;
    absl::Time latest;
  };

  absl::flat_hash_map<RequestId, Progress> progress_;  // output thread only
  mutable Mutex mutex_;
  RequestFigures figures_ DHS_GUARDED_BY(mutex_);
};

}  // namespace dhs
