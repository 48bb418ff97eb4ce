// The bytes that one item of a stream touched, and the search for items that touch the same bytes
// although nothing orders them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simt/emu/fiber.h"
#include "simt/emu/runtime.h"
#include "simt/emu/vector_clock.h"

namespace simt {

// Ranges of global memory by kind of access. Cheap to add to: neighbours grow into one range.
class AccessLog {
 public:
  void add(uintptr_t address, size_t bytes, AccessKind kind);
  void add(const AccessLog& other);
  // Sorts and merges. find_conflict needs it done on both sides.
  void close();
  bool empty() const;

  // The first address at which the two conflict: one of them writes, or mixes plain and atomic.
  std::optional<uintptr_t> find_conflict(const AccessLog& other) const;

 private:
  static constexpr size_t kNumKinds = 3;
  const std::vector<AddressRange>& of(AccessKind kind) const { return ranges_[size_t(kind)]; }

  std::array<std::vector<AddressRange>, kNumKinds> ranges_;
  std::array<size_t, kNumKinds> compact_at_ = {4096, 4096, 4096};
};

// What ran, as reports name it: "kernel at gemm.cu:31", "copy", ...
struct ItemName {
  const char* kind = "";
  const void* kernel = nullptr;

  std::string text() const;
};

// One finished item.
struct ItemTrace {
  ItemName name;
  uint32_t stream = 0;
  uint32_t moment = 0;
  AccessLog touched;
};

// The finished items that later ones may still be unordered with.
class ItemHistory {
 public:
  // Compares with all earlier items that `known` does not cover, and remembers the item. Returns
  // reports.
  std::vector<std::string> add(ItemTrace trace, const VectorClock& known);
  bool wants_pruning() const { return items_.size() >= prune_at_; }
  // Nothing that is still to come can be unordered with what all of `known` cover.
  void forget(const std::vector<VectorClock>& known);
  void clear() { items_.clear(); }

 private:
  std::vector<ItemTrace> items_;
  size_t prune_at_ = 32;
};

}  // namespace simt
