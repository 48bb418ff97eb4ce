#include <algorithm>
#include <utility>

#include "dhisparse/kv.h"
#include "kv/device_pool.h"
#include "kv/host_blocks.h"
#include "kv/residency_controller.h"

namespace dhs {
namespace {

int64_t num_blocks(int64_t tokens) { return ceil_div(tokens, kHostBlockTokens); }

std::span<const TokenId> tokens_of_block(std::span<const TokenId> tokens, int64_t block) {
  return tokens.subspan(block * kHostBlockTokens, kHostBlockTokens);
}

// Whole blocks are covered.
int64_t covered_with(int64_t tokens, int64_t max_tokens) {
  return std::min(max_tokens, round_up(tokens, kHostBlockTokens));
}

int64_t device_tokens_of(const KvDemand& demand) {
  if (demand.device_tokens == 0) return demand.max_tokens;
  return std::min(demand.device_tokens, demand.max_tokens);
}

// What the requests would give up, were they parked.
DevicePool::Need held_by(const DevicePool& device, KvManager::Others others) {
  DevicePool::Need held;
  for (const SequenceMemory* other : others) {
    const DevicePool::Need need = device.need_of(other->device_tokens());
    const auto pages = other->draft_pages();
    held.items += need.items;
    held.pages += std::ssize(pages) - std::count(pages.begin(), pages.end(), -1);
    held.own_rows += need.own_rows;
  }
  return held;
}

// Of a request's blocks [first, end), of which these are known, beginning with block 0: those
// without an item yet.
int64_t num_new(const BlockItems& items, std::span<const HostBlockId> blocks, int64_t first,
                int64_t end) {
  int64_t count = end - first;
  for (int64_t i = first; i < std::min(end, std::ssize(blocks)); ++i) {
    count -= items.contains(blocks[i]) ? 1 : 0;
  }
  return count;
}

// What was to come back for those who gave it up need not come now.
void forget_restores(const DevicePool& device, std::vector<BlockRestore>& restores) {
  std::erase_if(restores, [&](const BlockRestore& restore) {
    const BlockItems& items = restore.is_draft ? device.pages() : device.items();
    return !items.contains(restore.block);
  });
}

absl::Status too_small(const char* tier, int64_t tokens, int64_t needed, int64_t available,
                       const char* remedy) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a request of ", tokens, " tokens (prompt + max_tokens) needs ", needed, " ",
                   tier, ", the machine has ", available, "; ", remedy));
}

}  // namespace

// What a request is to hold on the device.
struct Coverage {
  int64_t num_blocks = 0;
  int64_t first_page = 0;   // of them, the first with a draft page
  int64_t num_written = 0;  // tokens whose state is in the host blocks

  static Coverage of(const KvGeometry& geometry, int64_t tokens, int64_t known_tokens) {
    const int64_t blocks = dhs::num_blocks(tokens);
    return {
        .num_blocks = blocks,
        .first_page = geometry.first_draft_page(known_tokens == 0 ? tokens : known_tokens, blocks)};
  }
};

// ---- SequenceMemory -----------------------------------------------------------------------------

void SequenceMemory::swap(SequenceMemory& other) noexcept {
  std::swap(manager_, other.manager_);
  std::swap(index_, other.index_);
  std::swap(version_, other.version_);
  std::swap(max_tokens_, other.max_tokens_);
  std::swap(cached_tokens_, other.cached_tokens_);
  std::swap(blocks_, other.blocks_);
  std::swap(index_items_, other.index_items_);
  std::swap(draft_pages_, other.draft_pages_);
  std::swap(root_, other.root_);
  std::swap(published_, other.published_);
}

SequenceMemory::~SequenceMemory() {
  if (manager_ != nullptr) manager_->release(*this);
}

int64_t SequenceMemory::device_tokens() const {
  return std::min(max_tokens_, std::ssize(index_items_) * kHostBlockTokens);
}

// ---- Admission ----------------------------------------------------------------------------------

