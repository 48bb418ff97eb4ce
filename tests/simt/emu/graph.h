// Captured work: nodes and which nodes each comes after.
#pragma once

#include <driver_types.h>

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "simt/emu/stream_queue.h"

namespace simt {

struct GraphNode {
  std::shared_ptr<const Work> work;
  std::vector<size_t> after;
  // Which of the captured streams it was issued to.
  size_t branch = 0;
};

struct Graph {
  std::vector<GraphNode> nodes;
  size_t num_branches = 0;
};

// A graph that can be launched. Its launches never overlap, so branches keep their clock numbers.
struct GraphExec {
  std::shared_ptr<const Graph> graph;
  std::vector<uint32_t> branch_ids;
};

// One launch of a graph, as an item of a stream.
struct GraphRun {
  std::shared_ptr<const GraphExec> exec;
  std::vector<bool> done;
  std::vector<VectorClock> clocks;
  size_t num_done = 0;

  explicit GraphRun(std::shared_ptr<const GraphExec> launched);
  // Nodes whose predecessors are done.
  std::vector<size_t> ready() const;
};

// A capture in progress. An event recorded in it stands for the frontier of its stream: the nodes
// that whoever waits for it comes after.
struct Capture {
  StreamQueue* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool active = true;
  bool invalid = false;
  Graph graph;
  struct Branch {
    size_t index = 0;
    std::vector<size_t> frontier;
  };
  std::map<StreamQueue*, Branch> branches;

  void begin(StreamQueue& stream);
  void add(StreamQueue& stream, std::shared_ptr<const Work> work);
  // `stream` goes on after `frontier`, and is captured from now on.
  void join(StreamQueue& stream, const std::vector<size_t>& frontier);
  // Whether the origin comes after everything.
  bool is_joined() const;
};

struct Event {
  unsigned flags = 0;
  std::shared_ptr<Recording> recording;  // the latest; null: never recorded
  std::shared_ptr<Capture> capture;      // set when the latest record was captured
  std::vector<size_t> frontier;
};

}  // namespace simt
