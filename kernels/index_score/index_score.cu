// index_score on CUDA, with tensor cores: bf16 and fp8 keys in pages of 64, index_dim a multiple
// of 16 to 256. Everything else goes to index_score_plain.cuh.
//
// Grid (groups of query rows, splits), 128 threads. A block takes the runs of its query rows that
// share a sequence, one after the other, and of a run every num_splits-th page. Per page:
//   copy     cp.async into one of 3 (fp8) or 2 (bf16) stages, ahead of its use
//   decode   fp8 only: codes to a tile of bf16 [64, index_dim]
//   score    per row: dots [heads, keys] by mma.m16n8k16, relu, times weight, sum over heads
//   store    the sums of the head warps, in order, times the key's scale
// A warp keeps 32 heads of the query in registers, through all pages when the run has one row and
// at most 64 heads; with up to 32 heads the 4 warps take 16 keys each, else 2 x 2 warps take 32 and
// all heads. Heads beyond 64 go in further rounds.
//
// A score is made from its own key's column alone: k steps in order, then per lane the heads g,
// g + 8, g + 16 and g + 24, a fixed tree over the 8 lanes, warps and rounds in order. So its bits
// depend on nothing else. A lane loads 16 bytes, dims 8m .. 8m + 7 of 32, and hands them to the mma
// as two k steps: the dims are permuted in both operands alike.
//
// Shared memory: 59 KB for a row of 64 heads of 128 and fp8 keys, 75 KB for two: 3 blocks per SM.
// Bound by device memory for single rows: 132 bytes per fp8 key, 16.4 kFLOP at 64 heads of 128; by
// the tensor cores when rows share pages.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/index_score/index_page.cuh"
#include "kernels/index_score/index_score_plain.cuh"

namespace dhs {
namespace {

using cuda::kIndexThreads;

constexpr const char* kOp = "index_score";

struct Lane {
  int warp, group, member;
};

__device__ __forceinline__ Lane this_lane() {
  const int thread = static_cast<int>(threadIdx.x);
  return {thread / 32, thread % 32 / 4, thread % 4};
}

// What a lane holds of 32 heads of a query row: row `half * 8 + group` of each m tile.
template <int kChunks>
struct QueryFragments {
  uint4 q[kChunks][2][2];  // [chunk of 32 dims][m tile][half]
  float weights[2][2];
};

template <int kChunks>
__device__ __forceinline__ void load_fragments(const uint4* tile, const float* weights,
                                               int first_head, QueryFragments<kChunks>& query) {
  const Lane lane = this_lane();
  for (int m = 0; m < 2; ++m) {
    for (int half = 0; half < 2; ++half) {
      const int head = first_head + m * 16 + half * 8 + lane.group;
      query.weights[m][half] = weights[head];
      for (int c = 0; c < kChunks; ++c) {
        query.q[c][m][half] = *cuda::tile_piece<kChunks * 4>(tile, head, c * 4 + lane.member);
      }
    }
  }
}

// The weighted relus of a column of dots (of n tile `n`, `column` of this lane's two), summed over
// the warp's 32 heads. Every lane of a member gets it.
template <int kChunks>
__device__ __forceinline__ float sum_of_heads(const QueryFragments<kChunks>& query,
                                              const float (&dots)[2][2][4], int n, int column) {
  float sum = 0.0f;
  for (int m = 0; m < 2; ++m) {
    for (int half = 0; half < 2; ++half) {
      const float dot = dots[m][n][half * 2 + column];
      sum = fmaf(dot < 0.0f ? 0.0f : dot, query.weights[m][half], sum);  // keeps NaN
    }
  }
  for (int bits = 4; bits < 32; bits *= 2) sum += __shfl_xor_sync(cuda::kAllLanes, sum, bits);
  return sum;
}

// Keys [first_key, first_key + 16) of a tile against the warp's heads: sums[key].
template <int kChunks>
__device__ __forceinline__ void score_keys(const QueryFragments<kChunks>& query, const uint4* tile,
                                           int first_key, float* sums) {
  const Lane lane = this_lane();
  float dots[2][2][4] = {};  // [m tile][n tile][...]
  for (int c = 0; c < kChunks; ++c) {
    for (int n = 0; n < 2; ++n) {
      const uint4 keys =
          *cuda::tile_piece<kChunks * 4>(tile, first_key + n * 8 + lane.group, c * 4 + lane.member);
      for (int m = 0; m < 2; ++m) {
        const uint4& upper = query.q[c][m][0];
        const uint4& lower = query.q[c][m][1];
        simt::mma_m16n8k16_bf16(dots[m][n], {upper.x, lower.x, upper.y, lower.y}, {keys.x, keys.y});
        simt::mma_m16n8k16_bf16(dots[m][n], {upper.z, lower.z, upper.w, lower.w}, {keys.z, keys.w});
      }
    }
  }
  for (int n = 0; n < 2; ++n) {
    for (int column = 0; column < 2; ++column) {
      const float sum = sum_of_heads(query, dots, n, column);
      if (lane.group == 0) sums[first_key + n * 8 + lane.member * 2 + column] = sum;
    }
  }
}

// Consecutive query rows of one sequence, and the most that any of them sees.
struct Run {
  int64_t first_row;
  int num_rows;
  int32_t sequence;
  int32_t most_visible;
};

__device__ Run run_at(const IndexScoreParams& params, int64_t row, int64_t end) {
  Run run{row, 0, params.sequence_of_row(row), 0};
  for (; row < end && params.sequence_of_row(row) == run.sequence; ++row, ++run.num_rows) {
    const int32_t visible = params.visible(row);
    run.most_visible = visible > run.most_visible ? visible : run.most_visible;
  }
  return run;
}

// What a thread carries from page to page.
template <int kChunks>
struct Held {
  QueryFragments<kChunks> query;
  int first_head = -1;  // of `query`, counted over the rows of the run; -1: nothing yet
  int buffer = 0;       // of the sums, the one to write next
};

// The keys of one page, as all threads see them but for `scale`: of key threadIdx.x.
struct Keys {
  const uint4* tile;
  int64_t first_key;
  float scale;
};

// One block's work and where it keeps it.
template <RowFormat kFormat, int kChunks>
struct Block {
  static constexpr int kPieces = kChunks * 4;