KvManager::KvManager(KvGeometry geometry, KvCapacity capacity, ResidencyConfig residency)
    : geometry_(std::move(geometry)),
      capacity_(capacity),
      residency_(std::move(residency)),
      host_(std::make_unique<HostBlocks>(capacity.num_host_blocks)),
      device_(std::make_unique<DevicePool>(geometry_, capacity_, residency_)),
      controller_(std::make_unique<ResidencyController>(geometry_, capacity_, residency_)) {}

KvManager::~KvManager() = default;

absl::Status KvManager::fits(int64_t max_tokens) const {
  const int64_t blocks = num_blocks(max_tokens);
  if (blocks > capacity_.num_host_blocks) {
    return too_small("host blocks", max_tokens, blocks, capacity_.num_host_blocks,
                     "raise host.pool or shorten the request");
  }
  const int64_t chunks = device_->chunks_for(device_->largest_need_of(max_tokens));
  if (chunks > capacity_.num_chunks) {
    return too_small("chunks of device memory", max_tokens, chunks, capacity_.num_chunks,
                     residency_.mode == ResidencyMode::kResident
                         ? "raise device.memory, or use residency.mode: adaptive"
                         : "raise device.memory or shorten the request");
  }
  return absl::OkStatus();
}

// The longest run of published blocks that begins the request; one token at least is left to
// compute, since its logits are wanted.
std::vector<HostBlockId> KvManager::match(const KvDemand& demand) const {
  std::vector<HostBlockId> blocks;
  const PrefixIndex& index = host_->index();
  std::optional<PrefixNode> end;
  if (!demand.tokens.empty()) end = index.find_root(demand.salt);
  if (!end.has_value()) return blocks;
  const int64_t most_blocks = (std::ssize(demand.tokens) - 1) / kHostBlockTokens;
  for (int64_t i = 0; i < most_blocks; ++i) {
    const auto next = index.find(*end, tokens_of_block(demand.tokens, i));
    if (!next.has_value()) break;
    blocks.push_back(*next);
    end = {next->value};
  }
  return blocks;
}

int64_t KvManager::cached_tokens(const KvDemand& demand) const {
  return std::ssize(match(demand)) * kHostBlockTokens;
}

// What those on the device cover next, and whoever comes beside them.
void KvManager::add_growth(DeviceNeed& need, bool is_growing) const {
  if (num_on_device_ == 0) return;
  const int64_t num_blocks = num_growing_ + (is_growing ? 1 : 0);
  need.items += num_blocks;
  if (geometry_.draft_page_bytes > 0) need.pages += num_blocks;
}

bool KvManager::has_host_room(const KvDemand& demand, std::span<const HostBlockId> matched) const {
  const auto num_cached = std::count_if(matched.begin(), matched.end(),
                                        [&](HostBlockId block) { return !host_->is_held(block); });
  const int64_t num_taken = num_blocks(demand.max_tokens) - std::ssize(matched);
  return num_taken <= host_->num_available() - num_cached;
}

bool KvManager::has_room(const KvDemand& demand, std::span<const HostBlockId> matched) const {
  DHS_CHECK(demand.max_tokens > 0 && fits(demand.max_tokens).ok(), demand.max_tokens,
            " tokens can never fit");
  if (!has_host_room(demand, matched)) return false;
  DeviceNeed need = need_of(demand, matched);
  add_growth(need, num_blocks(device_tokens_of(demand)) < num_blocks(demand.max_tokens));
  return device_->fits(need);
}

bool KvManager::can_admit(const KvDemand& demand) const { return has_room(demand, match(demand)); }

int64_t KvManager::num_optional_chunks() const { return device_->num_optional(); }

