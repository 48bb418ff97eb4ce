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

namespace dhs {

class Proposer {
 public:
  struct Limits {
    int64_t vocab_size = 0;
    int64_t max_blocks = 0;  // of a step
  };
  static absl::StatusOr<std::unique_ptr<Proposer>> create(std::unique_ptr<Draft> draft,
                                                         Device& device, const Limits& limits);

  // Of the request's drafts, which the latest steps proposed.
  BatchTables::DrawnFrom drawn_from(const SequenceWork& work) const;

  // Behind the step's accepted draws: appends its rows, and proposes into `place` if any work of it
  // wants that.
  void launch(const BatchTables& tables, KvStore& kv, int place);
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

  Proposer(std::unique_ptr<Draft> draft, Device& device, const Limits& limits);
  void lay_out(ArenaCarver& carver, Proposals& proposals) const;

  const std::unique_ptr<Draft> draft_;
  Device& device_;
  const Limits limits_;
  std::array<Place, 2> places_;
  int64_t results_bytes_ = 0;  // of a place: drafts and confidence, at its beginning
  std::vector<Kept> kept_;
};

}  // namespace dhs
