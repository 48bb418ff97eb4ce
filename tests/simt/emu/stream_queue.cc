#include "simt/emu/stream_queue.h"

#include <algorithm>

#include "simt/emu/device_state.h"
#include "simt/emu/graph.h"

namespace simt {

StreamQueue* StreamScheduler::create(unsigned flags, int priority, int device) {
  if (queues_.empty()) seed_ = 0;  // a test's schedule does not depend on the test before it
  auto* stream = new StreamQueue;
  stream->id = new_stream_id();
  stream->flags = flags;
  stream->priority = priority;
  stream->device = device;
  queues_.insert(stream);
  return stream;
}

void StreamScheduler::destroy(StreamQueue* stream) {
  host_saw(stream->clock);
  queues_.erase(stream);
  delete stream;
  const bool clocks_remain = device_state().num_graphs != 0 || !device_state().events.empty();
  if (!queues_.empty() || clocks_remain) return;
  next_id_ = 1;
  host_clock_ = {};
  history_.clear();
}

void StreamScheduler::push(StreamQueue& stream, QueueItem item) {
  item.ticket = next_ticket_++;
  item.known = host_clock_;
  stream.items.push_back(std::move(item));
}

// ------------------------------------------------------------------------------------- waiting

void StreamScheduler::run_all(Lock& lock) {
  const auto is_idle = [](const StreamQueue* s) { return s->items.empty(); };
  run_until([&] { return std::all_of(queues_.begin(), queues_.end(), is_idle); }, lock);
  for (const StreamQueue* stream : queues_) host_saw(stream->clock);
}

void StreamScheduler::run_all_blocking(Lock& lock) {
  const auto is_idle = [](const StreamQueue* s) {
    return s->items.empty() || (s->flags & cudaStreamNonBlocking) != 0;
  };
  run_until([&] { return std::all_of(queues_.begin(), queues_.end(), is_idle); }, lock);
  for (const StreamQueue* stream : queues_) {
    if ((stream->flags & cudaStreamNonBlocking) == 0) host_saw(stream->clock);
  }
}

void StreamScheduler::run_stream(StreamQueue& stream, Lock& lock) {
  run_until([&] { return stream.items.empty(); }, lock);
  host_saw(stream.clock);
}

void StreamScheduler::run_recording(const Recording& recording, Lock& lock) {
  run_until([&] { return recording.done; }, lock);
  host_saw(recording.clock);
}

void StreamScheduler::run_one(Lock& lock) { step(lock); }

void StreamScheduler::run_until(const std::function<bool()>& done, Lock& lock) {
  while (!done()) {
    if (step(lock)) continue;
    const auto is_busy = [](const StreamQueue* s) { return s->busy; };
    if (!std::any_of(queues_.begin(), queues_.end(), is_busy)) return;
    host_function_done_.wait(lock);
  }
}

// -------------------------------------------------------------------------------------- running

bool StreamScheduler::step(Lock& lock) {
  StreamQueue* stream = pick();
  if (stream == nullptr) return false;
  run_first(*stream, lock);
  return true;
}

// With seed 0 the item that was queued first, which is how a lightly loaded device behaves.
StreamQueue* StreamScheduler::pick() {
  if (seed_ != options().stream_seed) {
    seed_ = options().stream_seed;
    random_ = Random(seed_);
  }
  std::vector<StreamQueue*> ready;
  for (StreamQueue* stream : queues_) {
    if (stream->items.empty() || stream->busy) continue;
    const auto& awaited = stream->items.front().waits_for;
    if (awaited == nullptr || awaited->done) ready.push_back(stream);
  }
  if (ready.empty()) return nullptr;
  std::sort(ready.begin(), ready.end(), [](const StreamQueue* a, const StreamQueue* b) {
    return a->items.front().ticket < b->items.front().ticket;
  });
  return ready[random_.below(ready.size())];
}

void StreamScheduler::run_first(StreamQueue& stream, Lock& lock) {
  const QueueItem item = stream.items.front();
  stream.clock.join(item.known);
  if (item.work != nullptr && item.work->is_host_function) {
    return run_host_function(stream, lock);
  }
  if (item.graph != nullptr) {
    if (!run_node(stream, *item.graph)) return;
  } else if (item.waits_for != nullptr) {
    stream.clock.join(item.waits_for->clock);
  } else if (item.records != nullptr) {
    item.records->done = true;
    item.records->clock = stream.clock;
    item.records->time = std::chrono::steady_clock::now();
  } else {
    run_work(*item.work, stream.id, stream.clock);
  }
  if (!stream.items.empty()) stream.items.pop_front();  // empty: it failed, all were dropped
}

void StreamScheduler::run_host_function(StreamQueue& stream, Lock& lock) {
  const QueueItem item = stream.items.front();
  stream.clock.tick(stream.id);
  stream.busy = true;
  lock.unlock();
  AccessLog nothing;
  item.work->run(nothing);
  lock.lock();
  stream.busy = false;
  if (!stream.items.empty()) stream.items.pop_front();
  host_function_done_.notify_all();
}

// Runs one node of a graph. True when it was the last one.
bool StreamScheduler::run_node(StreamQueue& stream, GraphRun& run) {
  const Graph& graph = *run.exec->graph;
  const std::vector<size_t> ready = run.ready();
  if (!ready.empty()) {
    const size_t i = ready[random_.below(ready.size())];
    const GraphNode& node = graph.nodes[i];
    VectorClock& clock = run.clocks[i];
    clock.join(stream.clock);
    for (size_t before : node.after) clock.join(run.clocks[before]);
    run_work(*node.work, run.exec->branch_ids[node.branch], clock);
    run.done[i] = true;
    ++run.num_done;
  }
  if (run.num_done < graph.nodes.size()) return false;
  for (const VectorClock& clock : run.clocks) stream.clock.join(clock);
  return true;
}

void StreamScheduler::run_work(const Work& work, uint32_t stream, VectorClock& clock) {
  AccessLog touched;
  const uint32_t moment = clock.tick(stream);
  const cudaError_t error = work.run(touched);
  if (error != cudaSuccess) device_state().break_context(error);
  trace({work.name, stream, moment, std::move(touched)}, clock);
}

cudaError_t StreamScheduler::run_now(const Work& work) {
  AccessLog touched;
  const uint32_t moment = host_clock_.tick(0);
  const cudaError_t error = work.run(touched);
  trace({work.name, 0, moment, std::move(touched)}, host_clock_);
  return error;
}

void StreamScheduler::trace(ItemTrace item, const VectorClock& known) {
  if (!options().stream_races || next_id_ <= 2) return;
  if (history_.wants_pruning()) prune_history();
  for (std::string& report : history_.add(std::move(item), known)) {
    device_state().add_error(std::move(report));
    device_state().break_context(cudaErrorLaunchFailure);
  }
}

// Whatever a stream still runs comes after its clock, and after what the host had seen when the
// stream's next item was queued.
void StreamScheduler::prune_history() {
  std::vector<VectorClock> known = {host_clock_};
  for (const StreamQueue* stream : queues_) {
    known.push_back(stream->clock);
    known.back().join(stream->items.empty() ? host_clock_ : stream->items.front().known);
  }
  history_.forget(known);
}

void StreamScheduler::host_saw(const VectorClock& clock) { host_clock_.join(clock); }

void StreamScheduler::drop_all() {
  for (StreamQueue* stream : queues_) {
    for (const QueueItem& item : stream->items) {
      if (item.records != nullptr) item.records->done = true;
    }
    stream->items.clear();
  }
}

}  // namespace simt
