// draft_attention on CUDA: grid (groups of query rows of a key head, key heads, draft blocks), 128
// threads, 4 * (rows * (head_dim + 32) + 32 * (2 * head_dim + 4)) bytes of shared memory (53 KB for
// groups of 32 rows and head_dim 128).
//
// The query rows of a key head are the block's rows times the heads that share it. A group of 8 or
// 32 of them goes over the context once, in tiles of 32 positions. A warp owns 2 or 8 query rows:
// its lanes are the tile's positions while it scores and columns while it accumulates. Small groups
// give few draft blocks more SMs, large ones read the context less often; the bits of a row are the
// same.
// Bound by f32 arithmetic: per tile and query row 64 * head_dim multiply-adds against 64 * head_dim
// values read per group; with few draft blocks, by the tiles of one group following each other.
// Stages: load_query, then for each tile load, score, update_softmax, accumulate, then store.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/draft_attention/draft_attention.h"
#include "kernels/gather/addresses.cuh"
#include "kernels/kv_row/kv_row_device.cuh"

namespace dhs {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kTileTokens = 32;
constexpr int kKeyPadding = 4;  // lanes read vectors of neighbouring rows: no bank twice
constexpr int kFewRows = 2, kManyRows = 8;  // of a warp

constexpr int64_t shared_bytes(int64_t head_dim, int64_t group_rows) {
  return static_cast<int64_t>(sizeof(float)) *
         (group_rows * (head_dim + kTileTokens) + kTileTokens * (2 * head_dim + kKeyPadding));
}

struct Tile {
  int64_t first_position;
  int num_tokens;
};

// ROWS of a warp; COLUMNS of a lane: head_dim <= 32 * COLUMNS.
template <int ROWS, int COLUMNS>
class GroupAttention {
 public:
  __device__ GroupAttention(const DraftAttentionParams& params, float* shared)
      : params_(params),
        head_dim_(params.layout.head_dim),
        key_pitch_(head_dim_ + kKeyPadding),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        heads_per_key_head_(static_cast<int>(params.q.sizes[1]) / params.layout.num_kv_heads),
        first_position_(params.first_position(blockIdx.z)) {
    q_ = shared;
    keys_ = q_ + kGroupRows * head_dim_;
    values_ = keys_ + kTileTokens * key_pitch_;
    weights_ = values_ + kTileTokens * head_dim_ + warp_ * ROWS * kTileTokens;
    for (int r = 0; r < ROWS; ++r) {
      largest_[r] = -INFINITY;
      total_[r] = 0.0f;
      for (int c = 0; c < COLUMNS; ++c) sums_[r][c] = 0.0f;
    }
  }

  __device__ void run(const cuda::ItemAddresses& pages) {
    if (first_position_ >= 0) {
      load_query();
      run_context(pages);
      run_block_rows();
    }
    store();
  }

 private:
  static constexpr int kGroupRows = kWarps * ROWS;

  // Query row r of the group: row block_row(r) of the draft block, head head_of(r).
  __device__ int query_row(int r) const { return static_cast<int>(blockIdx.x) * kGroupRows + r; }
  __device__ int block_row(int r) const { return query_row(r) / heads_per_key_head_; }
  __device__ bool exists(int r) const { return block_row(r) < params_.block_rows; }
  __device__ int64_t row_of(int r) const {
    return int64_t{blockIdx.z} * params_.block_rows + block_row(r);
  }
  __device__ int64_t head_of(int r) const {
    return int64_t{blockIdx.y} * heads_per_key_head_ + query_row(r) % heads_per_key_head_;
  }
  __device__ int64_t lowest_position(int row) const {
    const int64_t lowest = params_.window == 0 ? 0 : first_position_ + row - params_.window + 1;
    return lowest < 0 ? 0 : lowest;
  }

  __device__ void load_query();
  __device__ void load_context(const std::byte* page, int64_t first_token, int num_tokens);
  __device__ void load_block_rows(int64_t first_row, int num_tokens);
  __device__ void score(float* scores) const;
  __device__ void update_softmax(float* scores, Tile tile);
  __device__ void accumulate();
  __device__ void attend(Tile tile);
  __device__ void run_context(const cuda::ItemAddresses& pages);
  __device__ void run_block_rows();
  __device__ void store();

