#include "scheduler/verify_length.h"

#include <algorithm>
#include <cmath>

namespace dhs {
namespace {

// Of a bin: what an observation leaves of those before it, and how many its confidence counts as.
constexpr double kBinMemory = 0.998;
constexpr double kBinPriorWeight = 8;

}  // namespace

int64_t verify_length(std::span<const double> acceptance, double rate, double row_s) {
  double survival = 1;
  for (int64_t j = 0; j < std::ssize(acceptance); ++j) {
    survival *= acceptance[j];
    if (survival <= rate * row_s) return j;
  }
  return std::ssize(acceptance);
}

// A draft after the first rejected one was not tried.
void AcceptanceHistory::observe(int64_t num_verified, int64_t num_accepted) {
  const int64_t num_tried = std::min(num_verified, num_accepted + 1);
  if (std::ssize(counts_) < num_tried) counts_.resize(num_tried);
  for (int64_t j = 0; j < num_tried; ++j) {
    counts_[j].verified = memory_ * counts_[j].verified + 1;
    counts_[j].accepted = memory_ * counts_[j].accepted + (j < num_accepted ? 1 : 0);
  }
}

double AcceptanceHistory::acceptance(int64_t position, double prior, double prior_weight) const {
  if (position >= std::ssize(counts_)) return prior;
  const Counts& counts = counts_[position];
  return (counts.accepted + prior_weight * prior) / (counts.verified + prior_weight);
}

int ConfidenceCalibration::bin_of(double confidence) {
  return std::clamp(static_cast<int>(confidence * kNumBins), 0, kNumBins - 1);
}

void ConfidenceCalibration::observe(double confidence, bool is_accepted) {
  if (!std::isfinite(confidence)) return;
  Bin& bin = bins_[bin_of(confidence)];
  bin.verified = kBinMemory * bin.verified + 1;
  bin.accepted = kBinMemory * bin.accepted + (is_accepted ? 1 : 0);
  bin.confidence = kBinMemory * bin.confidence + confidence;
}

// The confidence, moved by what its bin's drafts were off on average.
double ConfidenceCalibration::calibrated(double confidence) const {
  if (!std::isfinite(confidence)) return 1;
  const Bin& bin = bins_[bin_of(confidence)];
  const double off = (bin.accepted - bin.confidence) / (bin.verified + kBinPriorWeight);
  return std::clamp(confidence + off, 0.0, 1.0);
}

}  // namespace dhs
