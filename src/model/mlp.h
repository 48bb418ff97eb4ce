// Feed-forward sublayers: dense SwiGLU and the mixture of experts.
#pragma once

#include "dhisparse/model.h"
#include "model/packed_layer.h"
#include "model/sharding.h"
#include "model/workspace.h"

namespace dhs {

struct MlpContext {
  const TargetConfig& config;
  Workspace& ws;
  int64_t num_rows;
  int64_t max_rank_rows;  // data mode: num_rows of the rank that has the most
  Device& device;
  TapObserver* taps;  // may be null; of an expert layer it sees the rows that the experts see
  const Sharding& sharding;
  Stream stream() const { return device.stream(); }
};

// Reads ws.normed, leaves the sublayer's output in ws.sublayer_out.
void run_mlp(const MlpContext& context, const PackedLayer& weights, int layer);

}  // namespace dhs
