// How many drafts are asked for and verified in every step, learned from the steps that were.
//
// Fixed: as many as configured. Adaptive: each request verifies what the ratio test allows it
// (verify_length.h), up to a cap that is reconsidered every kEvaluationSteps steps
// (draft_length.h). Until it is known what a row costs, all drafts are verified.
//
// What caps bring is reckoned from costs and acceptance, then put right by what trials measured
// (draft_trials.h): of the caps that were tried beside none, and thereby of those near them. Where
// trials are still to come, nothing is changed.
//
// What is not tried is not learned, so above 0 one step of kProbePeriod is a probe: it asks for one
// more than the cap, if there are so many, and these are all verified. And a request that verified
// nothing kMostSkips times in a row verifies one draft. Both go by number, not by any token.
//
// Acceptance: from the drafts' own confidence, calibrated on what became of earlier drafts; without
// it from the request's history by position, which begins with that of all requests. Unknown: 1.
#pragma once

#include <absl/time/time.h>

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "scheduler/draft_length.h"
#include "scheduler/draft_trials.h"
#include "scheduler/row_cost.h"
#include "scheduler/verify_length.h"

namespace dhs {

// What is known of one request's drafts.
struct RequestDrafts {
  AcceptanceHistory history{0.95};
  std::vector<float> confidence;  // of the drafts that wait or are being verified; or empty
  double missed_per_row = 0;      // records fetched from the host, moving average
  bool is_probe = false;          // those drafts are all to be verified
  int num_skips = 0;              // steps in a row in which none of its drafts was verified
};

class DraftPolicy {
 public:
  // record_fetch_s: of one missed record over the link; 0: fetches cost nothing.
  DraftPolicy(int num_draft_tokens, bool is_adaptive, double record_fetch_s);

  // ---- Planning a step --------------------------------------------------------------------------

  // Whether the cap is to be reconsidered.
  bool is_due() const { return is_adaptive_ && since_evaluation_ >= kEvaluationSteps; }
  // running: as in DraftLoad. The cap that should hold now; set_cap() makes it so.
  int best_cap(std::span<const RequestDrafts* const> requests, const std::vector<double>& running);
  void set_cap(int cap) { length_.set_cap(cap); }
  int cap() const { return length_.cap(); }

  // One with work. has_prompts: prompts are computed in it, so it is of no trial.
  void begin_step(bool has_prompts);
  // How many drafts to ask for a request in this step, to be verified in a later one.
  int num_to_ask(RequestDrafts& drafts) const {
    drafts.is_probe = is_probe_;
    return num_to_ask_;
  }
  // Of a request's num_drafts drafts, how many to verify.
  int64_t num_to_verify(RequestDrafts& drafts, int64_t num_drafts);

  // The step that was begun first and not ended yet is not carried out.
  void abandon_step() { planned_.pop_front(); }

  // ---- A step's results -------------------------------------------------------------------------

  struct Decoded {  // by one request
    int64_t num_verified = 0;
    int64_t num_accepted = 0;
    int64_t rows_fetched = 0;
  };
  void observe(RequestDrafts& drafts, const Decoded& decoded);
  // After all of its requests. Steps end in the order in which they began.
  void end_step(int64_t prompt_tokens, bool is_proposing, absl::Duration elapsed);

  static constexpr int kEvaluationSteps = 16;
  static constexpr int kProbePeriod = 64;
  static constexpr int kMostSkips = 16;

 private:
  struct Planned {  // step: how many drafts are asked for
    int num_asked = 0;
    int num_before = 0;  // by the step before it
  };

  int num_adaptive(bool has_prompts);  // drafts to ask for
  // Output under a cap by output without drafts, if measured. Draws of other caps than the present
  // are few and of other text: of these only the time is.
  std::optional<double> gain(const DraftLoad& load, int other) const;
  // Puts what was measured in the place of what was reckoned. outputs: by cap.
  void correct(const DraftLoad& load, std::vector<double>& outputs) const;
  std::vector<double> acceptance_of(const RequestDrafts& drafts, int64_t count) const;
  double expected_acceptance(const RequestDrafts& drafts, int64_t position) const;
  double fetch_s(const RequestDrafts& drafts) const {
    return drafts.missed_per_row * record_fetch_s_;
  }

  const int highest_;
  const bool is_adaptive_;
  const double record_fetch_s_;
  DraftLength length_;
  AcceptanceHistory all_requests_;
  ConfidenceCalibration calibration_;
  RowCost cost_;
  DraftTrials trials_;
  int promising_;  // cap above 0, as far as is reckoned
  int num_to_ask_ = 0;
  bool is_probe_ = false;
  int64_t steps_to_probe_ = kProbePeriod;
  std::deque<Planned> planned_;  // not ended yet
  int num_before_ = 0;           // asked for by the step planned last
  // Of the steps of late, fading.
  double tokens_ = 0;
  double seconds_ = 0;
  RowCost::Step step_;  // the results so far
  int64_t step_tokens_ = 0;
  int64_t step_requests_ = 0;
  int64_t since_evaluation_ = 0;  // steps
};

}  // namespace dhs
