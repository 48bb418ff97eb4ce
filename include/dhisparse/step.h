// A step as data: what the scheduler wants computed, and what came of it.
#pragma once

#include <absl/time/time.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/kv.h"
#include "dhisparse/sampling.h"

namespace dhs {

struct SequenceWork {  // one sequence's query rows in this step
  RequestId request;
  std::span<const TokenId> tokens;  // a prompt chunk, or the newest token and drafts after it
  int32_t num_draft_tokens = 0;     // of tokens: proposals to verify
  // Set when the newest token is not known yet: the draw of the step before that brings it.
  std::optional<int32_t> previous_draw;
  Position first_position = 0;               // of tokens[0]
  const SequenceMemory* memory = nullptr;    // covers every position up to the last row
  int64_t num_prompt_tokens = 0;             // of tokens; the others were generated
  TokenId next_token = 0;                    // behind `tokens`, unless that is what is drawn
  bool wants_token = false;                  // false for a chunk that is not the prompt's last
  int32_t num_tokens_to_draft = 0;           // to propose for the step after, at most
  const SamplingParams* sampling = nullptr;  // logit_bias in rising order of token
  // Penalties: the newest token is among them, drafts are not. None without penalties.
  std::span<const SeenToken> seen_tokens;
  uint64_t seed = 0;
  std::span<const TokenId> masked_tokens;  // that its first draws may not draw
  int32_t num_masked_draws = 0;            // of the draws of its verify rows
};

struct RankPlan {                           // one rank's part of a step
  std::vector<SequenceWork> work;           // decoding sequences first, then prompt chunks
  std::vector<HostBlockId> retired_blocks;  // applied first: their slots are forgotten
  std::vector<ChunkMove> chunk_moves;       // applied next, in order
  std::vector<BlockRestore> restores;       // then: what prefix hits and resumes bring back
  // By index group, last: rows evicted lately to fetch again into free slots, at most; empty: none.
  std::vector<int64_t> refill_rows;

  int64_t num_rows() const;
};

struct StepPlan {
  StepId step;
  std::vector<RankPlan> ranks;  // at least one

  bool has_work() const;
};

struct SequenceResult {  // one per SequenceWork, in its order, rank by rank
  // Empty unless wants_token; then the drafts that were accepted and one token more.
  std::vector<TokenOutput> tokens;
  std::vector<TokenId> proposed;  // drafts to follow the last of them
  // By proposed: that it is accepted if those before it are; empty: not known.
  std::vector<float> confidence;
  int64_t rows_selected = 0;
  int64_t rows_fetched = 0;
};

struct StepResult {
  std::vector<SequenceResult> sequences;
  absl::Duration elapsed;  // that the step took; zero: not known
  // By rank that holds requests, and index group; empty: not known.
  std::vector<std::vector<GroupTraffic>> traffic = {};
};

}  // namespace dhs
