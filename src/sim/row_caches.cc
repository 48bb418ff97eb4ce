#include "sim/row_caches.h"

#include <algorithm>
#include <bit>

#include "dhisparse/base.h"

namespace dhs::sim {
namespace {

constexpr size_t kMostEvictedRows = size_t{1} << 16;  // as the store

}  // namespace

RowCaches::RowCaches(const KvGeometry& geometry, const KvCapacity& capacity)
    : counts_(geometry.groups.size()) {
  const int64_t num_host_rows = int64_t{capacity.num_host_blocks} * kHostBlockTokens;
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    const int64_t per_segment =
        geometry.records_per_chunk(static_cast<int>(g), capacity.chunk_bytes);
    DHS_CHECK(per_segment > 0, "a chunk holds no record of group ", g);
    const int64_t segments =
        std::min<int64_t>(capacity.num_chunks, ceil_div(num_host_rows, per_segment) + 1);
    const int64_t num_slots = segments * per_segment;
    caches_.emplace_back(
        RowCacheArrays::Sizes{.num_host_rows = num_host_rows,
                              .num_slots = num_slots,
                              .slots_per_segment = static_cast<int32_t>(per_segment),
                              .num_evicted = static_cast<int64_t>(std::min(
                                  std::bit_ceil(static_cast<size_t>(num_slots)), kMostEvictedRows)),
                              .num_host_blocks = capacity.num_host_blocks});
  }
}

void RowCaches::release(RowCacheArrays& cache) {
  moves_.resize(cache.slots_per_segment);
  int32_t num_moves = 0;
  int64_t num_dropped = 0;
  launch_release_segment(
      {cache.state(), view(moves_.data(), moves_.size()), &num_moves, &num_dropped}, {});
}

int64_t RowCaches::refill(RowCacheArrays& cache, int64_t max_rows) {
  int64_t num_refilled = 0;
  if (max_rows <= 0) return num_refilled;
  orders_.resize(std::max<size_t>(orders_.size(), max_rows));
  int32_t num_orders = 0;
  launch_refill({.cache = cache.state(),
                 .block_tokens = kHostBlockTokens,
                 .orders = view(orders_.data(), max_rows),
                 .num_orders = &num_orders,
                 .num_refilled = &num_refilled},
                {});
  return num_refilled;
}

RowCaches::Changes RowCaches::apply(const RankPlan& plan) {
  for (HostBlockId block : plan.retired_blocks) {
    for (RowCacheArrays& cache : caches_) {
      launch_invalidate({.cache = cache.state(),
                         .blocks = view<const int32_t>(&block.value, 1),
                         .block_tokens = kHostBlockTokens},
                        {});
    }
  }
  Changes changes;
  for (const ChunkMove& move : plan.chunk_moves) {
    if (move.kind == ChunkMove::Kind::kGrowRows) {
      RowCacheArrays& cache = caches_[move.group];
      DHS_CHECK(cache.head.num_live + cache.slots_per_segment <= std::ssize(cache.owner_of),
                "group ", move.group, " grows beyond every host row");
      launch_add_segment({cache.state()}, {});
    }
    if (move.kind != ChunkMove::Kind::kReleaseRows) continue;
    release(caches_[move.group]);
    ++changes.chunks_released;
  }
  for (size_t g = 0; g < plan.refill_rows.size(); ++g) {
    changes.rows_refilled += refill(caches_[g], plan.refill_rows[g]);
  }
  return changes;
}

void RowCaches::fill(int group, std::span<const int64_t> host_rows) {
  ResolveCounters counters;
  launch_claim({.cache = caches_[group].state(),
                .host_rows = view<const int64_t>(host_rows.data(), host_rows.size()),
                .counters = &counters},
               {});
}

