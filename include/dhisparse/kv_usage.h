// Who holds what of both memory tiers, and what changed hands. Plain data: what the accounting
// (kv.h) reports.
#pragma once

#include <cstdint>
#include <vector>

namespace dhs {

struct ChunkCounts {  // of one owner, since start
  int64_t grown = 0;
  int64_t released = 0;
};

struct PrefixCounts {  // tokens of admissions, since start
  int64_t looked_up = 0;
  int64_t on_device = 0;  // found, and a running request held their index keys on the device
  int64_t on_host = 0;    // found in host memory alone
};

struct KvUsage {
  int64_t host_blocks_used = 0;
  int64_t host_blocks_cached = 0;  // published, held by nobody
  int64_t chunks_free = 0;
  int64_t chunks_index = 0;
  int64_t chunks_draft = 0;
  std::vector<int64_t> chunks_rows;      // per group
  std::vector<int64_t> chunks_required;  // per group, of chunks_rows: not optional
  std::vector<ChunkCounts> row_moves;    // per group
  ChunkCounts index_moves;
  ChunkCounts draft_moves;
  PrefixCounts prefix;
};

}  // namespace dhs
