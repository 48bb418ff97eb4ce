// Which work of which stream is known to be finished: one counter per stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace simt {

class VectorClock {
 public:
  uint32_t at(uint32_t stream) const { return stream < counts_.size() ? counts_[stream] : 0; }

  // The next moment of `stream`.
  uint32_t tick(uint32_t stream) {
    if (stream >= counts_.size()) counts_.resize(stream + 1);
    return ++counts_[stream];
  }

  void join(const VectorClock& other) {
    if (counts_.size() < other.counts_.size()) counts_.resize(other.counts_.size());
    for (size_t i = 0; i < other.counts_.size(); ++i) {
      counts_[i] = std::max(counts_[i], other.counts_[i]);
    }
  }

 private:
  std::vector<uint32_t> counts_;
};

}  // namespace simt
