// What a decode step takes on a GPU: a roofline with achieved shares of peak rates.
//
// b requests a GPU, T query rows on all of them, M the requests' context:
//   gemm      max(weights read / HBM, dense and expert operations / their peaks); a step reads an
//             expert's weights once if any of T rows chooses it: E (1 - (1 - chosen / E)^T) of E
//   index     max(index rows scanned / HBM, their products with the index heads / fp8 peak)
//   top_k     passes over the scores, 4 bytes each
//   attention max(rows read / HBM, products / peak of the kernel)
//   exchange  hidden states to the experts and back, all layers with experts
//   fetch     missed rows over the link, less the share that other work hides
//   draft     its weights, once, and a constant, in steps that propose
//   fixed     per layer and per step
// Their sum is the step: nothing overlaps but what `hide` says.
#pragma once

#include <cstdint>

#include "dhisparse/sim.h"

namespace dhs::sim {

// One step on one rank.
struct StepLoad {
  double query_rows = 0;
  double all_query_rows = 0;  // of all ranks
  double scanned_rows = 0;    // index rows read, once per request
  double scored_rows = 0;     // index rows scored, once per query row
  double fetched_rows = 0;    // of row_bytes
  bool is_verify = false;     // query rows of drafts are among them
  bool is_proposing = true;   // drafts for the next step, if there is a draft
};

class CostModel {
 public:
  explicit CostModel(const SimConfig& config) : config_(config) {}

  // Index rows that a query row of this context scores.
  double scan_rows(double context) const;
  StepTimes times(const StepLoad& load) const;
  double link_bandwidth() const;

 private:
  double gemm_time(const StepLoad& load) const;
  double index_time(const StepLoad& load) const;
  double attention_time(const StepLoad& load) const;

  const SimConfig config_;
};

// Weights of the target on one GPU.
double weight_bytes(const SimConfig& config);

}  // namespace dhs::sim
