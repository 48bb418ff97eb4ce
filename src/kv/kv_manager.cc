#include <algorithm>
#include <set>

#include "dhisparse/kv.h"
#include "kv/index_items.h"

namespace dhs {
namespace {

// Rows a request writes in one decode step; they too want a slot.
constexpr int64_t kTailRows = 1;

int64_t num_blocks(int64_t tokens) { return ceil_div(tokens, kHostBlockTokens); }

absl::Status too_small(const char* tier, int64_t tokens, int64_t needed, int64_t available,
                       const char* remedy) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a request of ", tokens, " tokens (prompt + max_tokens) needs ", needed, " ",
                   tier, ", the machine has ", available, "; ", remedy));
}

}  // namespace

// ---- SequenceMemory -----------------------------------------------------------------------------

SequenceMemory::SequenceMemory(SequenceMemory&& other) noexcept { *this = std::move(other); }

SequenceMemory& SequenceMemory::operator=(SequenceMemory&& other) noexcept {
  std::swap(manager_, other.manager_);
  std::swap(index_, other.index_);
  std::swap(admission_, other.admission_);
  std::swap(max_tokens_, other.max_tokens_);
  std::swap(blocks_, other.blocks_);
  std::swap(index_items_, other.index_items_);
  return *this;
}

SequenceMemory::~SequenceMemory() {
  if (manager_ != nullptr) manager_->release(*this);
}

// ---- KvManager ----------------------------------------------------------------------------------

KvManager::KvManager(KvGeometry geometry, KvCapacity capacity, ResidencyConfig residency)
    : geometry_(std::move(geometry)),
      capacity_(capacity),
      residency_(residency),
      index_(std::make_unique<IndexItems>(
          capacity.num_chunks,
          static_cast<int32_t>(geometry_.index_items_per_chunk(capacity.chunk_bytes)))),
      block_is_held_(capacity.num_host_blocks),
      row_chunks_(geometry_.groups.size()) {
  for (int32_t i = capacity.num_host_blocks - 1; i >= 0; --i) free_blocks_.emplace_back(i);
  for (int32_t i = capacity.num_chunks - 1; i >= 0; --i) free_chunks_.emplace_back(i);
}

KvManager::~KvManager() = default;

int64_t KvManager::protected_rows(int64_t max_tokens) const {
  return std::min<int64_t>(geometry_.top_k + kTailRows, max_tokens);
}

int64_t KvManager::required_rows(int64_t max_tokens) const {
  switch (residency_.mode) {
    case ResidencyMode::kAdaptive:
      return protected_rows(max_tokens);
    case ResidencyMode::kFixed:
      return std::max(protected_rows(max_tokens),
                      std::min(max_tokens, residency_.fixed_rows_per_request));
    case ResidencyMode::kResident:
      return max_tokens;
  }
  return 0;
}

int64_t KvManager::required_chunks(int group, int64_t rows) const {
  return ceil_div(rows, geometry_.records_per_chunk(group, capacity_.chunk_bytes));
}

int64_t KvManager::total_required_chunks(int64_t rows) const {
  int64_t total = 0;
  for (size_t g = 0; g < geometry_.groups.size(); ++g) total += required_chunks(g, rows);
  return total;
}

absl::Status KvManager::fits(int64_t max_tokens) const {
  const int64_t blocks = num_blocks(max_tokens);
  if (blocks > capacity_.num_host_blocks) {
    return too_small("host blocks", max_tokens, blocks, capacity_.num_host_blocks,
                     "raise host.pool or shorten the request");
  }
  const int64_t items = geometry_.index_items_per_chunk(capacity_.chunk_bytes);
  const int64_t chunks = ceil_div(blocks, items) + total_required_chunks(required_rows(max_tokens));
  if (chunks > capacity_.num_chunks) {
    return too_small("chunks of device memory", max_tokens, chunks, capacity_.num_chunks,
                     residency_.mode == ResidencyMode::kResident
                         ? "raise device.memory, or use residency.mode: adaptive"
                         : "raise device.memory or shorten the request");
  }
  return absl::OkStatus();
}

bool KvManager::can_admit(int64_t max_tokens) const {
  DHS_CHECK(max_tokens > 0 && fits(max_tokens).ok(), max_tokens, " tokens can never fit");
  const int64_t blocks = num_blocks(max_tokens);
  if (blocks > static_cast<int64_t>(free_blocks_.size())) return false;
  const int64_t segments = index_->num_segments() + index_->missing_segments(blocks);
  const int64_t rows = required_rows_ + required_rows(max_tokens);
  return segments + total_required_chunks(rows) <= capacity_.num_chunks;
}