// One tile where every row that the step needs fits; otherwise as many query rows at a time as do.
// A store knows worst cases only and may cut sooner.
std::vector<RowCaches::Tile> RowCaches::tiles(const StepRows& rows, int group) {
  const int64_t capacity = caches_[group].head.num_live;
  if (rows.num_rows() * (rows.top_k + 1) <= capacity) return {{0, rows.num_rows()}};
  tile_of_host_row_.resize(caches_[group].slot_of.size());
  std::vector<Tile> cut = {{0, 0}};
  ++num_tiles_;
  int64_t num_needed = 0;
  for (int64_t row = 0; row < rows.num_rows(); ++row) {
    const int32_t* blocks =
        rows.block_table.data() + rows.sequence_of_row[row] * rows.max_num_blocks;
    const auto count_new = [&] {
      int64_t num_new = 0;
      for (int32_t position : rows.selected(row, group)) {
        if (position < 0) continue;
        const int64_t host_row = int64_t{blocks[position / kHostBlockTokens]} * kHostBlockTokens +
                                 position % kHostBlockTokens;
        num_new += tile_of_host_row_[host_row] != num_tiles_ ? 1 : 0;
        tile_of_host_row_[host_row] = num_tiles_;
      }
      return num_new;
    };
    const int64_t num_new = count_new();
    if (num_needed + num_new <= capacity) {
      num_needed += num_new;
    } else {
      DHS_CHECK(cut.back().num_rows > 0, "a query row selects more rows than ", capacity);
      cut.push_back({row, 0});
      ++num_tiles_;
      num_needed = count_new();
    }
    ++cut.back().num_rows;
  }
  return cut;
}

void RowCaches::resolve(const StepRows& rows, int group, const Tile& tile,
                        ResolveCounters& counters) {
  const int64_t top_k = rows.top_k;
  slots_.resize(tile.num_rows * top_k);
  orders_.resize(tile.num_rows * top_k);
  int32_t num_misses = 0;
  ResolveParams params;
  params.cache = caches_[group].state();
  params.selection = {rows.selected(tile.first_row, group).data(),
                      {tile.num_rows, top_k},
                      {rows.num_groups * top_k, 1}};
  params.sequence_of_row =
      view<const int32_t>(rows.sequence_of_row.data() + tile.first_row, tile.num_rows);
  params.block_table =
      view<const int32_t>(rows.block_table.data(), rows.num_sequences, rows.max_num_blocks);
  params.block_tokens = kHostBlockTokens;
  params.slots = view(slots_.data(), tile.num_rows, top_k);
  params.misses = view(orders_.data(), orders_.size());
  params.num_misses = &num_misses;
  params.counters = &counters;
  params.selected_of_sequence = selected_of_sequence_.data();
  params.missed_of_sequence = missed_of_sequence_.data();
  launch_resolve(params, {});
}

void RowCaches::run(const StepRows& rows) {
  selected_of_sequence_.assign(rows.num_sequences, 0);
  missed_of_sequence_.assign(rows.num_sequences, 0);
  for (size_t g = 0; g < caches_.size(); ++g) {
    counts_[g] = {};
    if (rows.num_rows() == 0) continue;
    const auto group = static_cast<int>(g);
    const std::vector<Tile> cut = tiles(rows, group);
    ResolveCounters counters;
    launch_begin_step({caches_[g].state()}, {});
    launch_claim(
        {.cache = caches_[g].state(),
         .host_rows = view<const int64_t>(rows.host_rows.data(), rows.host_rows.size()),
         .protect_in_next_pass = rows.num_rows() * (rows.top_k + 1) <= caches_[g].head.num_live,
         .counters = &counters},
        {});
    for (const Tile& tile : cut) resolve(rows, group, tile, counters);
    counts_[g] = {.selected = counters.selected,
                  .needed = counters.hit + counters.missed,
                  .missed = counters.missed,
                  .evicted = counters.evicted};
  }
}

std::string RowCaches::check_invariants() const {
  for (const RowCacheArrays& cache : caches_) {
    if (const char* fault = cache.check()) return fault;
  }
  return {};
}

}  // namespace dhs::sim

namespace dhs {

void RowCounts::add(const RowCounts& other) {
  selected += other.selected;
  needed += other.needed;
  missed += other.missed;
  evicted += other.evicted;
}

}  // namespace dhs
