// How many drafts are asked for and verified in every step, learned from the steps that were.
//
// Fixed: as many as configured. Adaptive: each request verifies what the ratio test allows it
// (verify_length.h), up to a cap that is reconsidered about once a second of steps
// (draft_length.h). Until it is known what a row costs, all drafts are verified.
//
// What is not tried is not learned, so some steps are probes, by number and thus independent of
// any token: one of kProbePeriod (kFirstPeriod until the cost of a row is known) asks for no
// drafts, or, every other time and always at a cap of 0, for one more than the cap, if there are
// so many; these are all verified. And a request that verified nothing kMostSkips times in a row
// verifies one draft.
//
// Whether to draft at all is decided by what was measured, not by what costs promise: once costs
// are known, every other probe that asks for none goes on for kBurst steps, and at a cap of 0 one
// in four probes drafts in full for as many. The output of these steps is compared with that of the
// others, as long as about as many requests decode.
//
// Acceptance: from the drafts' own confidence, calibrated on what became of earlier drafts; without
// it from the request's history by position, which begins with that of all requests. Unknown: 1.
#pragma once

#include <absl/time/time.h>

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/draft_length.h"
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

  // Whether the cap is to be reconsidered: a second of steps has passed.
  bool is_due() const { return is_adaptive_ && since_evaluation_ >= absl::Seconds(1); }
  // running, cached: as in DraftLoad. The cap that should hold now; set_cap() makes it so.
  int best_cap(std::span<const RequestDrafts* const> requests, std::vector<double> running,
               std::vector<double> cached);
  void set_cap(int cap) { length_.set_cap(cap); }
  int cap() const { return length_.cap(); }

  void begin_step();
  // How many drafts to ask for a request in this step, to be verified in a later one.
  int num_to_ask(RequestDrafts& drafts) const {
    drafts.is_probe = is_probe_;
    return num_to_ask_;
  }
  // Of a request's num_drafts drafts, how many to verify.
  int64_t num_to_verify(RequestDrafts& drafts, int64_t num_drafts);

  // ---- A step's results -------------------------------------------------------------------------

  struct Decoded {  // by one request
    int64_t num_verified = 0;
    int64_t num_accepted = 0;
    int64_t rows_fetched = 0;
  };
  void observe(RequestDrafts& drafts, const Decoded& decoded);
  // After all of its requests.
  void end_step(int64_t prompt_tokens, bool is_proposing, absl::Duration elapsed);

  static constexpr int kFirstPeriod = 8;
  static constexpr int kProbePeriod = 64;
  static constexpr int kMostSkips = 16;
  static constexpr int kBurst = 4;

 private:
  // Output of one kind of steps, of late.
  class Meter {
   public:
    void add(double tokens, double seconds, double requests);
    bool is_known(double requests) const;
    double rate() const { return tokens_ / seconds_; }

   private:
    double tokens_ = 0;
    double seconds_ = 0;
    double requests_ = 0;
    int num_steps_ = 0;
  };

  void measure(double tokens, double seconds, bool is_proposing, const RowCost::Step& step);
  // Puts what was measured in the place of what was reckoned. outputs, running: by cap.
  void correct(std::vector<double>& outputs, const std::vector<double>& running) const;
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
  int num_to_ask_ = 0;
  bool is_probe_ = false;
  int64_t steps_to_probe_ = kFirstPeriod;
  uint64_t num_probes_ = 0;
  // Of the steps of late, fading.
  double tokens_ = 0;
  double seconds_ = 0;
  RowCost::Step step_;  // the results so far
  int64_t step_tokens_ = 0;
  double step_requests_ = 0;
  double num_requests_ = 0;  // of the latest step that decoded
  Meter plain_, drafting_;
  int burst_left_ = 0;  // steps
  int burst_ask_ = 0;
  absl::Duration since_evaluation_;
};

}  // namespace dhs
