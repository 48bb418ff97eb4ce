// kv: accounting of both memory tiers. No bytes, no CUDA, no clock: simulations drive it as it is.
//
// Host tier: one pool of host blocks. A host block is the complete state of 64 consecutive tokens
// of one sequence: the records of every index group, the index keys of every group, the draft's
// context. Full blocks are published when their bytes are durable: a later request that begins with
// the same tokens takes them over instead of computing them. A published block that nobody holds
// stays until its place is needed, the one given up first going first.
// Device tier: one pool of chunks. A chunk belongs to the index keys (required, one index item per
// host block that a running request covers), to draft pages (required, one per host block that its
// next draft reads), to the row cache of one index group (protected part required, the rest
// optional), or to nobody.
//
// A request reserves host blocks for its final length when it is admitted. On the device it covers
// the tokens it has reached: index items for them, its protected rows, and draft pages for a window
// that ends there. Covering more may fail when memory is short; then some request is parked: it
// gives its device memory up, keeps its host blocks, and comes back later without computing them
// again. One request alone can always cover all it was admitted for. Optional residency is what is
// left, given back at once when needed.
//
// Owned by the engine thread.
#pragma once

#include <absl/status/status.h>
#include <absl/time/time.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/config.h"
#include "dhisparse/kv_geometry.h"
#include "dhisparse/kv_usage.h"
#include "dhisparse/sequence_memory.h"

namespace dhs {

class DevicePool;
struct Coverage;
struct DeviceNeed;
class HostBlocks;
class ResidencyController;

class KvManager {
 public:
  KvManager(KvGeometry geometry, KvCapacity capacity, ResidencyConfig residency);
  ~KvManager();

  const KvGeometry& geometry() const { return geometry_; }
  const KvCapacity& capacity() const { return capacity_; }

  // Can a request of this final length (prompt + max_tokens) ever run, alone on an empty machine?
  // RESOURCE_EXHAUSTED names the tier, what is needed and what is configured.
  absl::Status fits(int64_t max_tokens) const;

  // Whether the request fits beside those on the device, with room left for each of them to cover
  // one more block. Precondition: fits(max_tokens).
  bool can_admit(const KvDemand& demand) const;
  // Of that, whether its host blocks are there.
  bool has_host_room(const KvDemand& demand) const { return has_host_room(demand, match(demand)); }
  // Tokens at the start of the demand's that the prefix cache has.
  int64_t cached_tokens(const KvDemand& demand) const;
  // That no running request requires: free, or optional residency.
  int64_t num_optional_chunks() const;

  // Reserves what the request needs, taking optional residency back where necessary; nullopt when
  // it cannot be admitted. Precondition: fits(max_tokens).
  std::optional<SequenceMemory> admit(const KvDemand& demand);
  std::optional<SequenceMemory> admit(int64_t max_tokens) {
    return admit({.max_tokens = max_tokens});
  }

  // Covers the request's first `tokens` (1 .. max_tokens) on the device; of `num_written` the state
  // is in the host blocks. Gives up draft pages before its window. False, and nothing else changed,
  // when memory is short. A parked request comes back by this, where can_admit would let it.
  bool cover(SequenceMemory& memory, int64_t tokens, int64_t num_written, int64_t known_tokens = 0);
  // Gives the device memory up. Work that is queued already may still use it.
  void park(SequenceMemory& memory);
  // Whether it could work out, were `others` parked: admission, or covering a parked request.
  using Others = std::span<const SequenceMemory* const>;
  bool could_admit(const KvDemand& demand, Others others) const;
  bool could_cover(const SequenceMemory& memory, int64_t tokens, Others others) const;

  // Promises requests other rows from now on; chunks follow at the next rebalance(). False, and
  // nothing changed, when what is on the device does not fit so: then some request is parked.
  // Precondition: with it, fits() still holds for every request there is.
  bool set_residency(const ResidencyConfig& residency);

  // Of a group, what a request's decode step wants at once from now on: less than the geometry's
  // while fewer drafts are verified. As above: false, and nothing changed, when that does not fit.
  // fits() goes by the geometry's. 1 .. geometry().decode_rows.
  bool set_decode_rows(int64_t rows);
  // Of device memory, by a request alone that covers so many tokens, were those the rows that its
  // decode step wants.
  int64_t required_bytes(int64_t num_tokens, int64_t decode_rows) const;

  // Publishes the full blocks of the request's first tokens, which must be durable in host memory.
  void publish(SequenceMemory& memory, std::span<const TokenId> durable);

  // What a step in which only decoding requests computed did, by index group, and took; zero: not
  // known. By this optional residency grows and is shared among index groups.
  void observe(std::span<const GroupTraffic> groups, absl::Duration elapsed);
  // Moves chunks towards this step's capacity targets and returns every move since the last call,
  // in order. Called once per step, after admissions.
  std::vector<ChunkMove> rebalance(absl::Time now = absl::UnixEpoch());
  // Rows that index groups are to fetch ahead of need in the step that was rebalanced last.
  std::vector<int64_t> refill_rows() const;
  // Blocks whose content is gone since the last call: their slots must be invalidated before
  // anything is written.
  std::vector<HostBlockId> take_retired_blocks();
  // What to bring to the device before anything reads it, since the last call.
  std::vector<BlockRestore> take_restores();

  KvUsage usage() const;

  // The first violated invariant, or empty: owners of chunks, holders of blocks, what is required.
  std::string check_invariants() const;

 private:
  friend class SequenceMemory;

  std::vector<HostBlockId> match(const KvDemand& demand) const;
  bool has_host_room(const KvDemand& demand, std::span<const HostBlockId> matched) const;
  bool has_room(const KvDemand& demand, std::span<const HostBlockId> matched) const;
  void add_growth(DeviceNeed& need, bool is_growing) const;
  DeviceNeed need_of(const KvDemand& demand, std::span<const HostBlockId> matched) const;
  DeviceNeed need_of(const SequenceMemory& memory, const Coverage& to) const;
  void take_device_part(SequenceMemory& memory, const Coverage& to);
  void give_up_pages(SequenceMemory& memory, int64_t first_page);
  void release(SequenceMemory& memory);

  const KvGeometry geometry_;
  const KvCapacity capacity_;
  ResidencyConfig residency_;
  std::unique_ptr<HostBlocks> host_;
  std::unique_ptr<DevicePool> device_;
  std::unique_ptr<ResidencyController> controller_;
  uint64_t num_versions_ = 0;
  std::vector<int64_t> device_tokens_;  // by index of the request on the device; 0: not held
  int64_t num_on_device_ = 0;
  int64_t num_growing_ = 0;  // of them, those that do not cover their final length yet
  std::vector<BlockRestore> restores_;
  PrefixCounts prefix_counts_;
};

}  // namespace dhs
