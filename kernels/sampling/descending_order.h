// descending_order: walks the tokens of one row from the largest value down, without sorting them.
//
// build() counts tokens and their mass per bucket, a bucket being the leading 16 bits of the value
// (128 buckets an octave). A walk skips whole buckets and sorts only the one in which it has to
// stop. Order: value descending, ties to the lowest token. Tokens at -inf are never visited. Sums
// are f64, in an order that depends on the values only. An object serves one row at a time and
// keeps its memory.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace dhs {

class DescendingOrder {
 public:
  DescendingOrder();

  // One row. values, mass: [count], kept by reference until the next build. mass >= 0; no value is
  // NaN or -0. `likely_lowest` is where walks are expected to end at the latest: a matter of speed
  // only.
  struct Row {
    const float* values = nullptr;
    const float* mass = nullptr;
    int64_t count = 0;
  };
  void build(const Row& row, float likely_lowest);

  // A walk takes tokens until one of these is met; the token that meets num_tokens or mass is
  // taken.
  struct Limits {
    int64_t num_tokens = std::numeric_limits<int64_t>::max();  // at least 1
    double mass = std::numeric_limits<double>::infinity();
    float lowest_value = std::numeric_limits<float>::lowest();
  };
  struct Prefix {
    int64_t num_tokens = 0;
    double mass = 0;
    int32_t last_token = -1;  // -1: nothing was taken
  };
  Prefix walk(const Limits& limits);

 private:
  struct Token {
    float value;
    int32_t token;
  };
  void clear_touched();
  void count_token(int64_t token);
  void count_the_rest();
  const std::vector<Token>& sorted_bucket(int32_t bucket);

  std::vector<int32_t> num_tokens_;  // [kNumBuckets]
  std::vector<double> mass_sum_;     // [kNumBuckets]
  int32_t lowest_bucket_;            // of those not empty, among the counted
  int32_t highest_bucket_;
  int32_t counted_down_to_;          // buckets from here up are counted
  std::vector<int32_t> candidates_;  // tokens of the buckets that build counted, in rising order
  int32_t candidates_down_to_;
  Row row_;
  std::vector<Token> sorted_;
  int32_t sorted_bucket_ = -1;  // what sorted_ holds
};

}  // namespace dhs
