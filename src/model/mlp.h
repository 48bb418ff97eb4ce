// Feed-forward sublayers: dense SwiGLU and the mixture of experts.
#pragma once

#include "dhisparse/model.h"
#include "model/packed_layer.h"
#include "model/workspace.h"

namespace dhs {

struct MlpContext {
  const TargetConfig& config;
  Workspace& ws;
  int64_t num_rows;
  Device& device;
  TapObserver* taps;  // may be null
  Stream stream() const { return device.stream(); }
};

// Reads ws.normed, leaves the sublayer's output in ws.sublayer_out.
void run_mlp(const MlpContext& context, const PackedLayer& weights, int layer);

}  // namespace dhs