std::optional<SequenceMemory> KvManager::admit(const KvDemand& demand) {
  std::vector<HostBlockId> matched = match(demand);
  if (!has_room(demand, matched)) return std::nullopt;
  const int64_t num_restored = num_new(device_->items(), matched, 0, std::ssize(matched));
  prefix_counts_.looked_up += std::ssize(demand.tokens);
  prefix_counts_.on_host += num_restored * kHostBlockTokens;
  prefix_counts_.on_device += (std::ssize(matched) - num_restored) * kHostBlockTokens;
  SequenceMemory memory;
  memory.manager_ = this;
  memory.max_tokens_ = demand.max_tokens;
  memory.cached_tokens_ = std::ssize(matched) * kHostBlockTokens;
  if (!demand.tokens.empty()) memory.root_ = host_->index().hold_root(demand.salt).value;
  for (HostBlockId block : matched) host_->hold(block);
  memory.blocks_ = matched;
  memory.published_ = std::move(matched);
  while (std::ssize(memory.blocks_) < num_blocks(demand.max_tokens)) {
    memory.blocks_.push_back(host_->take());
  }
  Coverage coverage = Coverage::of(geometry_, device_tokens_of(demand), demand.known_tokens);
  coverage.num_written = memory.cached_tokens_;
  take_device_part(memory, coverage);
  return memory;
}

void KvManager::release(SequenceMemory& memory) {
  if (!memory.is_parked()) park(memory);
  // From the end, so that what a chain ends with is given up before what it begins with.
  for (int64_t i = std::ssize(memory.blocks_) - 1; i >= 0; --i) {
    const HostBlockId own = memory.blocks_[i];
    if (i < std::ssize(memory.published_) && memory.published_[i] != own) {
      host_->release(memory.published_[i]);
    }
    host_->release(own);
  }
  if (memory.root_.has_value()) host_->index().release_root({*memory.root_});
  memory.manager_ = nullptr;
}

// ---- The device part ----------------------------------------------------------------------------

DeviceNeed KvManager::need_of(const KvDemand& demand, std::span<const HostBlockId> matched) const {
  const int64_t tokens = device_tokens_of(demand);
  const Coverage to = Coverage::of(geometry_, tokens, demand.known_tokens);
  DeviceNeed need = device_->need_of(covered_with(tokens, demand.max_tokens));
  need.items = num_new(device_->items(), matched, 0, to.num_blocks);
  need.pages = num_new(device_->pages(), matched, to.first_page, to.num_blocks);
  return need;
}

// Beyond what it holds.
DeviceNeed KvManager::need_of(const SequenceMemory& memory, const Coverage& to) const {
  const int64_t num_before = std::ssize(memory.index_items_);
  const std::span<const HostBlockId> blocks = memory.blocks_;
  DeviceNeed need =
      device_->need_of(covered_with(to.num_blocks * kHostBlockTokens, memory.max_tokens_));
  need.items = num_new(device_->items(), blocks, num_before, to.num_blocks);
  need.pages =
      num_new(device_->pages(), blocks, std::max(to.first_page, num_before), to.num_blocks);
  if (num_before > 0) need.own_rows -= device_->need_of(memory.device_tokens()).own_rows;
  return need;
}

// Covers more blocks, whose pages before the window are given up. Precondition: the device has
// room.
void KvManager::take_device_part(SequenceMemory& memory, const Coverage& to) {
  const int64_t num_before = std::ssize(memory.index_items_);
  device_->add(need_of(memory, to));
  for (int64_t i = num_before; i < to.num_blocks; ++i) {
    const HostBlockId block = memory.blocks_[i];
    const bool is_written = i * kHostBlockTokens < to.num_written;
    const auto held = device_->hold_item(block);
    memory.index_items_.push_back(held.item);
    if (held.is_new && is_written) restores_.push_back({block, held.item});
    if (geometry_.draft_page_bytes == 0) continue;
    memory.draft_pages_.push_back(-1);
    if (i < to.first_page) continue;
    const auto page = device_->hold_page(block);
    memory.draft_pages_.back() = page.item;
    if (page.is_new && is_written) restores_.push_back({block, page.item, true});
  }
  memory.version_ = ++num_versions_;
  const auto num_final = std::ssize(memory.blocks_);
  num_growing_ +=
      (to.num_blocks < num_final ? 1 : 0) - (num_before > 0 && num_before < num_final ? 1 : 0);
  if (num_before == 0) {
    ++num_on_device_;
    const auto free_index = std::find(device_tokens_.begin(), device_tokens_.end(), 0);
    memory.index_ = static_cast<int32_t>(free_index - device_tokens_.begin());
    if (free_index == device_tokens_.end()) device_tokens_.push_back(0);
  }
  device_tokens_[memory.index_] = memory.device_tokens();
}