  const IndexScoreParams& params;
  const IndexScoreConfig& config;
  IndexScoreShared layout;
  std::byte* shared;

  __device__ uint4* stage(int i) const {
    return reinterpret_cast<uint4*>(shared + (i % layout.num_stages) * layout.stage_bytes);
  }
  __device__ uint4* decoded() const { return reinterpret_cast<uint4*>(shared + layout.tile); }
  __device__ uint4* query(int row) const {
    return reinterpret_cast<uint4*>(shared + layout.queries + row * layout.query_bytes);
  }
  __device__ float* weights(int row) const {
    return reinterpret_cast<float*>(shared + layout.weights) + row * config.padded_heads;
  }
  __device__ float* sums(int buffer) const {
    return reinterpret_cast<float*>(shared + layout.sums) +
           buffer * config.head_warps * kIndexPageKeys;
  }

  __device__ void clear_paddings() const {
    const int dim = params.layout.index_dim;
    if constexpr (kFormat == RowFormat::kFp8) {
      cuda::clear_padding<kPieces>(decoded(), dim);
    } else {
      for (int i = 0; i < layout.num_stages; ++i) cuda::clear_padding<kPieces>(stage(i), dim);
    }
  }

  // Scores the keys of a page that row `row` of the run sees.
  __device__ __forceinline__ void score_row(const Run& run, int row, const Keys& keys,
                                            Held<kChunks>& held) const {
    const int64_t t = run.first_row + row;
    const int64_t visible = params.visible(t);
    if (visible <= keys.first_key) return;
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = this_lane().warp;
    const int head_warp = warp % config.head_warps;
    const int key_step = 16 * kIndexWarps / config.head_warps;
    float total = 0.0f;
    for (int head = 0; head < config.padded_heads; head += config.head_block()) {
      const int first_head = head + head_warp * 32;
      const int wanted = row * config.padded_heads + first_head;
      if (held.first_head != wanted) {
        load_fragments(query(row), weights(row), first_head, held.query);
        held.first_head = wanted;
      }
      float* warp_sums = sums(held.buffer) + head_warp * kIndexPageKeys;
      for (int key = warp / config.head_warps * 16; key < kIndexPageKeys; key += key_step) {
        score_keys(held.query, keys.tile, key, warp_sums);
      }
      __syncthreads();
      if (thread < kIndexPageKeys) total += sum_of_warps(sums(held.buffer), thread);
      held.buffer ^= 1;  // the next round's barrier is between these reads and the next writes
    }
    if (thread < kIndexPageKeys && keys.first_key + thread < visible) {
      params.scores.row(t)[keys.first_key + thread] = total * keys.scale;
    }
  }

  __device__ __forceinline__ float sum_of_warps(const float* sums, int key) const {
    float sum = sums[key];
    if (config.head_warps == 2) sum += sums[kIndexPageKeys + key];
    return sum;
  }

  // A page that has arrived, as a tile; all threads may read it.
  __device__ __forceinline__ Keys take_page(uint4* page, int64_t first_key) const {
    if constexpr (kFormat != RowFormat::kFp8) return {page, first_key, 1.0f};
    const int dim = params.layout.index_dim;
    const auto* scales = reinterpret_cast<const float*>(page + kIndexPageKeys * dim / 16);
    const float scale = threadIdx.x < kIndexPageKeys ? scales[threadIdx.x] : 1.0f;
    cuda::decode_page<kPieces>(page, decoded(), dim);
    __syncthreads();
    return {decoded(), first_key, scale};
  }

