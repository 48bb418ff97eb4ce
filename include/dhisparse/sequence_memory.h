// What one request asks of both memory tiers, and what it holds of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dhisparse/base.h"

namespace dhs {

class KvManager;

// What a request asks for.
struct KvDemand {
  int64_t max_tokens = 0;     // final length
  int64_t device_tokens = 0;  // to cover on the device at once; 0: all
  int64_t known_tokens = 0;   // prompt and output so far: ends the draft's window; 0: all covered
  // The tokens known so far, for the prefix cache; without any, the request neither takes blocks
  // from it nor publishes its own.
  std::span<const TokenId> tokens = {};
  std::string_view salt = {};  // blocks are shared between equal salts only
};

// Everything one admitted request holds; giving it up is the destructor's job. The manager must
// outlive it.
class SequenceMemory {
 public:
  SequenceMemory() = default;
  SequenceMemory(SequenceMemory&& other) noexcept { swap(other); }
  SequenceMemory& operator=(SequenceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SequenceMemory();

  // By 64 positions: blocks for [0, max_tokens), index items for [0, device_tokens).
  std::span<const HostBlockId> blocks() const { return blocks_; }
  std::span<const int32_t> index_items() const { return index_items_; }
  // As index_items(), -1 before the window; empty where drafts have no pages.
  std::span<const int32_t> draft_pages() const { return draft_pages_; }
  int64_t max_tokens() const { return max_tokens_; }
  int64_t device_tokens() const;  // a multiple of 64, or max_tokens; 0: parked
  bool is_parked() const { return index_items_.empty(); }
  // Tokens at the start whose state was taken from the prefix cache.
  int64_t cached_tokens() const { return cached_tokens_; }

  // Which of the requests on the device this is: the lowest number that was free when it came.
  // `version` changes with index and tables and is never used twice, so that tables can keep one
  // row per request.
  int32_t index() const { return index_; }
  uint64_t version() const { return version_; }

 private:
  friend class KvManager;
  void swap(SequenceMemory& other) noexcept;

  KvManager* manager_ = nullptr;
  int32_t index_ = -1;
  uint64_t version_ = 0;
  int64_t max_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  std::vector<HostBlockId> blocks_;
  std::vector<int32_t> index_items_;
  std::vector<int32_t> draft_pages_;
  // Its chain in the prefix cache: the block of each of its first blocks' content, its own or one
  // that was there before. Null root: it is not to publish.
  std::optional<int32_t> root_;
  std::vector<HostBlockId> published_;
};

}  // namespace dhs