  const DraftAttentionParams& params_;
  const int head_dim_, key_pitch_, warp_, lane_, heads_per_key_head_;
  const int64_t first_position_;
  float* q_;             // [kGroupRows, head_dim]
  float* keys_;          // [kTileTokens, key_pitch]
  float* values_;        // [kTileTokens, head_dim]
  float* weights_;       // [ROWS, kTileTokens], the warp's own
  float largest_[ROWS];  // scores are in powers of two
  float total_[ROWS];    // of the lane's positions
  float sums_[ROWS][COLUMNS];
};

// Zeros for rows that do not exist.
template <int ROWS, int COLUMNS>
__device__ void GroupAttention<ROWS, COLUMNS>::load_query() {
  for (int i = threadIdx.x; i < kGroupRows * head_dim_; i += kThreads) {
    const int r = i / head_dim_;
    q_[i] = exists(r) ? params_.q(row_of(r), head_of(r), i % head_dim_) : 0.0f;
  }
}

// 16 stored bytes become 4 or 8 floats at a multiple of 16 bytes.
__device__ __forceinline__ void decode_vector(DType dtype, uint4 stored, float* to) {
  auto* vectors = reinterpret_cast<float4*>(to);
  if (dtype == DType::kF32) {
    vectors[0] = float4{__uint_as_float(stored.x), __uint_as_float(stored.y),
                        __uint_as_float(stored.z), __uint_as_float(stored.w)};
    return;
  }
  vectors[0] = float4{cuda::decode_bf16_low(stored.x), cuda::decode_bf16_high(stored.x),
                      cuda::decode_bf16_low(stored.y), cuda::decode_bf16_high(stored.y)};
  vectors[1] = float4{cuda::decode_bf16_low(stored.z), cuda::decode_bf16_high(stored.z),
                      cuda::decode_bf16_low(stored.w), cuda::decode_bf16_high(stored.w)};
}

// Zeros for tokens that do not exist: what lies there may be anything.
template <int ROWS, int COLUMNS>
__device__ void GroupAttention<ROWS, COLUMNS>::load_context(const std::byte* page,
                                                            int64_t first_token, int num_tokens) {
  const DraftPageLayout& layout = params_.layout;
  const int values_per_vector = layout.dtype == DType::kF32 ? 4 : 8;
  const int vectors_per_token = head_dim_ / values_per_vector;
  const std::byte* keys = page + layout.offset(params_.layer, false, first_token);
  const std::byte* values = page + layout.offset(params_.layer, true, first_token);
  for (int i = threadIdx.x; i < kTileTokens * vectors_per_token; i += kThreads) {
    const int token = i / vectors_per_token, vector = i % vectors_per_token;
    const int64_t from = token * layout.token_bytes() + vector * 16;
    uint4 key{0, 0, 0, 0}, value{0, 0, 0, 0};
    if (token < num_tokens) {
      key = simt::load_streaming_16(keys + from);
      value = simt::load_streaming_16(values + from);
    }
    const int column = vector * values_per_vector;
    decode_vector(layout.dtype, key, keys_ + token * key_pitch_ + column);
    decode_vector(layout.dtype, value, values_ + token * head_dim_ + column);
  }
}

template <int ROWS, int COLUMNS>
__device__ void GroupAttention<ROWS, COLUMNS>::load_block_rows(int64_t first_row, int num_tokens) {
  for (int i = threadIdx.x; i < kTileTokens * head_dim_; i += kThreads) {
    const int token = i / head_dim_, column = i % head_dim_;
    const bool is_row = token < num_tokens;
    const int64_t row = int64_t{blockIdx.z} * params_.block_rows + first_row + token;
    keys_[token * key_pitch_ + column] = is_row ? params_.k(row, blockIdx.y, column) : 0.0f;
    values_[i] = is_row ? params_.v(row, blockIdx.y, column) : 0.0f;
  }
}

// The lane's position against the warp's rows.
template <int ROWS, int COLUMNS>
__device__ void GroupAttention<ROWS, COLUMNS>::score(float* scores) const {
  const auto* key = reinterpret_cast<const float4*>(keys_ + lane_ * key_pitch_);
  const int vectors = head_dim_ / 4;
  const auto* q = reinterpret_cast<const float4*>(q_) + warp_ * ROWS * vectors;
  for (int r = 0; r < ROWS; ++r) scores[r] = 0.0f;
  for (int i = 0; i < vectors; ++i) {
    const float4 k = key[i];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const float4 a = q[r * vectors + i];
      scores[r] = fmaf(a.x, k.x, fmaf(a.y, k.y, fmaf(a.z, k.z, fmaf(a.w, k.w, scores[r]))));
    }
  }
}

