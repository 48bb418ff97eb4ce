// model: checkpoints and the forward pass of the target families.
//
// A target computes; it owns weights and activations, never KV. All KV goes through the KvStore.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/communicator.h"
#include "dhisparse/config.h"
#include "dhisparse/device.h"
#include "dhisparse/store.h"
#include "dhisparse/tensor.h"
#include "kernels/gemm/gemm.h"

namespace dhs {

struct ModelDescription {
  std::string family;  // the checkpoint's model_type
  int64_t vocab_size = 0;
  int64_t max_position = 0;
  std::vector<TokenId> eos_token_ids;
  std::vector<int32_t> layers_per_group;  // index groups, in layer order
  int32_t num_heads = 0;                  // of attention
  int32_t latent_dim = 0;                 // of a row
  int32_t rope_dim = 0;                   // of a row
  int32_t index_dim = 0;                  // of an index key
  int32_t top_k = 0;
};

enum class MathPrecision { kAuto, kF32, kBf16 };  // auto: f32 for f32 weights, bf16 otherwise

struct ModelOptions {
  MathPrecision precision = MathPrecision::kAuto;
  int64_t max_query_rows = 0;  // of one forward
  int64_t max_logit_rows = 0;  // rows of one forward that want logits
  int64_t max_context = 0;     // highest position + 1
  // Library: what cuBLASLt keeps the bits of rows with goes through it; the CPU has one provider.
  GemmProvider gemm = GemmProvider::kOwn;
  // Null: the only rank. Otherwise this rank's, which outlives the model; all ranks load the same
  // checkpoint and run their forward passes together.
  Communicator* communicator = nullptr;
  ParallelMode parallel_mode = ParallelMode::kTensor;  // data: the rows differ between ranks
  // What a draft reads of every forward pass: the outputs of these layers, or the hidden state
  // behind the final norm.
  std::vector<int32_t> tapped_layers;
  bool taps_final_hidden = false;
};

// What drafts use of the target's weights.
struct SharedWeights {
  DType embedding_dtype = DType::kF32;
  const void* embedding = nullptr;  // device memory: [vocab_size, hidden], dense
  const PackedMatrix* lm_head = nullptr;
  GemmPrecision precision = GemmPrecision::kF32;  // of the target's products
};

// One forward pass. Row i holds token tokens[i] at rows.positions[i] of its sequence. Device
// memory.
struct TokenBatch {
  TensorView<const TokenId, 1> tokens;  // [num_rows]
  QueryRows rows;
  TensorView<const int32_t, 1> logit_rows;  // [num_logit_rows] row indices, -1 for padding
  int64_t max_rank_rows = 0;                // data mode: num_rows of the rank that has the most
};

// Points of the forward pass that tests and draft models can look at.
enum class Tap {
  kIndexQuery,     // [num_rows, index_num_heads * index_dim], rotated
  kIndexKey,       // [num_rows, index_dim], rotated
  kLatent,         // [num_rows, latent_dim], normalised
  kRopeKey,        // [num_rows, rope_dim], rotated
  kAttentionOut,   // [num_rows, hidden], after the output projection
  kRouterWeights,  // [num_rows, experts_per_token]
  kLayerOut,       // [num_rows, hidden], the residual stream after the layer
};

// The model waits for the device before each call. Where device memory is not the host's, copy it.
class TapObserver {
 public:
  virtual ~TapObserver() = default;
  // Valid during the call only.
  virtual void on_tensor(Tap tap, int layer, TensorView<const float, 2> value) = 0;
  // Index scores of rows [first_row, ...), valid up to each row's position.
  virtual void on_scores(int layer, int64_t first_row, TensorView<const float, 2> scores) = 0;
  virtual void on_selection(int layer, TensorView<const int32_t, 2> selection) = 0;
  virtual void on_experts(int layer, TensorView<const int32_t, 2> experts) = 0;
};

class TargetModel {
 public:
  virtual ~TargetModel() = default;

  virtual const ModelDescription& description() const = 0;

  // Runs the batch: writes its KV through `kv` and leaves the logits of batch.logit_rows in
  // logits() until the next call. The store must have begun a step with batch.rows. `taps` may be
  // null. A row's logits depend on its sequence's tokens only: not on the other rows of the batch,
  // on how the prompt was cut, or on what was resident.
  virtual void forward(const TokenBatch& batch, KvStore& kv, TapObserver* taps) = 0;

  // Device memory: [num_logit_rows, vocab_size].
  virtual TensorView<const float, 2> logits() const = 0;

  // Of the latest forward pass, device memory: [num_rows, tapped layers * hidden], by row the
  // layers' outputs one after the other; or [num_rows, hidden] behind the final norm.
  virtual TensorView<const float, 2> taps() const = 0;
  virtual SharedWeights shared_weights() const = 0;
};

// What a Hugging Face directory says of itself, without loading weights.
absl::StatusOr<ModelDescription> describe_model(const std::string& directory);

// Loads weights, packs them for `device` and reserves activations for the limits in `options`.
// `device` must outlive the model. INVALID_ARGUMENT when the ranks do not divide the model.
absl::StatusOr<std::unique_ptr<TargetModel>> load_target_model(const std::string& directory,
                                                               Device& device,
                                                               const ModelOptions& options);

}  // namespace dhs
