#include "simt/emu/access_log.h"

#include <algorithm>

#include "simt/emu/access_checker.h"

namespace simt {
namespace {

// How many of the latest ranges a new access may grow into. Kernels walk a few arrays in turn.
constexpr size_t kNumOpenRanges = 8;

void merge(std::vector<AddressRange>& ranges) {
  const auto by_begin = [](const AddressRange& a, const AddressRange& b) {
    return a.begin < b.begin;
  };
  std::sort(ranges.begin(), ranges.end(), by_begin);
  size_t last = 0;
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin <= ranges[last].end) {
      ranges[last].end = std::max(ranges[last].end, ranges[i].end);
    } else {
      ranges[++last] = ranges[i];
    }
  }
  if (!ranges.empty()) ranges.resize(last + 1);
}

std::optional<uintptr_t> overlap(const std::vector<AddressRange>& a,
                                 const std::vector<AddressRange>& b) {
  auto x = a.begin();
  auto y = b.begin();
  while (x != a.end() && y != b.end()) {
    const uintptr_t begin = std::max(x->begin, y->begin);
    if (begin < std::min(x->end, y->end)) return begin;
    (x->end < y->end ? x : y)++;
  }
  return std::nullopt;
}

}  // namespace

void AccessLog::add(uintptr_t address, size_t bytes, AccessKind kind) {
  auto& ranges = ranges_[size_t(kind)];
  const size_t oldest = ranges.size() > kNumOpenRanges ? ranges.size() - kNumOpenRanges : 0;
  for (size_t i = ranges.size(); i > oldest; --i) {
    AddressRange& range = ranges[i - 1];
    if (address >= range.begin && address <= range.end) {
      range.end = std::max(range.end, address + bytes);
      return;
    }
  }
  size_t& limit = compact_at_[size_t(kind)];
  if (ranges.size() >= limit) {
    merge(ranges);
    limit = std::max(limit, 2 * ranges.size());
  }
  ranges.push_back({address, address + bytes});
}

void AccessLog::add(const AccessLog& other) {
  for (size_t kind = 0; kind < kNumKinds; ++kind) {
    const auto& more = other.ranges_[kind];
    ranges_[kind].insert(ranges_[kind].end(), more.begin(), more.end());
  }
}

void AccessLog::close() {
  for (auto& ranges : ranges_) merge(ranges);
}

bool AccessLog::empty() const {
  return std::all_of(ranges_.begin(), ranges_.end(), [](const auto& r) { return r.empty(); });
}

std::optional<uintptr_t> AccessLog::find_conflict(const AccessLog& other) const {
  using enum AccessKind;
  constexpr std::pair<AccessKind, AccessKind> kConflicts[] = {
      {write, write},  {write, read},  {read, write}, {write, atomic},
      {atomic, write}, {read, atomic}, {atomic, read}};
  for (const auto& [mine, theirs] : kConflicts) {
    if (const auto address = overlap(of(mine), other.of(theirs))) return address;
  }
  return std::nullopt;
}

std::string ItemName::text() const {
  if (kernel == nullptr) return kind;
  return std::string(kind) + " at " + locate_code(static_cast<const char*>(kernel) + 1);
}

std::vector<std::string> ItemHistory::add(ItemTrace trace, const VectorClock& known) {
  std::vector<std::string> reports;
  trace.touched.close();
  for (const ItemTrace& earlier : items_) {
    if (known.at(earlier.stream) >= earlier.moment) continue;
    const auto address = trace.touched.find_conflict(earlier.touched);
    if (!address) continue;
    reports.push_back("stream race: " + trace.name.text() + " on stream " +
                      std::to_string(trace.stream) + " is not ordered after " +
                      earlier.name.text() + " on stream " + std::to_string(earlier.stream) +
                      "; both touch " + buffers().describe(*address));
  }
  if (!trace.touched.empty()) items_.push_back(std::move(trace));
  return reports;
}

void ItemHistory::forget(const std::vector<VectorClock>& known) {
  std::erase_if(items_, [&](const ItemTrace& item) {
    const auto covers = [&](const VectorClock& clock) {
      return clock.at(item.stream) >= item.moment;
    };
    return std::all_of(known.begin(), known.end(), covers);
  });
  prune_at_ = std::max<size_t>(32, 2 * items_.size());
}

}  // namespace simt
