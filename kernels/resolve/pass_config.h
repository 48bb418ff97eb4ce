// How a pass is cut over a CUDA grid. Pure: chosen from sizes alone, so a captured launch stays
// valid while the data changes.
#pragma once

#include <cstdint>

namespace dhs::row_cache {

// The entries of a pass are [num_rows, num_columns]. A piece is threads * items_per_thread
// consecutive entries of one row; one block does a piece at a time.
struct PassConfig {
  bool is_one_block = false;  // one launch of one block, or a chain of grid-wide launches
  int32_t threads = 256;
  int32_t items_per_thread = 1;
  int32_t pieces_per_row = 0;
  int32_t num_pieces = 0;

  constexpr int32_t piece_columns() const { return threads * items_per_thread; }
};

inline constexpr int32_t kMaxOneBlockEntries = 2048;
inline constexpr int32_t kMaxOneBlockPieces = 4;
inline constexpr int32_t kMaxItemsPerThread = 8;
inline constexpr int32_t kBlocksPerSm = 8;  // of 256 threads: one wave

constexpr PassConfig cut_into_pieces(int32_t num_rows, int32_t num_columns, PassConfig config) {
  config.pieces_per_row = (num_columns + config.piece_columns() - 1) / config.piece_columns();
  config.num_pieces = num_rows * config.pieces_per_row;
  return config;
}

// One block has no launches to wait for between the phases, but only one SM's loads in flight. The
// chain has few entries per thread as long as the device holds all its blocks at once.
constexpr PassConfig pick_pass_config(int32_t num_rows, int32_t num_columns, int32_t num_sms) {
  const int64_t num_entries = int64_t{num_rows} * num_columns;
  if (num_entries <= kMaxOneBlockEntries) {
    PassConfig config = {.is_one_block = true, .threads = num_entries <= 256 ? 256 : 1024};
    config.items_per_thread = num_columns <= config.threads ? 1 : 2;
    config = cut_into_pieces(num_rows, num_columns, config);
    if (config.num_pieces <= kMaxOneBlockPieces) return config;
  }
  PassConfig config = cut_into_pieces(num_rows, num_columns, {});
  while (config.num_pieces > num_sms * kBlocksPerSm &&
         config.items_per_thread < kMaxItemsPerThread) {
    config.items_per_thread *= 2;
    config = cut_into_pieces(num_rows, num_columns, config);
  }
  return config;
}

}  // namespace dhs::row_cache
