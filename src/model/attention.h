// Multi-head latent attention in absorbed form, with the lightning indexer that feeds it.
#pragma once

#include "dhisparse/model.h"
#include "model/packed_layer.h"
#include "model/workspace.h"

namespace dhs {

// What every layer's attention of one forward pass shares.
struct AttentionContext {
  const TargetConfig& config;      // this rank's part
  const double* rope_frequencies;  // device memory
  Workspace& ws;
  KvStore& kv;
  const QueryRows& rows;
  Device& device;
  TapObserver* taps;      // may be null
  Communicator* summing;  // of the ranks that have the other heads; may be null
  // [num_rows, top_k] positions: what layers with an indexer attend to instead of what it selects.
  // Null data: none is given.
  TensorView<const int32_t, 2> given_selection = {};
  Stream stream() const { return device.stream(); }
};

// Reads ws.normed, leaves the output projection in ws.sublayer_out. The first layer of an index
// group selects for the layers after it.
void run_attention(const AttentionContext& context, const PackedLayer& weights, int layer);

// Of that only what later rows read: the rows' index keys and records.
void append_context(const AttentionContext& context, const PackedLayer& weights, int layer);

}  // namespace dhs
