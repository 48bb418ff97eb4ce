#include "store/step_demand.h"

#include <algorithm>

#include "dhisparse/base.h"

namespace dhs {

int64_t most_rows_needed(const QueryRows& rows, int64_t top_k) {
  int64_t total = 0;
  int64_t own = 0;  // of the sequence that ends at `row`
  for (size_t row = 0; row < rows.host_positions.size(); ++row) {
    const bool begins =
        row == 0 || rows.host_sequence_of_row[row] != rows.host_sequence_of_row[row - 1];
    const int64_t visible = rows.host_positions[row] + 1;
    if (visible == 0) break;  // padding
    if (begins) {
      total += own;
      own = 0;
    }
    own = std::min(visible, own + std::min(top_k, visible) + 1);
  }
  return total + own;
}

void cut_tiles(const QueryRows& rows, int64_t top_k, int64_t capacity,
               std::vector<RowTile>& tiles) {
  tiles.clear();
  RowTile tile;
  int64_t full = 0;     // worst case of the tile's finished sequences
  int64_t current = 0;  // worst case of the row's own sequence within the tile
  const auto num_rows = static_cast<int64_t>(rows.host_positions.size());
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t visible = rows.host_positions[row] + 1;
    if (visible == 0) {  // padding
      tile.num_rows = num_rows - tile.first_row;
      break;
    }
    const int64_t selected = std::min(top_k, visible);
    const bool same =
        tile.num_rows > 0 && rows.host_sequence_of_row[row] == rows.host_sequence_of_row[row - 1];
    const int64_t base = same ? full : full + current;
    const int64_t own = std::min(visible, (same ? current : 0) + selected);
    if (tile.num_rows > 0 && base + own > capacity) {
      tiles.push_back(tile);
      tile = {row, 0};
      full = 0;
      current = selected;
    } else {
      full = base;
      current = own;
    }
    DHS_CHECK(current <= capacity, "one query row selects ", current, " rows, the row cache has ",
              capacity);
    ++tile.num_rows;
  }
  if (tile.num_rows > 0) tiles.push_back(tile);
}

}  // namespace dhs
