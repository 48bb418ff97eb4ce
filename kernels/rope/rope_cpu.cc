#include <algorithm>
#include <cmath>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/rope/rope.h"

namespace dhs {
namespace {

constexpr double kPieceNs = 5000;
constexpr double kSineCosineNs = 30;  // of one pair, in f64
constexpr double kTurnNs = 1;         // of one pair of one head

struct Turns {
  std::vector<float> cosine, sine;  // [rope_dim / 2]
};

void load_turns(const RopeParams& params, int32_t position, Turns& turns) {
  const size_t num_pairs = static_cast<size_t>(params.rope_dim / 2);
  turns.cosine.resize(num_pairs);
  turns.sine.resize(num_pairs);
  for (size_t i = 0; i < num_pairs; ++i) {
    const double angle = position * params.inverse_frequency[i];
    turns.cosine[i] = static_cast<float>(std::cos(angle) * params.magnitude);
    turns.sine[i] = static_cast<float>(std::sin(angle) * params.magnitude);
  }
}

void turn_interleaved(const float* cosine, const float* sine, int64_t num_pairs, float* x) {
  for (int64_t i = 0; i < num_pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosine[i] - b * sine[i];
    x[2 * i + 1] = a * sine[i] + b * cosine[i];
  }
}

void turn_half_split(const float* cosine, const float* sine, int64_t num_pairs, float* x) {
  for (int64_t i = 0; i < num_pairs; ++i) {
    const float a = x[i], b = x[i + num_pairs];
    x[i] = a * cosine[i] - b * sine[i];
    x[i + num_pairs] = a * sine[i] + b * cosine[i];
  }
}

void turn_token(const RopeParams& params, int64_t token) {
  if (params.positions(token) < 0) return;
  thread_local Turns turns;
  load_turns(params, params.positions(token), turns);
  const auto turn =
      params.pairing == RopePairing::kInterleaved ? turn_interleaved : turn_half_split;
  for (int64_t head = 0; head < params.x.sizes[1]; ++head) {
    float* x = params.x.row(token) + head * params.x.strides[1];
    turn(turns.cosine.data(), turns.sine.data(), params.rope_dim / 2, x);
  }
}

void launch_rope_cpu(const RopeParams& params) {
  DHS_CHECK(params.rope_dim >= 0 && params.rope_dim % 2 == 0, "rope_dim ", params.rope_dim);
  DHS_CHECK(params.rope_dim <= params.x.sizes[2], "rope_dim ", params.rope_dim, " of ",
            params.x.sizes[2], " columns");
  DHS_CHECK(params.positions.sizes[0] == params.x.sizes[0],
            "positions: ", params.positions.sizes[0], ", tokens: ", params.x.sizes[0]);
  if (params.rope_dim == 0) return;
  const double heads = static_cast<double>(params.x.sizes[1]);
  const int64_t num_pairs = params.rope_dim / 2;
  const double token_ns = static_cast<double>(num_pairs) * (kSineCosineNs + heads * kTurnNs);
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(kPieceNs / token_ns));
  parallel_for(params.x.sizes[0], grain, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) turn_token(params, token);
  });
}

}  // namespace

DHS_LAUNCHER(launch_rope, RopeParams)

}  // namespace dhs
