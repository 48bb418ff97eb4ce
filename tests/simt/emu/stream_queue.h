// Streams as in-order queues of items. Nothing runs when it is queued: work runs when the host
// waits, and then a seeded choice says which stream's first item is next. So an order that no
// event demands is, for some seed, not kept.
#pragma once

#include <driver_types.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "simt/emu/access_log.h"
#include "simt/emu/random.h"
#include "simt/emu/vector_clock.h"

namespace simt {

struct Capture;
struct GraphRun;

// One record of an event, passed when its stream has come so far.
struct Recording {
  bool done = false;
  VectorClock clock;
  std::chrono::steady_clock::time_point time;
};

// A launch, a copy, a fill or a host function: what a queue and a graph hold alike.
struct Work {
  ItemName name;
  // Adds to the log what the emulator does not see for itself.
  std::function<cudaError_t(AccessLog&)> run;
  // Called without the emulator's lock: it may take its time, and may wait for other threads.
  bool is_host_function = false;
};

// Exactly one of the four is set.
struct QueueItem {
  std::shared_ptr<const Work> work;
  std::shared_ptr<Recording> records;
  std::shared_ptr<const Recording> waits_for;
  std::shared_ptr<GraphRun> graph;
  // Filled when queued: its place among all items, and what the host had seen finished by then.
  uint64_t ticket = 0;
  VectorClock known;
};

struct StreamQueue {
  uint32_t id = 0;
  unsigned flags = 0;
  int priority = 0;
  int device = 0;
  bool busy = false;  // its host function runs
  std::deque<QueueItem> items;
  VectorClock clock;
  std::shared_ptr<Capture> capture;  // null: not capturing
};

// All streams. Every function is called with the emulator's lock held, which run_* may release
// around host functions.
class StreamScheduler {
 public:
  using Lock = std::unique_lock<std::mutex>;

  StreamQueue* create(unsigned flags, int priority, int device);
  // The stream has no items left.
  void destroy(StreamQueue* stream);
  bool is_alive(const StreamQueue* stream) const { return queues_.contains(stream); }
  size_t num_streams() const { return queues_.size(); }

  void push(StreamQueue& stream, QueueItem item);
  // A clock number of its own, for one branch of a graph.
  uint32_t new_stream_id() { return next_id_++; }

  // Run items until the condition holds or the context is broken.
  void run_all(Lock& lock);
  void run_all_blocking(Lock& lock);  // streams that the default stream waits for
  void run_stream(StreamQueue& stream, Lock& lock);
  void run_recording(const Recording& recording, Lock& lock);
  // One item of some stream, for those who ask again and again.
  void run_one(Lock& lock);

  // Runs on the calling thread, as on the default stream: after all that the host has seen.
  cudaError_t run_now(const Work& work);
  void host_saw(const VectorClock& clock);
  // After a failure nothing that is queued runs any more.
  void drop_all();

 private:
  void run_until(const std::function<bool()>& done, Lock& lock);
  bool step(Lock& lock);
  StreamQueue* pick();
  void run_first(StreamQueue& stream, Lock& lock);
  void run_work(const Work& work, uint32_t stream, VectorClock& clock);
  void run_host_function(StreamQueue& stream, Lock& lock);
  bool run_node(StreamQueue& stream, GraphRun& run);
  void trace(ItemTrace item, const VectorClock& known);
  void prune_history();

  std::set<StreamQueue*, std::less<>> queues_;
  std::condition_variable host_function_done_;
  Random random_;
  uint64_t seed_ = 0;
  uint64_t next_ticket_ = 1;
  uint32_t next_id_ = 1;  // 0 is the default stream
  VectorClock host_clock_;
  ItemHistory history_;
};

}  // namespace simt
