#include <algorithm>

#include "dhisparse/config.h"

namespace dhs {

DraftSchedule draft_schedule(const DraftConfig& draft, int num_proposed) {
  if (draft.kind == DraftKind::kNone) return {};
  const bool is_ngram = draft.kind == DraftKind::kNgram;
  const bool is_auto = draft.max_tokens == 0;
  int most = is_auto ? num_proposed : std::min(draft.max_tokens, num_proposed);
  if (is_ngram) most = is_auto ? kNgramTokens : draft.max_tokens;
  return {.num_tokens = most,
          .is_adaptive = is_auto && most > 0,
          .num_lookahead_tokens = draft.kind == DraftKind::kMtp ? most : 0,
          .ngram_min = is_ngram ? draft.ngram_min : 0,
          .ngram_max = is_ngram ? draft.ngram_max : 0};
}

}  // namespace dhs
