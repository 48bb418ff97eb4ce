// The draft of a rank at work: what it proposed to whom, and how that was drawn.
//
// Proposals of two steps are kept, in places that take turns: those that a step verifies are read
// before the step's own proposals can overwrite them.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <memory>
#include <vector>

#include "dhisparse/draft.h"
#include "engine/batch_tables.h"
#include "engine/pending_rows.h"

namespace dhs {

class Proposer {
 public:
  struct Limits {
    int64_t vocab_size = 0;
    int64_t max_blocks = 0;  // of a step
    int64_t tap_width = 0;
    int64_t max_query_rows = 0;  // of the draft's
  };
  static absl::StatusOr<std::unique_ptr<Proposer>> create(std::unique_ptr<Draft> draft,
                                                          Device& device, const Limits& limits);

  // Of the request's drafts, which the latest steps proposed.
  BatchTables::DrawnFrom drawn_from(const SequenceWork& work) const;

  // Before the plan changes anything, the tables still those of the step before: appends the rows
  // that have waited, unless they and the plan's may go on waiting.
  void begin_step(const RankPlan& plan, const BatchTables& tables, KvStore& kv);
  // Behind the step's accepted draws: appends its rows or lets them wait, and proposes into `place`
  // if any work of it wants that. plan: of begin_step. taps: the target's.
  void launch(const RankPlan& plan, const BatchTables& tables, TensorView<const float, 2> taps,
              KvStore& kv, int place);
  // Whose blocks those proposals are; called once the step is launched.
  void remember(const RankPlan& plan, int place);

  // Queues a copy of the proposals to the host; what it brought, once the device has passed.
  void queue_results(int place);
  void add_results(int place, int64_t block, int64_t num_wanted, SequenceResult& result) const;

 private:
  struct Kept {  // of the request at an index of the tables
    RequestId request{0};
    int place = 0;
    int64_t block = 0;
  };
  struct Place {
    MemoryRange memory, host;
    Proposals proposals;
  };

  Proposer(std::unique_ptr<Draft> draft, Device& device, const Limits& limits, PendingRows pending);
  void lay_out(ArenaCarver& carver, Proposals& proposals) const;
  void append_pending(const BatchTables& tables, KvStore& kv);

  const std::unique_ptr<Draft> draft_;
  Device& device_;
  const Limits limits_;
  PendingRows pending_;
  bool waits_ = false;  // whether the step's rows do, too
  std::array<Place, 2> places_;
  int64_t results_bytes_ = 0;  // of a place: drafts and confidence, at its beginning
  std::vector<Kept> kept_;
};

}  // namespace dhs
