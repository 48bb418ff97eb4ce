// Where the state of a token lies in both memory tiers, and how ownership of memory changes.
//
// Plain data: the accounting (kv.h) makes it, the store (store.h) carries it out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dhisparse/base.h"

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

// Where everything lies within a host block: [records of group 0 .. G-1][index item][draft page].
// The index item (all groups' pages) and the draft page have the same bytes on the device, so
// restoring one is a single copy.
struct KvGeometry {
  std::vector<GroupGeometry> groups;
  int32_t top_k = 0;
  // Rows of a group that a request's decode step wants at once: what its query rows select, and
  // those it writes.
  int64_t decode_rows = 0;
  int64_t index_item_offset = 0;
  int64_t index_item_bytes = 0;
  int64_t draft_page_offset = 0;
  int64_t draft_page_bytes = 0;  // 0: no draft, or one without pages
  int64_t draft_window = 0;      // tokens of context that a draft block reads; 0: all
  int64_t host_block_bytes = 0;

  int64_t records_per_chunk(int group, int64_t chunk_bytes) const {
    return chunk_bytes / groups[group].record_bytes;
  }
  int64_t index_items_per_chunk(int64_t chunk_bytes) const {
    return chunk_bytes / index_item_bytes;
  }
  int64_t draft_pages_per_chunk(int64_t chunk_bytes) const {
    return draft_page_bytes == 0 ? 0 : chunk_bytes / draft_page_bytes;
  }
  // The first host block of a request that has a draft page, where it covers num_blocks: where the
  // window begins that its next draft reads; num_blocks: none has one. known_tokens: that it has by
  // then at least, the newest of them without KV.
  int64_t first_draft_page(int64_t known_tokens, int64_t num_blocks) const;
  // The most pages of such a request: a window overlaps one block more than it fills, and what is
  // to be verified lies in another.
  int64_t max_num_draft_pages(int64_t num_blocks) const;
};

struct DraftPages {
  int64_t page_bytes = 0;  // K and V of the draft's context, of one host block; 0: none
  int64_t window = 0;      // tokens of context that a draft block reads; 0: all
};

// layers_per_group: as the model's index groups; every layer has rows of row_bytes. decode_rows is
// that of one query row.
KvGeometry make_geometry(std::span<const int32_t> layers_per_group, int64_t row_bytes,
                         int64_t page_bytes, int32_t top_k, DraftPages draft = {});

struct KvCapacity {
  int32_t num_host_blocks = 0;
  int32_t num_chunks = 0;
  int64_t chunk_bytes = 0;
  int64_t link_bytes_per_s = 0;  // between the tiers; 0: not known
};

// ---- Chunk moves ------------------------------------------------------------------------------

// One change of ownership, in the order in which the store must apply it. Row caches gain and lose
// their last segment only; a segment of index items or draft pages may be any.
struct ChunkMove {
  enum class Kind { kGrowRows, kReleaseRows, kGrowIndex, kReleaseIndex, kGrowDraft, kReleaseDraft };
  Kind kind = Kind::kGrowRows;
  int32_t group = 0;  // row moves only
  int32_t segment = 0;
  ChunkId chunk;
};

// ---- Restores -----------------------------------------------------------------------------------

// The index item, or the draft page, of a host block that comes (back) to the device: a prefix hit,
// or a resume.
struct BlockRestore {
  HostBlockId block;
  int32_t index_item = 0;  // or draft page
  bool is_draft = false;
};

// ---- Traffic ------------------------------------------------------------------------------------

// Misses of a row cache fall like (rows cached)^-kMissPower: as LRU caches on recorded selections.
inline constexpr double kMissPower = 1.05;

// What one index group's row cache did in a step.
struct GroupTraffic {
  int64_t rows_missed = 0;    // distinct rows of its passes that were fetched from the host
  int64_t rows_resident = 0;  // after the step
};

}  // namespace dhs