int64_t KvManager::num_optional_chunks() const {
  return capacity_.num_chunks - index_->num_segments() - total_required_chunks(required_rows_);
}

std::optional<SequenceMemory> KvManager::admit(int64_t max_tokens) {
  if (!can_admit(max_tokens)) return std::nullopt;
  const int64_t blocks = num_blocks(max_tokens);
  const int64_t rows = required_rows_ + required_rows(max_tokens);
  const int64_t new_segments = index_->missing_segments(blocks);
  required_rows_ = rows;
  context_rows_ += max_tokens;
  shrink_to(rows, new_segments);
  for (int64_t i = 0; i < new_segments; ++i) grow_index();

  SequenceMemory memory;
  memory.manager_ = this;
  const auto free_index = std::find(index_is_held_.begin(), index_is_held_.end(), false);
  memory.index_ = static_cast<int32_t>(free_index - index_is_held_.begin());
  if (free_index == index_is_held_.end()) index_is_held_.push_back(false);
  index_is_held_[memory.index_] = true;
  memory.admission_ = ++num_admissions_;
  memory.max_tokens_ = max_tokens;
  memory.index_items_ = index_->allocate(blocks);
  memory.blocks_.assign(free_blocks_.rbegin(), free_blocks_.rbegin() + blocks);
  free_blocks_.resize(free_blocks_.size() - blocks);
  for (HostBlockId block : memory.blocks_) {
    DHS_CHECK(!block_is_held_[block.value], "host block ", block.value, " handed out twice");
    block_is_held_[block.value] = true;
  }
  return memory;
}

void KvManager::release(SequenceMemory& memory) {
  DHS_CHECK(index_is_held_[memory.index_], "request index ", memory.index_, " released twice");
  index_is_held_[memory.index_] = false;
  required_rows_ -= required_rows(memory.max_tokens_);
  context_rows_ -= memory.max_tokens_;
  DHS_CHECK(required_rows_ >= 0 && context_rows_ >= 0, "more memory released than reserved");
  for (const auto& emptied : index_->free(memory.index_items_)) {
    moves_.push_back({ChunkMove::Kind::kReleaseIndex, 0, emptied.segment, emptied.chunk});
    free_chunks_.push_back(emptied.chunk);
  }
  for (HostBlockId block : memory.blocks_) {
    DHS_CHECK(block_is_held_[block.value], "host block ", block.value, " released twice");
    block_is_held_[block.value] = false;
    retired_blocks_.push_back(block);
    free_blocks_.push_back(block);
  }
  memory.manager_ = nullptr;
}

// ---- Chunks -------------------------------------------------------------------------------------

void KvManager::grow_rows(int group) {
  DHS_CHECK(!free_chunks_.empty(), "no free chunk to grow group ", group);
  const ChunkId chunk = free_chunks_.back();
  free_chunks_.pop_back();
  const auto segment = static_cast<int32_t>(row_chunks_[group].size());
  row_chunks_[group].push_back(chunk);
  moves_.push_back({ChunkMove::Kind::kGrowRows, group, segment, chunk});
}

void KvManager::release_rows(int group) {
  DHS_CHECK(!row_chunks_[group].empty(), "group ", group, " has no chunk to release");
  const ChunkId chunk = row_chunks_[group].back();
  row_chunks_[group].pop_back();
  const auto segment = static_cast<int32_t>(row_chunks_[group].size());
  moves_.push_back({ChunkMove::Kind::kReleaseRows, group, segment, chunk});
  free_chunks_.push_back(chunk);
}

void KvManager::grow_index() {
  DHS_CHECK(!free_chunks_.empty(), "no free chunk for index keys");
  const ChunkId chunk = free_chunks_.back();
  free_chunks_.pop_back();
  const int32_t segment = index_->add_segment(chunk);
  moves_.push_back({ChunkMove::Kind::kGrowIndex, 0, segment, chunk});
}

// The group that holds the most rows beyond `rows` required ones; -1 when none holds a spare chunk.
int KvManager::most_surplus_group(int64_t rows) const {
  int best = -1;
  int64_t best_rows = 0;
  for (size_t g = 0; g < row_chunks_.size(); ++g) {
    const auto owned = static_cast<int64_t>(row_chunks_[g].size());
    const int64_t spare = owned - required_chunks(g, rows);
    const int64_t spare_rows = spare * geometry_.records_per_chunk(g, capacity_.chunk_bytes);
    if (spare > 0 && spare_rows > best_rows) {
      best = static_cast<int>(g);
      best_rows = spare_rows;
    }
  }
  return best;
}

