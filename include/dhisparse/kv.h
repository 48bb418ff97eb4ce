// kv: accounting of both memory tiers. No bytes, no CUDA, no clock: simulations drive it as it is.
//
// Host tier: one pool of host blocks. A host block is the complete state of 64 consecutive tokens
// of one sequence: the records of every index group, then the index keys of every group.
// Device tier: one pool of chunks. A chunk belongs to the index keys (required, one index item per
// host block of every running request), to the row cache of one index group (protected part
// required, the rest optional), or to nobody.
//
// A request reserves, when admitted, host blocks and index items for its final length, and its
// protected rows in every row cache. So an admitted request can always finish; one that does not
// fit now waits. Optional residency is what is left, and is given back at once when an admission
// needs it.
//
// Owned by the engine thread.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/config.h"

namespace dhs {

// ---- Geometry ---------------------------------------------------------------------------------

struct GroupGeometry {
  int32_t first_layer = 0;
  int32_t num_layers = 0;
  int64_t record_bytes = 0;   // one token, all layers of the group
  int64_t page_bytes = 0;     // index keys of one host block
  int64_t record_offset = 0;  // of the group's records within a host block
  int64_t page_offset = 0;    // of the group's page within an index item
};

// Where everything lies within a host block: [records of group 0 .. G-1][index item]. The index
// item (all groups' pages) has the same bytes on the device, so restoring one is a single copy.
struct KvGeometry {
  std::vector<GroupGeometry> groups;
  int32_t top_k = 0;
  int64_t index_item_offset = 0;
  int64_t index_item_bytes = 0;
  int64_t host_block_bytes = 0;

  int64_t records_per_chunk(int group, int64_t chunk_bytes) const {
    return chunk_bytes / groups[group].record_bytes;
  }
  int64_t index_items_per_chunk(int64_t chunk_bytes) const {
    return chunk_bytes / index_item_bytes;
  }
};

// layers_per_group: as the model's index groups; every layer has rows of row_bytes.
KvGeometry make_geometry(std::span<const int32_t> layers_per_group, int64_t row_bytes,
                         int64_t page_bytes, int32_t top_k);

struct KvCapacity {
  int32_t num_host_blocks = 0;
  int32_t num_chunks = 0;
  int64_t chunk_bytes = 0;
};

// ---- Chunk moves ------------------------------------------------------------------------------

// One change of ownership, in the order in which the store must apply it. Row caches gain and lose
// their last segment only; an index segment may be any.
struct ChunkMove {
  enum class Kind { kGrowRows, kReleaseRows, kGrowIndex, kReleaseIndex };
  Kind kind = Kind::kGrowRows;
  int32_t group = 0;  // row moves only
  int32_t segment = 0;
  ChunkId chunk;
};

// ---- The manager --------------------------------------------------------------------------------

class KvManager;

// Everything one running request holds; giving it up is the destructor's job. The manager must
// outlive it.
class SequenceMemory {
 public:
  SequenceMemory() = default;
  SequenceMemory(SequenceMemory&& other) noexcept;
  SequenceMemory& operator=(SequenceMemory&& other) noexcept;
  ~SequenceMemory();

  // Both cover positions 0 .. max_tokens-1, one entry per 64 positions.
  std::span<const HostBlockId> blocks() const { return blocks_; }
  std::span<const int32_t> index_items() const { return index_items_; }
  int64_t max_tokens() const { return max_tokens_; }

  // Which of the running requests this is: the lowest number that was free when it was admitted.
  // Together with `admission`, which is never used twice, it lets tables keep one row per request.
  int32_t index() const { return index_; }
  uint64_t admission() const { return admission_; }

 private:
  friend class KvManager;
  KvManager* manager_ = nullptr;
  int32_t index_ = -1;
  uint64_t admission_ = 0;
  int64_t max_tokens_ = 0;
  std::vector<HostBlockId> blocks_;
  std::vector<int32_t> index_items_;
};

struct KvUsage {
  int64_t host_blocks_used = 0;
  int64_t chunks_free = 0;
  int64_t chunks_index = 0;
  std::vector<int64_t> chunks_rows;  // per group
};

class KvManager {
 public:
  KvManager(KvGeometry geometry, KvCapacity capacity, ResidencyConfig residency);
  ~KvManager();

  const KvGeometry& geometry() const { return geometry_; }
  const KvCapacity& capacity() const { return capacity_; }

  // Can a request of this final length (prompt + max_tokens) ever run, alone on an empty machine?
  // RESOURCE_EXHAUSTED names the tier, what is needed and what is configured.
  absl::Status fits(int64_t max_tokens) const;

  // Whether the request fits beside those that run. Precondition: fits(max_tokens).
  bool can_admit(int64_t max_tokens) const;
  // Chunks that no running request requires: free, or optional residency.
  int64_t num_optional_chunks() const;

  // Reserves everything the request needs, taking optional residency back where necessary; nullopt
  // when it cannot be admitted. Precondition: fits(max_tokens).
  std::optional<SequenceMemory> admit(int64_t max_tokens);

  // Moves chunks towards this step's capacity targets and returns every move since the last call,
  // in order. Called once per step, after admissions.
  std::vector<ChunkMove> rebalance();

  // Blocks freed since the last call: their slots must be invalidated before anything is written.
  std::vector<HostBlockId> take_retired_blocks();

  KvUsage usage() const;

  // The first violated invariant, or empty: every chunk has one owner, every block is free or held
  // once, required capacity is covered.
  std::string check_invariants() const;

 private:
  friend class SequenceMemory;
  class IndexItems;

  int64_t protected_rows(int64_t max_tokens) const;
  int64_t required_rows(int64_t max_tokens) const;
  int64_t required_chunks(int group, int64_t rows) const;
  int64_t total_required_chunks(int64_t rows) const;
  int64_t target_chunks(int group) const;
  int most_surplus_group(int64_t rows) const;
  void grow_rows(int group);
  void release_rows(int group);
  void grow_index();
  void shrink_to(int64_t rows, int64_t num_free_wanted);
  void grow_optional();
  void release(SequenceMemory& memory);

  const KvGeometry geometry_;
  const KvCapacity capacity_;
  const ResidencyConfig residency_;
  std::unique_ptr<IndexItems> index_;
  uint64_t num_admissions_ = 0;
  std::vector<bool> index_is_held_;  // of running requests
  std::vector<bool> block_is_held_;
  std::vector<HostBlockId> free_blocks_;
  std::vector<HostBlockId> retired_blocks_;
  std::vector<ChunkId> free_chunks_;
  std::vector<std::vector<ChunkId>> row_chunks_;  // per group, by segment
  std::vector<ChunkMove> moves_;
  int64_t required_rows_ = 0;  // of all running requests, the same number in every group
  int64_t context_rows_ = 0;   // final lengths of all running requests
};

}  // namespace dhs