  __device__ __forceinline__ void score_run(const Run& run) const {
    const int dim = params.layout.index_dim;
    const int num_pages = (run.most_visible + kIndexPageKeys - 1) / kIndexPageKeys;
    const int split = static_cast<int>(blockIdx.y);
    const int num_splits = static_cast<int>(gridDim.y);
    if (split >= num_pages) return;
    const int num_own = (num_pages - split + num_splits - 1) / num_splits;
    const int32_t* items = params.item_table.row(run.sequence) + split;
    int32_t next_item = items[0];  // loaded one page ahead of its copy
    const auto fetch = [&](int i) {
      if (i < num_own) {
        cuda::start_page_copy<kFormat, kPieces>(cuda::page_of(params, next_item), stage(i), dim);
      }
      simt::cp_async_commit_group();
      if (i + 1 < num_own) next_item = items[int64_t{i + 1} * num_splits];
    };
    constexpr int kAhead = kFormat == RowFormat::kFp8 ? 2 : 1;
    for (int i = 0; i < kAhead; ++i) fetch(i);
    for (int row = 0; row < run.num_rows; ++row) {
      cuda::load_query<kPieces>(params, run.first_row + row, config.padded_heads, query(row),
                                weights(row));
    }
    Held<kChunks> held;
    for (int i = 0; i < num_own; ++i) {
      simt::cp_async_wait_group<kAhead - 1>();
      __syncthreads();
      fetch(i + kAhead);
      const Keys keys = take_page(stage(i), (split + int64_t{i} * num_splits) * kIndexPageKeys);
      for (int row = 0; row < run.num_rows; ++row) score_row(run, row, keys, held);
    }
  }
};

template <RowFormat kFormat, int kChunks>
__global__ void __launch_bounds__(kIndexThreads, kChunks == 8 ? 2 : 3)
    index_score_kernel(const __grid_constant__ IndexScoreParams params,
                       const __grid_constant__ IndexScoreConfig config) {
  DHS_DYN_SHARED(uint4, shared);
  const Block<kFormat, kChunks> block{params, config, index_score_shared(kFormat, config),
                                      reinterpret_cast<std::byte*>(shared)};
  block.clear_paddings();
  const int64_t first = int64_t{blockIdx.x} * config.rows_per_block;
  const int64_t last = first + config.rows_per_block;
  const int64_t end = last < params.q.sizes[0] ? last : params.q.sizes[0];
  for (int64_t row = first; row < end;) {
    const Run run = run_at(params, row, end);
    block.score_run(run);
    row += run.num_rows;
  }
}

using Kernel = void(IndexScoreParams, IndexScoreConfig);

template <Kernel* kKernel>
void launch_kernel(const IndexScoreParams& params, const IndexScoreConfig& config, Stream stream) {
  static cuda::OncePerDevice once;
  once(kOp, [] { cuda::allow_shared_bytes(kOp, kKernel, kIndexMaxSharedBytes); });
  const int64_t groups = (params.q.sizes[0] + config.rows_per_block - 1) / config.rows_per_block;
  cuda::launch(kOp, kKernel,
               {.grid = {unsigned(groups), unsigned(config.num_splits)},
                .block = kIndexThreads,
                .shared_bytes = config.shared_bytes},
               stream, params, config);
}

template <RowFormat kFormat>
void launch_format(const IndexScoreParams& params, const IndexScoreConfig& config, Stream stream) {
  if (config.tensor_cores) {
    if constexpr (kFormat != RowFormat::kF32) {
      if (config.dim_chunks == 2) {
        return launch_kernel<index_score_kernel<kFormat, 2>>(params, config, stream);
      }
      if (config.dim_chunks == 4) {
        return launch_kernel<index_score_kernel<kFormat, 4>>(params, config, stream);
      }
      return launch_kernel<index_score_kernel<kFormat, 8>>(params, config, stream);
    }
  }
  launch_kernel<cuda::index_score_plain_kernel<kFormat>>(params, config, stream);
}

}  // namespace

void launch_index_score_cuda(const IndexScoreParams& params, Stream stream) {
  if (params.q.sizes[0] == 0) return;
  const IndexScoreConfig config = pick_index_score_config({.layout = params.layout,
                                                           .num_heads = params.q.sizes[1],
                                                           .num_rows = params.q.sizes[0],
                                                           .max_keys = params.scores.sizes[1],
                                                           .num_sms = stream.num_sms});
  if (config.shared_bytes > kIndexMaxSharedBytes) cuda::check(cudaErrorInvalidValue, kOp);
  switch (params.layout.format) {
    case RowFormat::kF32:
      return launch_format<RowFormat::kF32>(params, config, stream);
    case RowFormat::kBf16:
      return launch_format<RowFormat::kBf16>(params, config, stream);
    case RowFormat::kFp8:
      return launch_format<RowFormat::kFp8>(params, config, stream);
  }
}

}  // namespace dhs
