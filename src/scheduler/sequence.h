// One request: its tokens and how far they are computed; everything else follows from these.
#pragma once

#include <algorithm>
#include <vector>

#include "dhisparse/scheduler.h"
#include "scheduler/draft_policy.h"
#include "scheduler/prompt_lookup.h"

namespace dhs {

struct Scheduler::Sequence {
  RequestId id;
  uint64_t arrival = 0;  // number of its enqueue()
  int rank = 0;          // where it runs, once admitted
  GenerateRequest request;
  std::vector<TokenId> tokens;  // prompt and output; reserved for max_tokens(): spans stay valid
  int64_t num_prompt_tokens = 0;
  std::vector<TokenId> drafts;         // proposed to follow the tokens
  std::optional<PromptLookup> lookup;  // that proposes them; nullopt: the executor does
  RequestDrafts draft_record;
  // At most, to follow the token that a planned step draws.
  int64_t num_drafts_to_come = 0;
  std::vector<TokenId> verify_row;  // what a planned step verifies: the newest token and drafts
  // Whose KV is written, or will be by a step already planned; drafts count until rejected.
  int64_t num_computed_tokens = 0;
  int64_t num_lookahead_tokens = 0;  // behind all that is known, that proposing writes
  int64_t num_pending_tokens = 0;    // being drawn by steps that are not committed
  int32_t latest_draw = 0;           // of the pending ones, its number in its step
  bool is_admitted = false;
  bool is_paused = false;
  std::vector<TokenId> stop_tokens;
  SeenTokens seen_tokens;  // of `tokens`
  SequenceMemory memory;
  Usage usage;

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t num_output_tokens() const {
    return num_tokens() + num_pending_tokens - num_prompt_tokens;
  }
  int64_t max_tokens() const { return num_prompt_tokens + request.sampling.max_tokens; }
  int64_t num_waiting_tokens() const {
    return num_tokens() + num_pending_tokens - num_computed_tokens;
  }
  bool is_decoding() const { return num_waiting_tokens() == 1 && num_output_tokens() > 0; }
  // Not planned ahead: its next row is to verify the drafts that are on their way, or its next draw
  // depends on the token that is on its way.
  bool is_held() const {
    return num_pending_tokens > 0 && (num_drafts_to_come > 0 || request.sampling.has_penalties());
  }
  // Its last token is being drawn: nothing is left to compute.
  bool is_ending() const { return num_tokens() + num_pending_tokens == max_tokens(); }
  bool can_be_planned() const { return num_waiting_tokens() > 0 && !is_ending() && !is_held(); }
  bool has_prompt_to_compute() const { return can_be_planned() && !is_decoding(); }
  // It has at least so many when the next step drafts, the newest of them without KV.
  int64_t num_known_tokens() const { return num_tokens() + num_pending_tokens; }
  // What has to be covered on the device for all that waits to be computed.
  int64_t num_reached_tokens() const {
    const int64_t known = num_tokens() + num_pending_tokens + std::ssize(drafts);
    return std::min(max_tokens(), std::max(known, num_computed_tokens) + num_lookahead_tokens);
  }

  bool goes_before(const Sequence& other) const {
    if (request.priority != other.request.priority) {
      return request.priority > other.request.priority;
    }
    return arrival < other.arrival;
  }

  // Puts it where it belongs in a list that is in order.
  static void insert(std::unique_ptr<Sequence> sequence, Sequences& sequences);
  static std::unique_ptr<Sequence> take(const Sequence& sequence, Sequences& sequences);
};

}  // namespace dhs
