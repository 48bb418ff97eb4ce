// The most drafts that a request verifies: how much each cap would bring, and when to change it.
//
// Under a cap every request verifies what the ratio test allows it (verify_length.h), so a cap only
// matters by what it saves: proposing at all, and memory, which requests that wait may use or
// residency. Its output is
//   tokens / t = n (R + sum of a) / (base + proposing + n * sum of rows * (row + fetch * f))
// with the lengths at the fixed point of the ratio test, n times as many requests running as now,
// and f = n^kMissPower, as misses fall with the rows cached for a request.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dhs {

struct DraftLoad {  // of a step
  struct Request {
    std::vector<double> acceptance;  // by draft
    double row_s = 0;                // that a row adds, beside its fetches
    double fetch_s = 0;              // of a row, as much as is cached now
  };
  std::vector<Request> requests;
  double base_s = 0;            // of a step without rows of these requests
  double proposing_s = 0;       // more, when drafts are proposed
  std::vector<double> running;  // by cap: how many times as many requests would run
};

// Tokens a second.
double output_under(const DraftLoad& load, int64_t cap);
// Of a request's draw, on average.
double tokens_under(const DraftLoad& load, int64_t cap);

class DraftLength {
 public:
  // Begins with the highest cap.
  explicit DraftLength(int highest) : cap_(highest) {}

  int cap() const { return cap_; }
  // The cap to change to, once another one than the present was better by kWorth kEvaluations times
  // in a row, or by kClear once; otherwise the present one. outputs: by cap.
  int evaluate(std::span<const double> outputs);
  void set_cap(int cap);

  static constexpr double kWorth = 1.03;
  static constexpr double kClear = 1.3;
  static constexpr int kEvaluations = 3;

 private:
  int cap_;
  int num_better_ = 0;
};

}  // namespace dhs
