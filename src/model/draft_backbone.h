// draft_backbone: the layers that DFlash, DFlash2 and DSpark share: Qwen3-style blocks whose keys
// and values come from the target's taps (the context) as well as from the rows of the block.
//
//   context  c = RMS(fc taps; hidden_norm);  per layer K = rope(RMS(Wk c; k_norm)), V = Wv c
//   block    x = E[anchor, mask, ...];  per layer
//            a = RMS(x; input_norm);  z = conv_0(a);  q, k, v = W z;  o = attention over context
//            and block;  x += conv_1(Wo o);  the same around the MLP
//            y = RMS(x; norm)
// The convolutions (DFlash2 only) take their dynamic part from a. The context passes through none.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <vector>

#include "dhisparse/draft.h"
#include "model/block_draft_weights.h"
#include "model/packed_layer.h"

namespace dhs {

struct PackedConv {
  DeviceVector<float> base_kernel;  // [2, taps, hidden]
  PackedMatrixPtr projection;       // [2 * taps * groups, hidden]
};

struct PackedBlockLayer {
  DeviceVector<float> input_norm, post_attention_norm, q_norm, k_norm;
  PackedMatrixPtr qkv;      // [(heads + 2 kv heads) * head_dim, hidden]
  PackedMatrixPtr o;        // [hidden, heads * head_dim]
  PackedMatrixPtr gate_up;  // [2 * intermediate, hidden]
  PackedMatrixPtr down;     // [hidden, intermediate]
  std::optional<PackedConv> attention_conv, mlp_conv;
};

class DraftBackbone {
 public:
  DraftBackbone(const BlockDraftConfig& config, Device& device)
      : config_(config), device_(device) {}

  // Packs the weights and reserves activations. `shared` as the target says.
  absl::Status load(const BlockDraftWeights& weights, const SharedWeights& shared,
                    WeightUploader& uploader, const DraftOptions& options);

  // Keys and values of the step's tokens into the pages of both tiers.
  void append(TensorView<const float, 2> taps, TensorView<const int32_t, 1> positions, KvStore& kv);

  // y of every row of the blocks: [num_blocks * block_rows, hidden], until the next call.
  TensorView<const float, 2> run(const DraftBlocks& blocks, KvStore& kv);

 private:
  struct Workspace {
    MemoryRange memory;
    TensorView<float, 2> features;             // [max_query_rows, hidden] c
    TensorView<float, 2> kv;                   // [max_query_rows, layers * 2 * kv_width]
    TensorView<int32_t, 1> tokens, positions;  // [max_blocks * block_rows], here and below
    TensorView<float, 2> x, a, z;              // [., hidden]
    TensorView<float, 2> delta;                // [., 2 * taps * groups]
    TensorView<float, 2> qkv;                  // [., (heads + 2 kv heads) * head_dim]
    TensorView<float, 2> attended;             // [., heads * head_dim]
    TensorView<float, 2> out, mixed;           // [., hidden]
    TensorView<float, 2> gate_up, activated;   // [., 2 * intermediate], [., intermediate]
    TensorView<float, 2> y;                    // [., hidden]
  };

  absl::Status reserve(const DraftOptions& options);
  Stream stream() const { return device_.stream(); }
  int64_t num_groups() const { return config_.hidden_dim / config_.conv_group_channels; }
  void rotate(TensorView<float, 3> heads, TensorView<const int32_t, 1> positions);
  void normalize(const DeviceVector<float>& weight, int64_t n, TensorView<float, 2> out);
  // The convolution's side 0 of a, or a itself; and side 1 of `out`, or `out` itself.
  TensorView<const float, 2> before(const std::optional<PackedConv>& conv, int64_t n);
  TensorView<const float, 2> after(const std::optional<PackedConv>& conv, int64_t n);
  void attend(const DraftBlocks& blocks, KvStore& kv, int layer, int64_t n);
  void run_mlp(const PackedBlockLayer& layer, int64_t n);

  const BlockDraftConfig& config_;
  Device& device_;
  SharedWeights shared_;
  PackedMatrixPtr fc_;
  PackedMatrixPtr context_;  // [layers * 2 * kv_width, hidden]: per layer Wk, then Wv
  DeviceVector<float> hidden_norm_, norm_;
  DeviceVector<double> rope_frequencies_;
  std::vector<PackedBlockLayer> layers_;
  Workspace ws_;
};

}  // namespace dhs