// Scores become weights, and earlier sums are scaled to the new largest score.
template <int ROWS, int COLUMNS>
__device__ void GroupAttention<ROWS, COLUMNS>::update_softmax(float* scores, Tile tile) {
  constexpr float kLog2E = 1.44269504088896341f;
  const float scale = __fmul_rn(params_.softmax_scale, kLog2E);
  const int64_t position = tile.first_position + lane_;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int row = block_row(warp_ * ROWS + r);
    const bool is_seen = row < params_.block_rows && lane_ < tile.num_tokens &&
                         position >= lowest_position(row) &&
                         (!params_.is_causal || position <= first_position_ + row);
    const float score = is_seen ? __fmul_rn(scores[r], scale) : -INFINITY;
    float largest = score;
    for (int bits = 16; bits > 0; bits /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(cuda::kAllLanes, largest, bits));
    }
    largest = fmaxf(largest, largest_[r]);
    const bool is_empty = largest == -INFINITY;
    const float rescale = is_empty ? 1.0f : exp2f(largest_[r] - largest);
    const float weight = is_empty ? 0.0f : exp2f(score - largest);
    largest_[r] = largest;
    total_[r] = fmaf(total_[r], rescale, weight);
    for (int c = 0; c < COLUMNS; ++c) sums_[r][c] *= rescale;
    weights_[r * kTileTokens + lane_] = weight;
  }
  __syncwarp();
}

// The lane's columns of the warp's rows, four positions at a time.
template <int ROWS, int COLUMNS>
__device__ void GroupAttention<ROWS, COLUMNS>::accumulate() {
  for (int token = 0; token < kTileTokens; token += 4) {
    float values[4][COLUMNS];
#pragma unroll
    for (int i = 0; i < 4 * COLUMNS; ++i) {
      const int column = lane_ + i % COLUMNS * 32;
      values[i / COLUMNS][i % COLUMNS] =
          column < head_dim_ ? values_[(token + i / COLUMNS) * head_dim_ + column] : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const float4 w = *reinterpret_cast<const float4*>(weights_ + r * kTileTokens + token);
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        float sum = fmaf(w.x, values[0][c], sums_[r][c]);
        sum = fmaf(w.y, values[1][c], sum);
        sum = fmaf(w.z, values[2][c], sum);
        sums_[r][c] = fmaf(w.w, values[3][c], sum);
      }
    }
  }
}

// The loaded tile; afterwards it may be overwritten.
template <int ROWS, int COLUMNS>
__device__ void GroupAttention<ROWS, COLUMNS>::attend(Tile tile) {
  __syncthreads();
  if (exists(warp_ * ROWS)) {
    float scores[ROWS];
    score(scores);
    update_softmax(scores, tile);
    accumulate();
  }
  __syncthreads();
}

template <int ROWS, int COLUMNS>
__device__ void GroupAttention<ROWS, COLUMNS>::run_context(const cuda::ItemAddresses& pages) {
  const DraftPageLayout& layout = params_.layout;
  const int32_t sequence = params_.sequence_of_block(blockIdx.z);
  const int64_t head_offset = int64_t{blockIdx.y} * head_dim_ * dtype_bytes(layout.dtype);
  const int64_t lowest = lowest_position(block_row(0));
  for (int64_t first = lowest / kTileTokens * kTileTokens; first < first_position_;
       first += kTileTokens) {
    const int32_t page = params_.page_table(sequence, first / layout.page_tokens);
    if (page < 0) continue;
    const int64_t left = first_position_ - first;
    const int num_tokens = left < kTileTokens ? static_cast<int>(left) : kTileTokens;
    load_context(pages.at(page) + head_offset, first % layout.page_tokens, num_tokens);
    attend({first, num_tokens});
  }
}

