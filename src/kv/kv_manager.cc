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

int64_t covered_at_once(const KvDemand& demand) {
  const bool is_all = demand.device_tokens == 0;
  return covered_with(is_all ? demand.max_tokens : demand.device_tokens, demand.max_tokens);
}

// What the requests would give up, were they parked.
DevicePool::Need held_by(const DevicePool& device, KvManager::Others others) {
  DevicePool::Need held;
  for (const SequenceMemory* other : others) {
    const DevicePool::Need need = device.need_of(other->device_tokens());
    held.items += need.items;
    held.own_rows += need.own_rows;
  }
  return held;
}

absl::Status too_small(const char* tier, int64_t tokens, int64_t needed, int64_t available,
                       const char* remedy) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a request of ", tokens, " tokens (prompt + max_tokens) needs ", needed, " ",
                   tier, ", the machine has ", available, "; ", remedy));
}

}  // namespace

// ---- SequenceMemory -----------------------------------------------------------------------------

void SequenceMemory::swap(SequenceMemory& other) noexcept {
  std::swap(manager_, other.manager_);
  std::swap(index_, other.index_);
  std::swap(version_, other.version_);
  std::swap(max_tokens_, other.max_tokens_);
  std::swap(cached_tokens_, other.cached_tokens_);
  std::swap(blocks_, other.blocks_);
  std::swap(index_items_, other.index_items_);
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

int64_t KvManager::num_new_items(std::span<const HostBlockId> blocks) const {
  return std::count_if(blocks.begin(), blocks.end(),
                       [&](HostBlockId block) { return !device_->items().contains(block); });
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
  const int64_t covered = covered_at_once(demand);
  DevicePool::Need need = device_->need_of(covered);
  need.items += num_new_items(matched) - std::ssize(matched);
  if (num_on_device_ > 0) {
    need.items += num_growing_ + (num_blocks(covered) < num_blocks(demand.max_tokens) ? 1 : 0);
  }
  return device_->fits(need);
}

bool KvManager::can_admit(const KvDemand& demand) const { return has_room(demand, match(demand)); }

int64_t KvManager::num_optional_chunks() const { return device_->num_optional(); }

std::optional<SequenceMemory> KvManager::admit(const KvDemand& demand) {
  std::vector<HostBlockId> matched = match(demand);
  if (!has_room(demand, matched)) return std::nullopt;
  const int64_t num_restored = num_new_items(matched);
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
  take_device_part(memory, num_blocks(covered_at_once(demand)), memory.cached_tokens_);
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

// Covers the first `num_blocks` blocks. Precondition: the device has room.
void KvManager::take_device_part(SequenceMemory& memory, int64_t num_blocks, int64_t num_written) {
  const int64_t num_before = std::ssize(memory.index_items_);
  const auto new_blocks =
      std::span<const HostBlockId>(memory.blocks_).subspan(num_before, num_blocks - num_before);
  const int64_t tokens = covered_with(num_blocks * kHostBlockTokens, memory.max_tokens_);
  const int64_t rows_before =
      num_before == 0 ? 0 : device_->need_of(memory.device_tokens()).own_rows;
  device_->add({.items = num_new_items(new_blocks),
                .own_rows = device_->need_of(tokens).own_rows - rows_before});
  for (int64_t i = num_before; i < num_blocks; ++i) {
    const auto held = device_->hold_item(memory.blocks_[i]);
    memory.index_items_.push_back(held.item);
    if (held.is_new && i * kHostBlockTokens < num_written) {
      restores_.push_back({memory.blocks_[i], held.item});
    }
  }
  memory.version_ = ++num_versions_;
  const auto num_final = std::ssize(memory.blocks_);
  num_growing_ +=
      (num_blocks < num_final ? 1 : 0) - (num_before > 0 && num_before < num_final ? 1 : 0);
  if (num_before == 0) {
    ++num_on_device_;
    const auto free_index = std::find(device_tokens_.begin(), device_tokens_.end(), 0);
    memory.index_ = static_cast<int32_t>(free_index - device_tokens_.begin());
    if (free_index == device_tokens_.end()) device_tokens_.push_back(0);
  }
  device_tokens_[memory.index_] = tokens;
}

bool KvManager::cover(SequenceMemory& memory, int64_t tokens, int64_t num_written) {
  DHS_CHECK(tokens > 0 && tokens <= memory.max_tokens_, "cover ", tokens, " tokens of ",
            memory.max_tokens_);
  const int64_t wanted = num_blocks(tokens);
  const auto num_before = std::ssize(memory.index_items_);
  if (wanted <= num_before) return true;
  DevicePool::Need need = device_->need_of(covered_with(tokens, memory.max_tokens_));
  need.items = num_new_items(
      std::span<const HostBlockId>(memory.blocks_).subspan(num_before, wanted - num_before));
  if (num_before > 0) {
    need.own_rows -= device_->need_of(memory.device_tokens()).own_rows;
  } else if (num_on_device_ > 0) {
    need.items += num_growing_ + (wanted < std::ssize(memory.blocks_) ? 1 : 0);
  }
  if (!device_->fits(need)) return false;
  take_device_part(memory, wanted, num_written);
  return true;
}

void KvManager::park(SequenceMemory& memory) {
  DHS_CHECK(!memory.is_parked() && device_tokens_[memory.index_] > 0, "request index ",
            memory.index_, " leaves the device twice");
  if (memory.index_items_.size() < memory.blocks_.size()) --num_growing_;
  --num_on_device_;
  device_->remove_rows(device_->need_of(memory.device_tokens()).own_rows);
  for (size_t i = 0; i < memory.index_items_.size(); ++i) device_->release_item(memory.blocks_[i]);
  memory.index_items_.clear();
  device_tokens_[memory.index_] = 0;
  memory.index_ = -1;
  // What was to come back for it alone need not come now.
  std::erase_if(restores_, [&](const BlockRestore& restore) {
    return !device_->items().contains(restore.block);
  });
}

bool KvManager::could_admit(const KvDemand& demand, Others others) const {
  const std::vector<HostBlockId> matched = match(demand);
  if (!has_host_room(demand, matched)) return false;
  DevicePool::Need need = device_->need_of(covered_at_once(demand));
  need.items += num_new_items(matched) - std::ssize(matched);
  return device_->could_fit(need, held_by(*device_, others));
}

bool KvManager::could_cover(const SequenceMemory& memory, int64_t tokens, Others others) const {
  DevicePool::Need need = device_->need_of(covered_with(tokens, memory.max_tokens_));
  need.items =
      num_new_items(std::span<const HostBlockId>(memory.blocks_).first(num_blocks(tokens)));
  return device_->could_fit(need, held_by(*device_, others));
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
  for (size_t g = 0; g < geometry_.groups.size(); ++g) {
    const auto group = static_cast<int>(g);
    usage.chunks_rows.push_back(device_->num_row_chunks(group));
    usage.chunks_required.push_back(device_->num_required_chunks(group));
    usage.row_moves.push_back(device_->row_moves(group));
  }
  usage.index_moves = device_->index_moves();
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
  for (std::string wrong : {host_->check_invariants(), device_->check_invariants(device_tokens_)}) {
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace dhs
