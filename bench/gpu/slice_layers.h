// Four layers of GLM-5.3's shape with random weights: one index group, mixtures of an eighth of the
// experts, as one of eight ranks holds them.
#pragma once

#include "meter.h"
#include "model/packed_layer.h"
#include "model/target_config.h"

namespace dhs::bench {

struct SliceModel {
  TargetConfig config;
  // Layers differ in having an indexer only; those of one kind share their weights, which are far
  // larger than L2.
  PackedLayer first_layer;
  PackedLayer later_layer;
  DeviceVector<double> rope_frequencies;

  const PackedLayer& layer(int number) const { return number == 0 ? first_layer : later_layer; }
  // Of weights and activations that a step over `batch` rows reads at least, in all layers.
  double weight_bytes(int64_t batch) const;
};

// Stops the program when the device has no room.
SliceModel make_slice_model(const Bench& bench);

}  // namespace dhs::bench
