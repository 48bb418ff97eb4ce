// Drives the real scheduler over real KV accounting step by step, with drawn tokens that the test
// chooses.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dhisparse/scheduler.h"

namespace dhs {

inline constexpr TokenId kEndToken = 7;     // the model's end of sequence
inline constexpr TokenId kOtherEnd = 8;     // and its second one
inline constexpr TokenId kPlainToken = 50;  // drawn unless the test says otherwise

// One SequenceWork, copied: the plan's spans end with the commit.
struct PlannedWork {
  uint64_t request = 0;
  std::vector<TokenId> tokens;
  Position first_position = 0;
  bool wants_token = false;
  int num_draft_tokens = 0;
  int num_tokens_to_draft = 0;
  std::vector<TokenId> masked;
  std::vector<SeenToken> seen;
  uint64_t seed = 0;
  int64_t memory_tokens = 0;  // that the work's memory covers
};

struct StepRecord {
  std::vector<PlannedWork> work;
  std::vector<HostBlockId> retired_blocks;
  std::vector<RequestUpdate> updates;

  const RequestUpdate* update_of(uint64_t request) const;
};

// "3: 0+16, 4: 16+8!" reads: request 3 computes 16 positions from 0, request 4 computes 8 from 16
// and draws a token.
std::string describe(const std::vector<PlannedWork>& work);

struct Wanted {
  int32_t prompt_tokens = 1;
  int32_t max_tokens = 4;
  int32_t min_tokens = 0;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  absl::Time deadline = absl::InfiniteFuture();
  int32_t priority = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  std::vector<LogitBias> logit_bias;
  uint64_t text = 0;  // whose prompt it begins with; 0: its own
};

class SchedulerDriver {
 public:
  // A request of up to 64 tokens takes one host block of `num_blocks`; chunks are plentiful, unless
  // said otherwise. A chunk has four index items, or 256 rows of the first index group, or 128 of
  // the second.
  SchedulerDriver(SchedulerConfig config, int32_t num_blocks, int32_t num_chunks = 4096);

  // Prompts are `request` * 1000 (or `text` * 1000), then counting up.
  void enqueue(uint64_t request, const Wanted& wanted);
  // Draws what `draw(request)` says for every sequence that wants a token.
  StepRecord step(const std::function<std::vector<TokenId>(uint64_t request)>& draw = {});
  // Steps until nothing is left; all updates in order.
  std::vector<RequestUpdate> finish_all();

  Scheduler& scheduler() { return scheduler_; }
  KvManager& kv() { return kv_; }
  void set_now(absl::Time now) { now_ = now; }
  // What is proposed to follow the newest token of every request that draws one, as far as the plan
  // asks for it.
  void set_proposals(std::vector<TokenId> drafts) { proposals_ = std::move(drafts); }
  // What a step takes; not known unless said.
  void set_elapsed(std::function<absl::Duration(const RankPlan&)> elapsed) {
    elapsed_ = std::move(elapsed);
  }
  // What every sequence of a step reports.
  void set_rows(int64_t selected, int64_t fetched);

 private:
  KvManager kv_;
  Scheduler scheduler_;
  absl::Time now_ = absl::UnixEpoch();
  int64_t rows_selected_ = 0;
  int64_t rows_fetched_ = 0;
  std::vector<TokenId> proposals_;
  std::function<absl::Duration(const RankPlan&)> elapsed_;
};

}  // namespace dhs
