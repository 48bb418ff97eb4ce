// How many of a request's drafts a step verifies: the ratio test, and what it rests on.
//
// A step of R requests that verifies drafts commits R + sum of a tokens on average, where a_j, the
// survival of a request's draft j, is the probability that it and those before it are accepted:
// a_j = c_1 * .. * c_j. It takes t seconds, and one row more makes it longer by dt. With
// rate = tokens / t, verifying draft j as well raises the rate exactly if a_j / dt > rate. With the
// rate of the steps before in the place of the step's own, each step is one Dinkelbach iteration:
// at a fixed point the lengths maximise the rate where the cost is linear in the rows.
//
// Lossless by construction. Whether draft j is verified depends on c_1 .. c_j and on earlier steps;
// c_j may depend on the tokens before draft j, never on draft j itself or on later ones; and the
// test stops at the first draft that fails. So what is known of a draft's own token never decides
// whether it is verified, and the tokens drawn have the target's distribution.
//
// Source of the math: DSpark's confidence-scheduled verification, its criterion as a ratio test.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dhs {

// acceptance: c_1 .. c_n. rate in tokens, row_s the seconds that a row of this request adds.
// Non-positive rate or row_s: a row costs nothing, and all are verified.
int64_t verify_length(std::span<const double> acceptance, double rate, double row_s);

// ---- What acceptance is expected ----------------------------------------------------------------

// By position, how often a draft was accepted when those before it were; old verifications fade.
class AcceptanceHistory {
 public:
  // Each observation leaves `memory` of those before it.
  explicit AcceptanceHistory(double memory) : memory_(memory) {}

  // Of num_verified drafts the first num_accepted were accepted.
  void observe(int64_t num_verified, int64_t num_accepted);
  // Of the draft at `position` (0: the first); `prior` counts as so many observations.
  double acceptance(int64_t position, double prior, double prior_weight) const;

 private:
  struct Counts {
    double verified = 0;
    double accepted = 0;
  };
  double memory_;
  std::vector<Counts> counts_;
};

// Makes of a draft's own confidence a probability: of the drafts that were about as sure, how many
// were accepted. Before anything is observed, the confidence itself.
class ConfidenceCalibration {
 public:
  ConfidenceCalibration() : bins_(kNumBins) {}

  void observe(double confidence, bool is_accepted);
  double calibrated(double confidence) const;

 private:
  static constexpr int kNumBins = 16;  // equal parts of [0, 1]

  struct Bin {
    double verified = 0;
    double accepted = 0;
    double confidence = 0;  // sum
  };
  static int bin_of(double confidence);

  std::vector<Bin> bins_;
};

}  // namespace dhs
