#include "byteless_executor.h"

#include <algorithm>
#include <set>
#include <utility>

namespace dhs::sim {

namespace {
constexpr int64_t kEvictedRows = 64;  // that a row cache remembers
}

ByteLessExecutor::ByteLessExecutor(const KvGeometry& geometry, const KvCapacity& capacity,
                                   uint32_t seed)
    : geometry_(geometry),
      caches_(geometry.groups.size()),
      num_written_(capacity.num_host_blocks),
      index_items_(capacity.num_chunks * geometry.index_items_per_chunk(capacity.chunk_bytes)),
      draft_pages_(capacity.num_chunks * geometry.draft_pages_per_chunk(capacity.chunk_bytes)),
      random_(seed) {
  const int64_t num_rows = int64_t{capacity.num_host_blocks} * kHostBlockTokens;
  for (size_t g = 0; g < caches_.size(); ++g) {
    const int64_t per_segment = geometry.records_per_chunk(g, capacity.chunk_bytes);
    caches_[g].rows = RowCacheArrays({.num_host_rows = num_rows,
                                      .num_slots = per_segment * capacity.num_chunks,
                                      .slots_per_segment = static_cast<int32_t>(per_segment),
                                      .num_evicted = kEvictedRows,
                                      .num_host_blocks = capacity.num_host_blocks});
  }
}

void ByteLessExecutor::apply(const RankPlan& plan) {
  for (HostBlockId block : plan.retired_blocks) {
    num_written_[block.value] = 0;
    for (Cache& cache : caches_) {
      launch_invalidate({.cache = cache.rows.state(),
                         .blocks = view<const int32_t>(&block.value, 1),
                         .block_tokens = kHostBlockTokens},
                        {});
    }
  }
  for (const ChunkMove& move : plan.chunk_moves) {
    if (move.kind == ChunkMove::Kind::kGrowRows) {
      launch_add_segment({caches_[move.group].rows.state()}, {});
    }
    if (move.kind != ChunkMove::Kind::kReleaseRows) continue;
    Cache& cache = caches_[move.group];
    std::vector<MoveOrder> moves(cache.rows.slots_per_segment);
    int32_t num_moves = 0;
    int64_t num_dropped = 0;
    launch_release_segment(
        {cache.rows.state(), view(moves.data(), moves.size()), &num_moves, &num_dropped}, {});
  }
  for (const BlockRestore& restore : plan.restores) {
    auto& items = restore.is_draft ? draft_pages_ : index_items_;
    items[restore.index_item] = {restore.block.value, num_written_[restore.block.value]};
    ++(restore.is_draft ? num_pages_restored_ : num_restored_);
  }
  for (size_t g = 0; g < plan.refill_rows.size(); ++g) refill(caches_[g], plan.refill_rows[g]);
}

void ByteLessExecutor::refill(Cache& cache, int64_t max_rows) {
  if (max_rows == 0) return;
  std::vector<FetchOrder> orders(max_rows);
  int32_t num_orders = 0;
  launch_refill({.cache = cache.rows.state(),
                 .block_tokens = kHostBlockTokens,
                 .orders = view(orders.data(), orders.size()),
                 .num_orders = &num_orders,
                 .num_refilled = &num_refilled_},
                {});
}

// Before a row reads them, the index keys of all tokens before it must be on the device.
void ByteLessExecutor::write_index_keys(const SequenceWork& work) {
  const int64_t end = work.first_position + std::ssize(work.tokens);
  DHS_CHECK(end <= work.memory->device_tokens(), "request ", work.request.value, " computes to ",
            end, ", covers ", work.memory->device_tokens());
  for (int64_t first = 0; first < end; first += kHostBlockTokens) {
    const auto i = first / kHostBlockTokens;
    const int32_t block = work.memory->blocks()[i].value;
    BlockItem& item = index_items_[work.memory->index_items()[i]];
    const int64_t needed = std::clamp<int64_t>(work.first_position - first, 0, kHostBlockTokens);
    DHS_CHECK(needed == 0 || (item.block == block && item.num_written >= needed), "request ",
              work.request.value, " reads ", needed, " index keys of block ", block,
              ", its item has ", item.num_written, " of block ", item.block);
    const int64_t written = std::min<int64_t>(end - first, kHostBlockTokens);
    if (written <= needed) continue;
    item = {block, written};
    num_written_[block] = written;
  }
}

// The draft's context of the step's tokens, where their blocks have pages. Before index keys are
// written: what was in the host blocks is known by then.
void ByteLessExecutor::write_draft_context(const SequenceWork& work) {
  const auto pages = work.memory->draft_pages();
  const int64_t end = work.first_position + std::ssize(work.tokens);
  for (int64_t i = work.first_position / kHostBlockTokens; i * kHostBlockTokens < end; ++i) {
    if (i >= std::ssize(pages) || pages[i] < 0) continue;
    BlockItem& page = draft_pages_[pages[i]];
    const int32_t block = work.memory->blocks()[i].value;
    const int64_t first = i * kHostBlockTokens;
    const int64_t needed = std::max<int64_t>(0, work.first_position - first);
    DHS_CHECK(needed == 0 || (page.block == block && page.num_written >= needed), "request ",
              work.request.value, " continues block ", block, " at ", needed, ", its page has ",
              page.num_written, " of block ", page.block);
    page = {block, std::min<int64_t>(end - first, kHostBlockTokens)};
  }
}

// A block draft of the newest token: all that its window sees must be on the device.
void ByteLessExecutor::read_draft_context(const SequenceWork& work, int64_t num_drawn) const {
  const auto pages = work.memory->draft_pages();
  if (geometry_.draft_page_bytes == 0) return;
  const int64_t num_rows = std::ssize(work.tokens) - work.num_draft_tokens;
  const int64_t anchor = work.first_position + num_rows + num_drawn - 1;
  const int64_t window = geometry_.draft_window == 0 ? anchor : geometry_.draft_window;
  for (int64_t position = std::max<int64_t>(0, anchor - window); position < anchor; ++position) {
    const int64_t i = position / kHostBlockTokens;
    const int32_t block = work.memory->blocks()[i].value;
    DHS_CHECK(i < std::ssize(pages) && pages[i] >= 0, "request ", work.request.value, " drafts at ",
              anchor, " without the page of ", position);
    const BlockItem& page = draft_pages_[pages[i]];
    DHS_CHECK(page.block == block && page.num_written > position % kHostBlockTokens, "request ",
              work.request.value, " reads position ", position, " of block ", block,
              ", its page has ", page.num_written, " of block ", page.block);
  }
}

void ByteLessExecutor::claim_new_rows(Cache& cache, const RankPlan& plan) {
  std::vector<int64_t> host_rows;
  for (const SequenceWork& work : plan.work) {
    for (size_t i = 0; i < work.tokens.size(); ++i) {
      const int64_t position = work.first_position + static_cast<int64_t>(i);
      const HostBlockId block = work.memory->blocks()[position / kHostBlockTokens];
      host_rows.push_back(int64_t{block.value} * kHostBlockTokens + position % kHostBlockTokens);
    }
  }
  ResolveCounters counters;
  launch_claim({.cache = cache.rows.state(),
                .host_rows = view<const int64_t>(host_rows.data(), host_rows.size()),
                .counters = &counters},
               {});
}

// Every query row selects up to top_k of its visible positions, itself always among them.
void ByteLessExecutor::run_group(Cache& cache, const SequenceWork& work, SequenceResult& result) {
  const auto top_k = geometry_.top_k;
  std::vector<int32_t> blocks;
  for (HostBlockId block : work.memory->blocks()) blocks.push_back(block.value);
  ResolveCounters counters;
  for (size_t i = 0; i < work.tokens.size(); ++i) {
    const int32_t visible = work.first_position + static_cast<int32_t>(i) + 1;
    std::set<int32_t> chosen = {visible - 1};
    while (static_cast<int32_t>(chosen.size()) < std::min(top_k, visible)) {
      chosen.insert(static_cast<int32_t>(random_() % visible));
    }
    std::vector<int32_t> selection(chosen.begin(), chosen.end());
    selection.resize(top_k, -1);
    const int32_t sequence = 0;
    std::vector<int32_t> slots(top_k);
    std::vector<FetchOrder> misses(top_k);
    int32_t num_misses = 0;
    ResolveParams params;
    params.cache = cache.rows.state();
    params.selection = view<const int32_t>(selection.data(), 1, top_k);
    params.sequence_of_row = view(&sequence, 1);
    params.block_table = view<const int32_t>(blocks.data(), 1, blocks.size());
    params.block_tokens = kHostBlockTokens;
    params.slots = view(slots.data(), 1, top_k);
    params.misses = view(misses.data(), top_k);
    params.num_misses = &num_misses;
    params.counters = &counters;
    launch_resolve(params, {});
  }
  num_fetched_ += counters.missed;
  cache.num_missed += counters.missed;
  result.rows_selected += counters.selected;
  result.rows_fetched += counters.missed;
}

// A token is a function of seed and position, whatever was proposed; how many drafts are accepted
// and how many proposed is left to chance.
void ByteLessExecutor::draw(const SequenceWork& work, SequenceResult& result) {
  const int32_t num_accepted = work.num_draft_tokens == 0
                                   ? 0
                                   : static_cast<int32_t>(random_() % (work.num_draft_tokens + 1));
  const uint64_t first = work.first_position + work.tokens.size() - work.num_draft_tokens;
  for (int32_t i = 0; i <= num_accepted; ++i) {
    const uint64_t hash = (work.seed + first + i) * 0x9e3779b97f4a7c15ull;
    result.tokens.push_back({static_cast<TokenId>(hash >> 54), 0.0f, {}});
  }
  if (work.num_tokens_to_draft > 0) {
    result.proposed.resize(random_() % (work.num_tokens_to_draft + 1));
  }
  num_accepted_ += num_accepted;
}

StepResult ByteLessExecutor::execute(const RankPlan& plan) {
  apply(plan);
  for (const SequenceWork& work : plan.work) write_draft_context(work);
  for (const SequenceWork& work : plan.work) write_index_keys(work);
  for (Cache& cache : caches_) {
    launch_begin_step({cache.rows.state()}, {});
    claim_new_rows(cache, plan);
  }
  StepResult result;
  for (const SequenceWork& work : plan.work) {
    SequenceResult sequence;
    for (Cache& cache : caches_) run_group(cache, work, sequence);
    if (work.wants_token) {
      draw(work, sequence);
      read_draft_context(work, std::ssize(sequence.tokens));
    }
    result.sequences.push_back(std::move(sequence));
  }
  result.elapsed = absl::Milliseconds(20);
  result.traffic.emplace_back();
  for (Cache& cache : caches_) {
    result.traffic.back().push_back({.rows_missed = std::exchange(cache.num_missed, 0),
                                     .rows_resident = cache.rows.num_resident()});
  }
  return result;
}

std::string ByteLessExecutor::check_invariants(const std::vector<bool>& block_is_held,
                                               const KvUsage& usage) const {
  for (size_t g = 0; g < caches_.size(); ++g) {
    const Cache& cache = caches_[g];
    if (const char* fault = cache.rows.check()) return fault;
    if (cache.rows.head.num_live != usage.chunks_rows[g] * cache.rows.slots_per_segment) {
      return absl::StrCat("group ", g, ": ", cache.rows.head.num_live, " live slots in ",
                          usage.chunks_rows[g], " chunks");
    }
    for (int32_t slot = 0; slot < cache.rows.head.num_live; ++slot) {
      const int64_t owner = cache.rows.owner_of[slot];
      if (owner >= 0 && !block_is_held[owner / kHostBlockTokens]) {
        return absl::StrCat("slot ", slot, " holds a row of host block ", owner / kHostBlockTokens,
                            ", which nobody holds");
      }
    }
  }
  return {};
}

}  // namespace dhs::sim