// Releases optional residency until `num_free_wanted` chunks are free beside what `rows` require.
void KvManager::shrink_to(int64_t rows, int64_t num_free_wanted) {
  auto num_missing = [&] {
    int64_t missing = num_free_wanted - static_cast<int64_t>(free_chunks_.size());
    for (size_t g = 0; g < row_chunks_.size(); ++g) {
      const auto owned = static_cast<int64_t>(row_chunks_[g].size());
      missing += std::max<int64_t>(0, required_chunks(g, rows) - owned);
    }
    return missing;
  };
  while (num_missing() > 0) {
    const int group = most_surplus_group(rows);
    DHS_CHECK(group >= 0, "required memory exceeds the chunk pool");
    release_rows(group);
  }
}

// What a group may hold beyond its required chunks: in adaptive mode every row of every running
// request, otherwise nothing.
int64_t KvManager::target_chunks(int group) const {
  const bool is_adaptive = residency_.mode == ResidencyMode::kAdaptive;
  const int64_t rows = is_adaptive ? std::max(required_rows_, context_rows_) : required_rows_;
  return required_chunks(group, rows);
}

// Spare chunks go to the group with the fewest rows that can use one.
void KvManager::grow_optional() {
  while (!free_chunks_.empty()) {
    int poorest = -1;
    int64_t fewest_rows = INT64_MAX;
    for (size_t g = 0; g < row_chunks_.size(); ++g) {
      const auto owned = static_cast<int64_t>(row_chunks_[g].size());
      const int64_t rows = owned * geometry_.records_per_chunk(g, capacity_.chunk_bytes);
      if (owned < target_chunks(g) && rows < fewest_rows) {
        poorest = static_cast<int>(g);
        fewest_rows = rows;
      }
    }
    if (poorest < 0) return;
    grow_rows(poorest);
  }
}

std::vector<ChunkMove> KvManager::rebalance() {
  for (size_t g = 0; g < row_chunks_.size(); ++g) {
    while (static_cast<int64_t>(row_chunks_[g].size()) > target_chunks(g)) release_rows(g);
  }
  shrink_to(required_rows_, 0);
  for (size_t g = 0; g < row_chunks_.size(); ++g) {
    while (static_cast<int64_t>(row_chunks_[g].size()) < required_chunks(g, required_rows_)) {
      grow_rows(g);
    }
  }
  if (residency_.mode == ResidencyMode::kAdaptive) grow_optional();
  return std::exchange(moves_, {});
}

std::vector<HostBlockId> KvManager::take_retired_blocks() {
  return std::exchange(retired_blocks_, {});
}

KvUsage KvManager::usage() const {
  KvUsage usage;
  usage.host_blocks_used = capacity_.num_host_blocks - static_cast<int64_t>(free_blocks_.size());
  usage.chunks_free = static_cast<int64_t>(free_chunks_.size());
  usage.chunks_index = index_->num_segments();
  for (const auto& chunks : row_chunks_) {
    usage.chunks_rows.push_back(static_cast<int64_t>(chunks.size()));
  }
  return usage;
}

std::string KvManager::check_invariants() const {
  std::multiset<int32_t> owned;
  for (ChunkId chunk : free_chunks_) owned.insert(chunk.value);
  for (const auto& chunk : index_->chunks()) {
    if (chunk.has_value()) owned.insert(chunk->value);
  }
  for (const auto& chunks : row_chunks_) {
    for (ChunkId chunk : chunks) owned.insert(chunk.value);
  }
  if (static_cast<int32_t>(owned.size()) != capacity_.num_chunks ||
      std::set<int32_t>(owned.begin(), owned.end()).size() != owned.size()) {
    return absl::StrCat("chunks: ", owned.size(), " owned, ", capacity_.num_chunks, " exist");
  }
  const auto held = std::count(block_is_held_.begin(), block_is_held_.end(), true);
  if (held + std::ssize(free_blocks_) != capacity_.num_host_blocks) {
    return absl::StrCat("host blocks: ", held, " held + ", free_blocks_.size(), " free of ",
                        capacity_.num_host_blocks);
  }
  for (HostBlockId block : free_blocks_) {
    if (block_is_held_[block.value]) return absl::StrCat("host block ", block.value, " is both");
  }
  if (index_->num_used() != held) {
    return absl::StrCat(index_->num_used(), " index items for ", held, " host blocks");
  }
  const int64_t required = index_->num_segments() + total_required_chunks(required_rows_);
  if (required > capacity_.num_chunks) {
    return absl::StrCat("over-committed: ", required, " chunks required of ", capacity_.num_chunks);
  }
  return index_->check_invariants();
}

}  // namespace dhs