template <int ROWS, int COLUMNS>
__device__ void GroupAttention<ROWS, COLUMNS>::run_block_rows() {
  for (int first = 0; first < params_.block_rows; first += kTileTokens) {
    const int left = params_.block_rows - first;
    const int num_tokens = left < kTileTokens ? left : kTileTokens;
    load_block_rows(first, num_tokens);
    attend({first_position_ + first, num_tokens});
  }
}

template <int ROWS, int COLUMNS>
__device__ void GroupAttention<ROWS, COLUMNS>::store() {
  for (int r = 0; r < ROWS; ++r) {
    float total = total_[r];
    for (int bits = 16; bits > 0; bits /= 2) {
      total += __shfl_xor_sync(cuda::kAllLanes, total, bits);
    }
    const int row = warp_ * ROWS + r;
    if (!exists(row)) continue;
    const float inverse = first_position_ < 0 ? 0.0f : 1.0f / total;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const int column = lane_ + c * 32;
      if (column < head_dim_) {
        params_.out(row_of(row), head_of(row), column) = sums_[r][c] * inverse;
      }
    }
  }
}

template <int ROWS, int COLUMNS>
__global__ void __launch_bounds__(kThreads)
    draft_attention_kernel(DraftAttentionParams params, cuda::ItemAddresses pages) {
  DHS_DYN_SHARED(float4, shared);
  GroupAttention<ROWS, COLUMNS>(params, reinterpret_cast<float*>(shared)).run(pages);
}

int64_t num_groups(const DraftAttentionParams& params, int64_t rows_per_warp) {
  const int64_t query_rows = params.block_rows * (params.q.sizes[1] / params.layout.num_kv_heads);
  return (query_rows + kWarps * rows_per_warp - 1) / (kWarps * rows_per_warp);
}

template <int ROWS, int COLUMNS>
void launch_groups(const DraftAttentionParams& params, Stream stream) {
  constexpr const char* kOp = "draft_attention";
  static cuda::OncePerDevice once;
  once(kOp, [&] {
    cuda::allow_shared_bytes(kOp, draft_attention_kernel<ROWS, COLUMNS>,
                             shared_bytes(32 * COLUMNS, kWarps * ROWS));
  });
  cuda::launch(kOp, draft_attention_kernel<ROWS, COLUMNS>,
               {.grid = dim3(static_cast<unsigned>(num_groups(params, ROWS)),
                             static_cast<unsigned>(params.layout.num_kv_heads),
                             static_cast<unsigned>(params.first_position.sizes[0])),
                .block = dim3(kThreads),
                .shared_bytes = shared_bytes(params.layout.head_dim, kWarps * ROWS)},
               stream, params, cuda::ItemAddresses(params.pages));
}

template <int ROWS>
void launch_rows(const DraftAttentionParams& params, Stream stream) {
  const int32_t head_dim = params.layout.head_dim;
  if (head_dim <= 64) return launch_groups<ROWS, 2>(params, stream);
  if (head_dim <= 128) return launch_groups<ROWS, 4>(params, stream);
  launch_groups<ROWS, kMaxDraftHeadDim / 32>(params, stream);
}

}  // namespace

// Large groups when they occupy the device and most of their warps have rows.
void launch_draft_attention_cuda(const DraftAttentionParams& params, Stream stream) {
  const int64_t query_rows = params.block_rows * (params.q.sizes[1] / params.layout.num_kv_heads);
  const int64_t num_large =
      num_groups(params, kManyRows) * params.layout.num_kv_heads * params.first_position.sizes[0];
  const bool is_large = query_rows > kWarps / 2 * kManyRows && num_large >= stream.num_sms;
  if (is_large) return launch_rows<kManyRows>(params, stream);
  launch_rows<kFewRows>(params, stream);
}

}  // namespace dhs
