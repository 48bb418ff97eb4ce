// A request as the engine takes it, and what is said of it when it ends.
#pragma once

#include <absl/status/status.h>
#include <absl/time/time.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/sampling.h"

namespace dhs {

enum class FinishReason { kStop, kLength, kCancelled, kDeadline, kError };

struct GenerateRequest {
  std::vector<TokenId> prompt;  // not empty; every id < vocab_size
  SamplingParams sampling;
  absl::Time deadline = absl::InfiniteFuture();
  int32_t priority = 0;               // higher first
  std::string cache_salt;             // the prefix cache shares between equal salts only
  bool bypass_prefix_cache = false;   // take nothing from it, leave nothing in it
  std::optional<absl::Time> arrived;  // unset: when it is submitted
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_prompt_tokens = 0;  // taken from the prefix cache
  int64_t rows_selected = 0;         // rows the request's queries selected, all index groups
  int64_t rows_fetched = 0;          // of them, fetched from the host
  int64_t drafts_verified = 0;
  int64_t drafts_accepted = 0;
  int64_t times_parked = 0;
  std::optional<absl::Duration> queued;  // from its arrival to its first step; unset: it had none
};

struct Finished {
  FinishReason reason = FinishReason::kStop;
  std::optional<TokenId> stop_token =
      std::nullopt;  // kStop by token: which one; it is part of the output tokens
  absl::Status error = absl::OkStatus();  // kError only
  Usage usage = {};
};

}  // namespace dhs
