// A store over real KV accounting, and a naive model of what it must hold: which token was written
// to which host row. A row's values are a hash of that token, so a wrong byte shows whose it was.
//
// Every step checks what the store hands out against the model: the rows of every selected slot,
// the counters, the index pages, the draft pages and the host tier.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "dhisparse/store.h"
#include "kernels/test_memory.h"
#include "watched_device.h"

namespace dhs {

// Never a byte of an encoded row or key: values are small integers, exact in every format.
inline constexpr std::byte kCanary{0xa5};

struct WorldShape {
  RowFormat row_format = RowFormat::kBf16;
  RowFormat index_format = RowFormat::kBf16;
  ResidencyConfig residency = {.headroom_steps = 0, .grow_delay = absl::ZeroDuration()};
  int32_t num_host_blocks = 24;
  int32_t num_chunks = 64;
  int64_t chunk_bytes = 4096;
  int32_t top_k = 8;
  std::vector<int32_t> layers_per_group = {1, 3, 2};
  int64_t max_query_rows = 96;
  Retrieval retrieval = Retrieval::kGather;
  int64_t refill_rows = 0;  // of every group at every step boundary
  DraftPageLayout draft_page;
  int64_t draft_window = 0;
};

// A sequence's part of a step: `rewind` of its tokens are written anew, then `num_new` more.
struct StepPart {
  int sequence = 0;
  int num_new = 1;
  int rewind = 0;
};

class StoreWorld {
 public:
  // Ascending visible positions that a query row selects, at most top_k.
  using Choice = std::function<std::vector<int32_t>(int group, int sequence, int32_t position)>;

  explicit StoreWorld(const WorldShape& shape, uint32_t seed = 1);

  // A new sequence, or nullopt when its memory does not fit now. Numbers are never used twice.
  // device_tokens: that it covers at once; 0: all.
  std::optional<int> admit(int64_t max_tokens, int64_t device_tokens = 0);
  // Covers so many tokens; known are those written so far and one more. Parked: gives all up.
  bool cover(int sequence, int64_t tokens);
  void park(int sequence) { kv_.park(sequences_.at(sequence).memory); }
  // The sequence is gone; its blocks are poisoned when the next step (or settle) retires them.
  void release(int sequence);

  // One whole step: every group appends, selects and reads every layer. Without a `choice` each row
  // selects at random.
  void step(const std::vector<StepPart>& parts, const Choice& choice = {});
  // What happens at a step boundary, without a step. Refills, when there are any, come when retired
  // blocks have been poisoned.
  void settle();

  KvStore& store() { return *store_; }
  // Counters as they are now.
  RowCacheCounters counters(int group);
  int64_t resident_rows(int group);
  int64_t selected_of(int sequence_in_step);
  int64_t missed_of(int sequence_in_step);
  KvManager& kv() { return kv_; }
  int64_t num_tokens(int sequence) const { return sequences_.at(sequence).num_tokens; }
  int64_t max_tokens(int sequence) const { return sequences_.at(sequence).memory.max_tokens(); }

  // Of the latest step.
  int num_tiles(int group) const { return num_tiles_[group]; }
  int64_t missed(int group) const { return missed_[group]; }
  const std::vector<ChunkMove>& moves() const { return moves_; }
  // So far: most tiles of one group in one step, and chunks that row caches gave up.
  int most_tiles() const { return most_tiles_; }
  int64_t num_released_chunks() const { return num_released_chunks_; }
  const SequenceMemory& memory(int sequence) const { return sequences_.at(sequence).memory; }

 private:
  struct Token {  // what a host row holds
    int sequence = 0;
    int32_t position = 0;
    int32_t version = 0;  // how often the position was written before
  };
  struct Sequence {
    SequenceMemory memory;
    int64_t num_tokens = 0;
  };
  struct StepRows {  // the arrays behind QueryRows
    std::vector<test::DeviceArray<int32_t>> on_device;
    std::vector<int32_t> sequence_of_row;
    std::vector<int32_t> positions;
    std::vector<int32_t> block_table;
    std::vector<int32_t> item_table;
    std::vector<int32_t> page_table;
    std::vector<int> sequences;  // by index in the step
    QueryRows view;
  };

  HostRow host_row(int sequence, int32_t position) const;
  std::vector<float> values(const Token& token, int kind, int count) const;
  // Values of every query row, where kernels can read them until the step ends.
  TensorView<const float, 2> rows_of_step(int kind, int count);

  void dirty_released_chunks();
  void lay_out(const std::vector<StepPart>& parts);
  void append_layer(int layer);
  void choose(int group, const Choice& choice);
  void run_group(int group);
  void check_layer(int group, int layer);
  void fetch_what_is_left_to_attention(const SelectedRows& rows);
  void check_slot(const SelectedRows& rows, int64_t row, int64_t column, int layer);
  void check_counters(int group, const RowCacheCounters& before);
  void append_draft_kv();
  void check_index_pages();
  void check_draft_pages();
  void check_draft_page(const Token& token, const std::byte* page);
  void check_page(const Token& token, const std::byte* page, int group);
  void check_host_rows();
  void check_row(const Token& token, const std::byte* row, int layer);

  const WorldShape shape_;
  const StoreLayout layout_;
  const KvGeometry geometry_;
  WatchedDevice device_;
  KvManager kv_;
  std::unique_ptr<KvStore> store_;
  std::byte* pool_ = nullptr;
  std::byte* host_ = nullptr;
  std::mt19937 random_;

  std::map<int, Sequence> sequences_;
  std::map<HostRow, Token> tokens_;
  int num_sequences_ = 0;

  StepRows rows_;
  std::vector<int32_t> selection_;
  std::vector<test::DeviceArray<float>> values_of_step_;
  std::vector<ChunkMove> moves_;
  std::vector<int> num_tiles_;
  std::vector<int64_t> missed_;
  int most_tiles_ = 0;
  int64_t num_released_chunks_ = 0;
};

}  // namespace dhs
