#include "simt/emu/graph.h"

#include <algorithm>

namespace simt {

GraphRun::GraphRun(std::shared_ptr<const GraphExec> launched)
    : exec(std::move(launched)),
      done(exec->graph->nodes.size()),
      clocks(exec->graph->nodes.size()) {}

std::vector<size_t> GraphRun::ready() const {
  std::vector<size_t> nodes;
  for (size_t i = 0; i < done.size(); ++i) {
    const auto& after = exec->graph->nodes[i].after;
    const auto is_done = [&](size_t node) { return done[node]; };
    if (!done[i] && std::all_of(after.begin(), after.end(), is_done)) nodes.push_back(i);
  }
  return nodes;
}

void Capture::begin(StreamQueue& stream) {
  origin = &stream;
  join(stream, {});
}

void Capture::add(StreamQueue& stream, std::shared_ptr<const Work> work) {
  Branch& branch = branches.at(&stream);
  graph.nodes.push_back({std::move(work), branch.frontier, branch.index});
  branch.frontier = {graph.nodes.size() - 1};
}

void Capture::join(StreamQueue& stream, const std::vector<size_t>& frontier) {
  const auto [branch, is_new] = branches.try_emplace(&stream);
  if (is_new) branch->second.index = graph.num_branches++;
  for (size_t node : frontier) {
    auto& own = branch->second.frontier;
    if (std::find(own.begin(), own.end(), node) == own.end()) own.push_back(node);
  }
}

bool Capture::is_joined() const {
  std::vector<bool> reached(graph.nodes.size());
  for (size_t node : branches.at(origin).frontier) reached[node] = true;
  // Nodes come after their predecessors in the list.
  for (size_t i = graph.nodes.size(); i > 0; --i) {
    if (!reached[i - 1]) return false;
    for (size_t node : graph.nodes[i - 1].after) reached[node] = true;
  }
  return true;
}

}  // namespace simt
