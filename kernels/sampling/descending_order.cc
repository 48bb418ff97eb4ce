#include "kernels/sampling/descending_order.h"

#include <algorithm>
#include <bit>

namespace dhs {
namespace {

constexpr int32_t kNumBuckets = 1 << 16;
constexpr float kLowestValue = std::numeric_limits<float>::lowest();

// Larger for larger values; equal for values with equal leading bits. Not for NaN.
int32_t bucket_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<int32_t>(ordered >> 16);
}

// The smallest value of a bucket: the inverse of bucket_of.
float smallest_of(int32_t bucket) {
  const uint32_t ordered = static_cast<uint32_t>(bucket) << 16;
  return std::bit_cast<float>((ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered);
}

constexpr int kBlock = 16;

// Whether any of kBlock values is at least `value`.
bool any_at_least(const float* values, float value) {
  int found = 0;
  for (int i = 0; i < kBlock; ++i) found |= values[i] >= value ? 1 : 0;
  return found != 0;
}

}  // namespace

DescendingOrder::DescendingOrder()
    : num_tokens_(kNumBuckets),
      mass_sum_(kNumBuckets),
      lowest_bucket_(kNumBuckets),
      highest_bucket_(-1),
      counted_down_to_(kNumBuckets),
      candidates_down_to_(kNumBuckets) {}

void DescendingOrder::clear_touched() {
  for (int32_t bucket = lowest_bucket_; bucket <= highest_bucket_; ++bucket) {
    num_tokens_[static_cast<size_t>(bucket)] = 0;
    mass_sum_[static_cast<size_t>(bucket)] = 0;
  }
  lowest_bucket_ = kNumBuckets;
  highest_bucket_ = -1;
  sorted_bucket_ = -1;
  candidates_.clear();
}

void DescendingOrder::count_token(int64_t token) {
  const int32_t bucket = bucket_of(row_.values[token]);
  ++num_tokens_[static_cast<size_t>(bucket)];
  mass_sum_[static_cast<size_t>(bucket)] += row_.mass[token];
  lowest_bucket_ = std::min(lowest_bucket_, bucket);
  highest_bucket_ = std::max(highest_bucket_, bucket);
}

void DescendingOrder::build(const Row& row, float likely_lowest) {
  clear_touched();
  row_ = row;
  candidates_down_to_ = bucket_of(std::max(likely_lowest, kLowestValue));
  counted_down_to_ = candidates_down_to_;
  // The smallest value of the bucket, so that it is counted whole; -inf shares no bucket with a
  // number.
  const float smallest = std::max(smallest_of(counted_down_to_), kLowestValue);
  candidates_.resize(static_cast<size_t>(row.count));
  size_t num_candidates =
      0;  // written without a branch: which tokens these are cannot be predicted
  for (int64_t begin = 0; begin < row.count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, row.count);
    if (end - begin == kBlock && !any_at_least(row.values + begin, smallest)) continue;
    for (int64_t i = begin; i < end; ++i) {
      candidates_[num_candidates] = static_cast<int32_t>(i);
      num_candidates += row.values[i] >= smallest ? 1 : 0;
    }
  }
  candidates_.resize(num_candidates);
  for (int32_t token : candidates_) count_token(token);
}

void DescendingOrder::count_the_rest() {
  const float smallest = std::max(smallest_of(counted_down_to_), kLowestValue);
  for (int64_t i = 0; i < row_.count; ++i) {
    if (row_.values[i] < smallest && row_.values[i] >= kLowestValue) count_token(i);
  }
  counted_down_to_ = 0;
}

const std::vector<DescendingOrder::Token>& DescendingOrder::sorted_bucket(int32_t bucket) {
  if (bucket == sorted_bucket_) return sorted_;
  sorted_.clear();
  auto consider = [&](int32_t token) {
    if (bucket_of(row_.values[token]) == bucket) sorted_.push_back({row_.values[token], token});
  };
  if (bucket >= candidates_down_to_) {
    for (int32_t token : candidates_) consider(token);
  } else {
    for (int64_t i = 0; i < row_.count; ++i) consider(static_cast<int32_t>(i));
  }
  std::sort(sorted_.begin(), sorted_.end(), [](const Token& a, const Token& b) {
    return a.value != b.value ? a.value > b.value : a.token < b.token;
  });
  sorted_bucket_ = bucket;
  return sorted_;
}

DescendingOrder::Prefix DescendingOrder::walk(const Limits& limits) {
  Prefix taken;
  if (highest_bucket_ < 0) count_the_rest();
  int32_t bucket = highest_bucket_;
  const int32_t end_bucket = bucket_of(limits.lowest_value);
  for (; bucket >= end_bucket; --bucket) {
    if (bucket < lowest_bucket_) {
      if (counted_down_to_ == 0) return taken;
      count_the_rest();
    }
    const int64_t num_here = num_tokens_[static_cast<size_t>(bucket)];
    const double mass_here = mass_sum_[static_cast<size_t>(bucket)];
    if (num_here == 0) continue;
    const bool may_be_last = bucket == end_bucket || bucket == lowest_bucket_;
    const bool takes_all = !may_be_last && taken.num_tokens + num_here < limits.num_tokens &&
                           taken.mass + mass_here < limits.mass;
    if (takes_all) {
      taken.num_tokens += num_here;
      taken.mass += mass_here;
      continue;
    }
    for (const Token& token : sorted_bucket(bucket)) {
      if (token.value < limits.lowest_value) return taken;
      ++taken.num_tokens;
      taken.mass += row_.mass[token.token];
      taken.last_token = token.token;
      if (taken.num_tokens >= limits.num_tokens || taken.mass >= limits.mass) return taken;
    }
  }
  return taken;
}

}  // namespace dhs