// Of the blocks before this one. Work that is queued may still read them: whoever is given their
// memory writes it in order behind that.
void KvManager::give_up_pages(SequenceMemory& memory, int64_t first_page) {
  bool is_changed = false;
  const int64_t end = std::min(first_page, std::ssize(memory.draft_pages_));
  for (int64_t i = end - 1; i >= 0 && memory.draft_pages_[i] >= 0; --i) {
    device_->release_page(memory.blocks_[i]);
    memory.draft_pages_[i] = -1;
    is_changed = true;
  }
  if (!is_changed) return;
  memory.version_ = ++num_versions_;
  forget_restores(*device_, restores_);
}

bool KvManager::cover(SequenceMemory& memory, int64_t tokens, int64_t num_written,
                      int64_t known_tokens) {
  DHS_CHECK(tokens > 0 && tokens <= memory.max_tokens_, "cover ", tokens, " tokens of ",
            memory.max_tokens_);
  const int64_t most_tokens = std::max(tokens, memory.device_tokens());
  Coverage to = Coverage::of(geometry_, most_tokens, known_tokens == 0 ? tokens : known_tokens);
  to.num_written = num_written;
  give_up_pages(memory, to.first_page);
  if (to.num_blocks <= std::ssize(memory.index_items_)) return true;
  DeviceNeed need = need_of(memory, to);
  if (memory.is_parked()) add_growth(need, to.num_blocks < std::ssize(memory.blocks_));
  if (!device_->fits(need)) return false;
  take_device_part(memory, to);
  return true;
}

void KvManager::park(SequenceMemory& memory) {
  DHS_CHECK(!memory.is_parked() && device_tokens_[memory.index_] > 0, "request index ",
            memory.index_, " leaves the device twice");
  if (memory.index_items_.size() < memory.blocks_.size()) --num_growing_;
  --num_on_device_;
  device_->remove_rows(device_->need_of(memory.device_tokens()).own_rows);
  give_up_pages(memory, std::ssize(memory.draft_pages_));
  for (size_t i = 0; i < memory.index_items_.size(); ++i) device_->release_item(memory.blocks_[i]);
  memory.index_items_.clear();
  memory.draft_pages_.clear();
  device_tokens_[memory.index_] = 0;
  memory.index_ = -1;
  forget_restores(*device_, restores_);
}

bool KvManager::could_admit(const KvDemand& demand, Others others) const {
  const std::vector<HostBlockId> matched = match(demand);
  if (!has_host_room(demand, matched)) return false;
  return device_->could_fit(need_of(demand, matched), held_by(*device_, others));
}

bool KvManager::could_cover(const SequenceMemory& memory, int64_t tokens, Others others) const {
  const Coverage to = Coverage::of(geometry_, tokens, tokens);
  return device_->could_fit(need_of(memory, to), held_by(*device_, others));
}

bool KvManager::set_residency(const ResidencyConfig& residency) {
  if (!device_->set_residency(residency, device_tokens_)) return false;
  controller_->set_config(residency);
  residency_ = residency;
  return true;
}

bool KvManager::set_decode_rows(int64_t rows) {
  DHS_CHECK(rows >= 1 && rows <= geometry_.decode_rows, "a decode step of ", rows, " rows");
  return device_->set_decode_rows(rows, device_tokens_);
}

int64_t KvManager::required_bytes(int64_t num_tokens, int64_t decode_rows) const {
  return device_->bytes_for(device_->need_of(num_tokens, decode_rows));
}

