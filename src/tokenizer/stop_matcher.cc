#include <absl/container/flat_hash_map.h>

#include <algorithm>

#include "dhisparse/tokenizer.h"
#include "tokenizer/utf8.h"

namespace dhs {
namespace {

constexpr int32_t kRoot = 0;

struct Node {
  int32_t fail = kRoot;  // the longest proper suffix of this prefix that is a prefix as well
  size_t num_bytes = 0;  // length of the prefix this node stands for
  std::optional<size_t> stop_idx;  // the longest stop string this prefix ends with
  size_t stop_bytes = 0;           // its length
};

uint64_t child_key(int32_t node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
}

absl::Status check_stop(const std::string& stop, size_t idx, const StopOptions& options) {
  if (stop.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("stop string ", idx, " is empty; remove it"));
  }
  if (stop.size() > options.max_stop_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("stop string ", idx, " has ", stop.size(),
                                                   " bytes; the limit is ", options.max_stop_bytes,
                                                   "; use a shorter one"));
  }
  if (const auto invalid = find_invalid_utf8(stop)) {
    return absl::InvalidArgumentError(
        absl::StrCat("stop string ", idx, " is not UTF-8 at byte ", *invalid, "; send UTF-8"));
  }
  return absl::OkStatus();
}

}  // namespace

// Aho-Corasick. The state after some text is the longest suffix of it that is a prefix of a stop
// string, which is exactly what has to be held back.
struct StopMatcher::Automaton {
  void insert(std::string_view stop, size_t stop_idx);
  void link(std::string_view stop);
  int32_t step(int32_t node, char byte) const;

  std::vector<Node> nodes = {Node{}};
  absl::flat_hash_map<uint64_t, int32_t> children;
};

void StopMatcher::Automaton::insert(std::string_view stop, size_t stop_idx) {
  int32_t node = kRoot;
  for (const char byte : stop) {
    const auto [it, is_new] =
        children.try_emplace(child_key(node, byte), static_cast<int32_t>(nodes.size()));
    const size_t num_bytes = nodes[node].num_bytes + 1;
    node = it->second;
    if (is_new) nodes.emplace_back().num_bytes = num_bytes;
  }
  if (nodes[node].stop_idx) return;  // a duplicate; the first counts
  nodes[node].stop_idx = stop_idx;
  nodes[node].stop_bytes = stop.size();
}

// Sets the fail links along one stop string. They point to shorter prefixes, so calls must go
// through the strings level by level; see create().
void StopMatcher::Automaton::link(std::string_view prefix) {
  int32_t parent = kRoot;
  for (const char byte : prefix.substr(0, prefix.size() - 1)) {
    parent = children.at(child_key(parent, byte));
  }
  const int32_t node = children.at(child_key(parent, prefix.back()));
  Node& linked = nodes[node];
  linked.fail = parent == kRoot ? kRoot : step(nodes[parent].fail, prefix.back());
  if (!linked.stop_idx) {
    linked.stop_idx = nodes[linked.fail].stop_idx;
    linked.stop_bytes = nodes[linked.fail].stop_bytes;
  }
}

int32_t StopMatcher::Automaton::step(int32_t node, char byte) const {
  while (true) {
    const auto it = children.find(child_key(node, byte));
    if (it != children.end()) return it->second;
    if (node == kRoot) return kRoot;
    node = nodes[node].fail;
  }
}

StopMatcher::StopMatcher(std::unique_ptr<const Automaton> automaton, bool include_stop_in_output)
    : automaton_(std::move(automaton)), include_stop_in_output_(include_stop_in_output) {}
StopMatcher::StopMatcher(StopMatcher&&) noexcept = default;
StopMatcher& StopMatcher::operator=(StopMatcher&&) noexcept = default;
StopMatcher::~StopMatcher() = default;

absl::StatusOr<StopMatcher> StopMatcher::create(std::span<const std::string> stops,
                                                const StopOptions& options) {
  if (stops.size() > options.max_num_stops) {
    return absl::InvalidArgumentError(absl::StrCat(stops.size(), " stop strings; the limit is ",
                                                   options.max_num_stops, "; send fewer"));
  }
  auto automaton = std::make_unique<Automaton>();
  size_t longest = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    DHS_RETURN_IF_ERROR(check_stop(stops[i], i, options));
    automaton->insert(stops[i], i);
    longest = std::max(longest, stops[i].size());
  }
  for (size_t num_bytes = 1; num_bytes <= longest; ++num_bytes) {
    for (const std::string& stop : stops) {
      if (num_bytes <= stop.size()) automaton->link(std::string_view(stop).substr(0, num_bytes));
    }
  }
  return StopMatcher(std::move(automaton), options.include_stop_in_output);
}

StopMatcher::Output StopMatcher::push(std::string_view text) {
  Output output;
  if (stopped_) return output;
  for (size_t i = 0; i < text.size(); ++i) {
    state_ = automaton_->step(state_, text[i]);
    const Node& node = automaton_->nodes[state_];
    if (!node.stop_idx) continue;
    const int64_t end = num_bytes_ + static_cast<int64_t>(i) + 1;
    const int64_t begin = end - static_cast<int64_t>(node.stop_bytes);
    const int64_t output_end = include_stop_in_output_ ? end : begin;
    const int64_t output_begin = num_bytes_ - static_cast<int64_t>(held_.size());
    DHS_CHECK(output_begin <= output_end, "text of a stop string was given out too early");
    output.text = std::move(held_);
    output.text += text.substr(0, i + 1);
    output.text.resize(static_cast<size_t>(output_end - output_begin));
    output.match = StopMatch{*node.stop_idx, begin, end};
    held_.clear();
    stopped_ = true;
    return output;
  }
  num_bytes_ += static_cast<int64_t>(text.size());
  output.text = std::move(held_);
  output.text += text;
  const size_t num_final = output.text.size() - automaton_->nodes[state_].num_bytes;
  held_ = output.text.substr(num_final);
  output.text.resize(num_final);
  return output;
}

std::string StopMatcher::flush() { return std::exchange(held_, std::string()); }

}  // namespace dhs
