#include <algorithm>

#include "dhisparse/kv_geometry.h"

namespace dhs {

namespace {
constexpr int64_t kBlockAlignment = 64;  // a cache line: groups and blocks never share one
}

KvGeometry make_geometry(std::span<const int32_t> layers_per_group, int64_t row_bytes,
                         int64_t page_bytes, int32_t top_k, DraftPages draft) {
  KvGeometry geometry;
  geometry.top_k = top_k;
  geometry.decode_rows = int64_t{top_k} + 1;
  int64_t record_offset = 0;
  int64_t page_offset = 0;
  int32_t first_layer = 0;
  for (int32_t num_layers : layers_per_group) {
    GroupGeometry group;
    group.first_layer = first_layer;
    group.num_layers = num_layers;
    group.record_bytes = num_layers * row_bytes;
    group.page_bytes = page_bytes;
    group.record_offset = record_offset;
    group.page_offset = page_offset;
    geometry.groups.push_back(group);
    first_layer += num_layers;
    record_offset += round_up(kHostBlockTokens * group.record_bytes, kBlockAlignment);
    page_offset += round_up(page_bytes, kBlockAlignment);
  }
  geometry.index_item_offset = record_offset;
  geometry.index_item_bytes = page_offset;
  geometry.draft_page_offset = record_offset + page_offset;
  geometry.draft_page_bytes = round_up(draft.page_bytes, kBlockAlignment);
  geometry.draft_window = draft.window;
  geometry.host_block_bytes = geometry.draft_page_offset + geometry.draft_page_bytes;
  return geometry;
}

int64_t KvGeometry::first_draft_page(int64_t known_tokens, int64_t num_blocks) const {
  const int64_t lowest =
      draft_window == 0 ? 0 : std::max<int64_t>(0, known_tokens - 1 - draft_window);
  return std::clamp(lowest / kHostBlockTokens, num_blocks - max_num_draft_pages(num_blocks),
                    num_blocks);
}

int64_t KvGeometry::max_num_draft_pages(int64_t num_blocks) const {
  if (draft_page_bytes == 0) return 0;
  if (draft_window == 0) return num_blocks;
  return std::min(num_blocks, ceil_div(draft_window, kHostBlockTokens) + 2);
}

}  // namespace dhs