// ---- The prefix cache ---------------------------------------------------------------------------

void KvManager::publish(SequenceMemory& memory, std::span<const TokenId> durable) {
  if (!memory.root_.has_value()) return;
  PrefixIndex& index = host_->index();
  while (std::ssize(durable) >= (std::ssize(memory.published_) + 1) * kHostBlockTokens) {
    const auto i = std::ssize(memory.published_);
    const PrefixNode parent{i == 0 ? *memory.root_ : memory.published_.back().value};
    const auto tokens = tokens_of_block(durable, i);
    const auto known = index.find(parent, tokens);
    if (known.has_value()) {
      host_->hold(*known);  // somebody else computed the same: the chain goes on from there
      memory.published_.push_back(*known);
    } else {
      index.add(parent, memory.blocks_[i], tokens);
      memory.published_.push_back(memory.blocks_[i]);
    }
  }
}

// ---- Orders and reports -------------------------------------------------------------------------

void KvManager::observe(std::span<const GroupTraffic> groups, absl::Duration elapsed) {
  controller_->observe(groups, elapsed);
}

std::vector<ChunkMove> KvManager::rebalance(absl::Time now) {
  controller_->begin_step(now, device_->num_required(), device_->take_pressed());
  return device_->rebalance({.headroom_chunks = controller_->headroom_chunks(),
                             .growth_chunks = controller_->growth_chunks(),
                             .floor_rows = controller_->floor_rows(num_on_device_),
                             .weights = controller_->weights()});
}

std::vector<int64_t> KvManager::refill_rows() const {
  if (residency_.mode != ResidencyMode::kAdaptive) return {};
  std::vector<int64_t> capacity_rows;
  capacity_rows.reserve(geometry_.groups.size());
  for (int g = 0; g < static_cast<int>(geometry_.groups.size()); ++g) {
    capacity_rows.push_back(device_->num_row_chunks(g) *
                            geometry_.records_per_chunk(g, capacity_.chunk_bytes));
  }
  return controller_->refill_rows(capacity_rows);
}

std::vector<HostBlockId> KvManager::take_retired_blocks() { return host_->take_retired(); }

std::vector<BlockRestore> KvManager::take_restores() { return std::exchange(restores_, {}); }

KvUsage KvManager::usage() const {
  KvUsage usage;
  usage.host_blocks_used = host_->num_held();
  usage.host_blocks_cached = host_->num_cached();
  usage.chunks_free = device_->num_free();
  usage.chunks_index = device_->items().num_segments();
  usage.chunks_draft = device_->pages().num_segments();
  for (size_t g = 0; g < geometry_.groups.size(); ++g) {
    const auto group = static_cast<int>(g);
    usage.chunks_rows.push_back(device_->num_row_chunks(group));
    usage.chunks_required.push_back(device_->num_required_chunks(group));
    usage.row_moves.push_back(device_->row_moves(group));
  }
  usage.index_moves = device_->index_moves();
  usage.draft_moves = device_->draft_moves();
  usage.prefix = prefix_counts_;
  return usage;
}

std::string KvManager::check_invariants() const {
  const auto num_free = std::count(device_tokens_.begin(), device_tokens_.end(), 0);
  const int64_t num_held = std::ssize(device_tokens_) - num_free;
  if (num_held != num_on_device_ || num_growing_ > num_on_device_ || num_growing_ < 0) {
    return absl::StrCat(num_held, " request indices, ", num_on_device_, " on the device, ",
                        num_growing_, " growing");
  }
  if (device_->items().num_used() > host_->num_held()) {
    return absl::StrCat(device_->items().num_used(), " index items for ", host_->num_held(),
                        " held host blocks");
  }
  if (device_->pages().num_used() > device_->items().num_used()) {
    return absl::StrCat(device_->pages().num_used(), " draft pages of ",
                        device_->items().num_used(), " host blocks on the device");
  }
  for (std::string wrong : {host_->check_invariants(), device_->check_invariants(device_tokens_)}) {
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace dhs
