// rope: rotary position embedding in place, with both pairings.
//
//   (a, b) <- (a cos - b sin, a sin + b cos)
//   interleaved: pairs (2i, 2i+1)        half-split: pairs (i, i + rope_dim/2)
//   angle of pair i at position p: p * inverse_frequency[i]; cos and sin are multiplied by
//   `magnitude`.
//
// inverse_frequency comes from rope_frequencies(): theta^(-2i/rope_dim), with the YaRN ramp when
// asked (arXiv 2309.00071; dims slower than beta_slow rotations are divided by `factor`, faster
// than beta_fast are kept, in between a linear ramp). Angles, cos and sin are computed in f64 and
// rounded once, so that long contexts lose nothing; the rotation itself is f32. Rows may be strided
// by head and by token, the last axis is contiguous. A token at a negative position (padding) is
// left as it is. A token's bits depend on its values and position only. Bytes: 8 per turned
// element; one sine and cosine per pair and token, shared by the heads.
#pragma once

#include <vector>

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

enum class RopePairing { kInterleaved, kHalfSplit };

struct YarnParams {
  double factor = 1.0;
  double original_max_position = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
};

// [rope_dim / 2] inverse frequencies. `yarn` may be null. rope_dim is even, theta > 1.
std::vector<double> rope_frequencies(int rope_dim, double theta, const YarnParams* yarn);

struct RopeParams {
  TensorView<float, 3> x;  // [num_tokens, num_heads, >= rope_dim]: the first rope_dim columns turn
  TensorView<const int32_t, 1> positions;     // [num_tokens]
  const double* inverse_frequency = nullptr;  // [rope_dim / 2]
  int32_t rope_dim = 0;                       // even
  RopePairing pairing = RopePairing::kInterleaved;
  float magnitude = 1.0f;
};
void launch_rope(const RopeParams& params, Stream stream);
void rope_ref(const RopeParams& params);

}  // namespace dhs
