// Activations of one forward pass, reserved once for the largest batch.
#pragma once

#include <absl/status/statusor.h>

#include "dhisparse/device.h"
#include "dhisparse/model.h"
#include "model/sharding.h"
#include "model/target_config.h"

namespace dhs {

// Query rows whose index scores are in memory at one time.
inline constexpr int64_t kScoreTileRows = 16;

struct Workspace {
  MemoryRange memory;
  // All f32, first axis max_query_rows unless said otherwise.
  TensorView<float, 2> hidden;        // [., hidden] the residual stream
  TensorView<float, 2> normed;        // [., hidden]
  TensorView<float, 2> down;          // [., q_lora + latent + rope + index_dim]
  TensorView<float, 2> up;            // [., heads * qk_head_dim + index_heads * index_dim]
  TensorView<float, 2> head_weights;  // [., index_heads]
  TensorView<float, 2> query_latent;  // [., heads * latent]
  TensorView<float, 2> attended;      // [., heads * latent]
  TensorView<float, 2> values;        // [., heads * v]
  TensorView<float, 2> scores;        // [kScoreTileRows, max_context]
  TensorView<int32_t, 2> selection;   // [., top_k]
  TensorView<float, 2> sublayer_out;  // [., hidden]
  // Of dense layers [., ...] or of all pairs of an expert layer [. * experts_per_token, ...].
  TensorView<float, 1> gate_up;    // rows of 2 * intermediate
  TensorView<float, 1> activated;  // rows of intermediate
  // Of expert layers; in data mode the first axis counts the rows of all ranks.
  TensorView<float, 2> all_rows;          // [., hidden] in and out of the exchange; else empty
  TensorView<float, 2> router_logits;     // [., experts]
  TensorView<int32_t, 2> experts;         // [., experts_per_token]
  TensorView<float, 2> expert_weights;    // [., experts_per_token]
  TensorView<int32_t, 1> expert_offsets;  // [this rank's experts + 1]
  TensorView<int32_t, 1> expert_pairs;    // [. * experts_per_token] sorted by expert
  TensorView<int32_t, 1> row_of_pair;     // [. * experts_per_token] its inverse
  TensorView<float, 2> expert_rows;  // [. * experts_per_token, hidden] in and out, in that order
  TensorView<float, 2> taps;         // [., tapped layers * hidden]; empty without a draft
  TensorView<float, 2> logit_in;     // [max_logit_rows, hidden]
  TensorView<float, 2> logits;       // [max_logit_rows, vocab]
};

// config: this rank's part.
absl::StatusOr<Workspace> reserve_workspace(Device& device, const TargetConfig& config,
                                            const Sharding& sharding, const ModelOptions& options);

// The first `rows` rows of a workspace tensor, `columns` wide from column `first`.
template <class T>
TensorView<T, 2> slice(const TensorView<T, 2>& tensor, int64_t rows, int64_t first,
                       int64_t columns) {
  return {tensor.data + first, {rows, columns}, {tensor.strides[0], 1}};
}
template <class T>
TensorView<T, 2> first_rows(const TensorView<T, 2>& tensor, int64_t rows) {
  return slice(tensor, rows, 0, tensor.sizes[1]);
}
// The same memory with the columns split into `heads` equal parts.
template <class T>
TensorView<T, 3> split_heads(const TensorView<T, 2>& tensor, int64_t heads, int64_t head_dim) {
  return {tensor.data, {tensor.sizes[0], heads, head_dim}, {tensor.strides[0], head_dim, 1}};
}

}  // namespace dhs
