// What the rows of a step cost, learned from the steps that were:
//   seconds = base + rows * row + prompt_tokens * token + (1 if drafts are proposed) * proposing
// less what the rows' host fetches are expected to take, which is known for every request by itself
// (`fetch_s`): the regression learns what comes on top of it, so that both together are the cost
// of a row even where part of the fetch is hidden behind other work.
//
// Least squares with forgetting, around moving averages, so that slow changes of load and context
// length are not taken for an effect of rows. Each step moves the coefficients towards the least
// squares solution as far as the data determine them: where terms always change together, or do
// not change at all, what was learned before stays.
#pragma once

#include <absl/time/time.h>

#include <array>
#include <cstdint>

namespace dhs {

class RowCost {
 public:
  struct Step {
    int64_t num_rows = 0;  // of requests that decode
    int64_t prompt_tokens = 0;
    bool is_proposing = false;
    double fetch_s = 0;  // that the rows' fetches are expected to take over the link
  };
  void observe(const Step& step, absl::Duration elapsed);

  // Whether steps with different numbers of rows were seen.
  bool is_known() const { return is_known_; }
  // Seconds; of a row, beside its fetches, possibly less than nothing.
  double row_s() const { return slopes_[0]; }
  double proposing_s() const { return slopes_[2]; }
  // Of the steps of late, on average.
  double step_s() const { return mean_s_ + mean_fetch_s_; }
  double num_rows() const { return means_[0]; }
  double proposing_share() const { return means_[2]; }

 private:
  using Terms = std::array<double, 3>;
  using Square = std::array<Terms, 3>;

  Square stabilised() const;
  double expected_s(const Terms& terms) const;
  void learn(const Terms& terms, double seconds);

  double weight_ = 0;  // of the steps so far, with forgetting; all sums below likewise
  Terms means_ = {};
  double mean_s_ = 0;  // without fetches
  double mean_fetch_s_ = 0;
  Square spread_ = {};  // of the terms around their means: sums of products
  Terms joint_ = {};    // of the terms and the seconds
  Terms slopes_ = {};
  bool is_known_ = false;
};

}  // namespace dhs
