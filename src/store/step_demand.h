// How many row-cache slots a step's query rows can need at most. Host arithmetic on positions only,
// so that it is known before anything runs.
#pragma once

#include <cstdint>
#include <vector>

#include "dhisparse/store.h"

namespace dhs {

// Rows that one pass over all query rows can need at most, the step's own rows among them.
int64_t most_rows_needed(const QueryRows& rows, int64_t top_k);

// Cuts the query rows greedily into tiles; a tile's worst case is, per sequence, the smaller of its
// rows' selections together and its visible context. Padding at the end joins the last tile.
void cut_tiles(const QueryRows& rows, int64_t top_k, int64_t capacity, std::vector<RowTile>& tiles);

}  // namespace dhs
