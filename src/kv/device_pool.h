// The pool of chunks: which belong to the index keys, which to draft pages, which to which row
// cache, which to nobody.
//
// Required: the index items that requests cover, the draft pages that their drafts read, and in
// every row cache the rows that the mode promises them. The rest is optional residency in adaptive
// mode, otherwise free.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dhisparse/config.h"
#include "dhisparse/kv_geometry.h"
#include "dhisparse/kv_usage.h"
#include "kv/block_items.h"

namespace dhs {

// What requests require. Index items and draft pages are shared, rows are not: in resident mode
// rows follow the items, otherwise every request brings its own.
struct DeviceNeed {
  int64_t items = 0;
  int64_t pages = 0;
  int64_t own_rows = 0;
};

class DevicePool {
 public:
  DevicePool(const KvGeometry& geometry, const KvCapacity& capacity,
             const ResidencyConfig& residency);

  using Need = DeviceNeed;
  // Of a request that covers this many tokens, alone, with as many pages as it can come to; and the
  // most it can become with other set_decode_rows().
  Need need_of(int64_t num_tokens, int64_t decode_rows) const;
  Need need_of(int64_t num_tokens) const { return need_of(num_tokens, decode_rows_); }
  Need largest_need_of(int64_t num_tokens) const {
    return need_of(num_tokens, geometry_.decode_rows);
  }

  // For that need on an empty machine: chunks, and what of them it uses.
  int64_t chunks_for(const Need& need) const;
  int64_t bytes_for(const Need& need) const;
  // Whether it fits on top of what is required now; at best: if the items and pages in use lay
  // close together and `freed` of the need were given up.
  bool fits(const Need& more) const;
  bool could_fit(const Need& more, const Need& freed) const;

  // Takes optional residency back until the need is covered. Precondition: fits().
  void add(const Need& more);
  // Row requirements only: items and pages are given back one by one.
  void remove_rows(int64_t own_rows);
  // Promises other rows to requests that cover so many tokens each; false, and nothing changed,
  // when they do not fit so.
  bool set_residency(const ResidencyConfig& residency, std::span<const int64_t> device_tokens) {
    return promise(residency, decode_rows_, device_tokens);
  }
  bool set_decode_rows(int64_t rows, std::span<const int64_t> device_tokens) {
    return promise(residency_, rows, device_tokens);
  }

  const BlockItems& items() const { return items_; }
  BlockItems::Held hold_item(HostBlockId block) { return items_.hold(block); }
  void release_item(HostBlockId block);
  const BlockItems& pages() const { return pages_; }
  BlockItems::Held hold_page(HostBlockId block) { return pages_.hold(block); }
  void release_page(HostBlockId block);

  // How optional residency is to be (residency_controller.h).
  struct Policy {
    int64_t headroom_chunks = 0;
    int64_t growth_chunks = INT64_MAX;
    int64_t floor_rows = 0;  // of a group, on average, that growth may reach whatever its limit
    std::span<const double> weights;  // by group
  };
  // Moves chunks towards their targets; every move since the last call, in order.
  std::vector<ChunkMove> rebalance(const Policy& policy);
  // Whether a requirement has taken optional residency back since the last call.
  bool take_pressed() { return std::exchange(is_pressed_, false); }
  int64_t num_required() const { return num_chunks_ - num_optional(); }

  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_row_chunks(int group) const { return static_cast<int64_t>(rows_[group].size()); }
  int64_t num_required_chunks(int group) const { return chunks_of_rows(group, required_rows()); }
  int64_t num_optional() const;
  const ChunkCounts& row_moves(int group) const { return row_moves_[group]; }
  const ChunkCounts& index_moves() const { return index_moves_; }
  const ChunkCounts& draft_moves() const { return draft_moves_; }
  // device_tokens: that each request covers.
  std::string check_invariants(std::span<const int64_t> device_tokens) const;

 private:
  bool promise(ResidencyConfig residency, int64_t decode_rows,
               std::span<const int64_t> device_tokens);
  int64_t num_groups() const { return static_cast<int64_t>(rows_.size()); }
  int64_t num_segments() const { return items_.num_segments() + pages_.num_segments(); }
  int64_t own_rows_of(std::span<const int64_t> device_tokens) const;
  int64_t required_rows(int64_t own_rows, int64_t items) const;
  int64_t required_rows() const { return required_rows(own_rows_, items_.num_used()); }
  int64_t chunks_of_rows(int group, int64_t rows) const;
  int64_t chunks_of_all_rows(int64_t rows) const;
  int64_t target_chunks(int group) const;
  // Rows that so many chunks hold, in proportion to the group's weight.
  double fill(int group, int64_t chunks) const;
  int fullest_group(int64_t rows) const;
  int emptiest_group() const;
  ChunkId take_free();
  void grow_rows(int group);
  void release_rows(int group);
  void grow_index();
  void grow_draft();
  void shrink_to(int64_t rows, int64_t num_free_wanted);
  void keep_free(int64_t num_chunks);
  void grow_optional(const Policy& policy);
  void even_out();

  const KvGeometry& geometry_;
  const int32_t num_chunks_;
  const int64_t chunk_bytes_;
  ResidencyConfig residency_;
  int64_t decode_rows_;  // up to the geometry's
  BlockItems items_;
  BlockItems pages_;
  std::vector<ChunkId> free_;
  std::vector<std::vector<ChunkId>> rows_;  // per group, by segment
  std::vector<ChunkMove> moves_;
  std::vector<ChunkCounts> row_moves_;  // per group
  ChunkCounts index_moves_;
  ChunkCounts draft_moves_;
  std::vector<double> weights_;  // by group
  int64_t own_rows_ = 0;         // of all requests, the same number in every group
  bool is_pressed_ = false;
};

}  // namespace dhs
