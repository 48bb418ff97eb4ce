// resolve and claim on CUDA. The phases are in pass.cuh; here they become launches.
//
// Small passes (pass_config.h): one launch, one block of 256 or 1024 threads, phases separated by
// block barriers. Others: four launches, mark, list, place, assign, of one 256-thread block per
// piece; place has one more block for the victims no class could give. Static shared memory only,
// 4.3 KB. Scratch: 4 bytes per entry and per piece; claim has 16 more per row.
//
// Bound by the latency of four rounds of dependent loads, not by bytes: an entry costs its position
// and state (12 bytes), one 32-byte sector each of block_table and slot_of, and of last_used if it
// hit; a class of victims costs 32 sectors each of owner_of and last_used more, a victim 12 bytes
// of the ring of evicted rows. No FLOPs. No loop over the capacity, except for victims that no
// class could give (and once in 2^32 passes).
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/launch.h"
#include "kernels/resolve/pass.cuh"
#include "kernels/resolve/resolve.h"

namespace dhs {
namespace row_cache {
namespace {

constexpr int kChainThreads = 256;

__device__ __forceinline__ int grid_warp_idx() {
  return static_cast<int>(blockIdx.x) * num_warps() + warp_idx();
}

__global__ void __launch_bounds__(kChainThreads) mark_kernel(Pass pass) {
  __shared__ BlockShared shared;
  mark_piece(pass, static_cast<int32_t>(blockIdx.x), shared);
  if (blockIdx.x == 0 && threadIdx.x == 0) begin_plan(pass);
}

__global__ void __launch_bounds__(kChainThreads) list_kernel(Pass pass) {
  __shared__ BlockShared shared;
  const PassPlan plan = plan_from_head(pass);
  if (blockIdx.x == 0 && threadIdx.x == 0) write_plan(pass, plan);
  list_piece(pass, static_cast<int32_t>(blockIdx.x), shared);
  choose_victims(pass, plan, grid_warp_idx(), static_cast<int>(gridDim.x) * num_warps());
}

// The extra block comes first: it is the one that may take long.
__global__ void __launch_bounds__(kChainThreads) place_kernel(Pass pass) {
  __shared__ BlockShared shared;
  if (blockIdx.x > 0) return place_piece(pass, static_cast<int32_t>(blockIdx.x) - 1, shared);
  find_deficits(pass, *pass.plan, shared);
}

__global__ void __launch_bounds__(kChainThreads) assign_kernel(Pass pass) {
  const PassPlan plan = *pass.plan;
  assign_piece(pass, plan, static_cast<int32_t>(blockIdx.x));
  const int64_t first_thread = int64_t{blockIdx.x} * blockDim.x;
  forget_stamps(pass, plan, first_thread + threadIdx.x, int64_t{gridDim.x} * blockDim.x);
  if (first_thread + threadIdx.x == 0) end_pass(pass, plan);
}

__global__ void __launch_bounds__(kMaxThreads, 1) pass_kernel(Pass pass) {
  __shared__ BlockShared shared;
  const int32_t num_pieces = pass.config.num_pieces;
  if (threadIdx.x == 0) begin_plan(pass);
  for (int32_t piece = 0; piece < num_pieces; ++piece) mark_piece(pass, piece, shared);
  __syncthreads();
  PassPlan plan = plan_from_head(pass);
  for (int32_t piece = 0; piece < num_pieces; ++piece) list_piece(pass, piece, shared);
  choose_victims(pass, plan, warp_idx(), num_warps());
  __syncthreads();
  plan.num_deficits = pass.plan->num_deficits;
  for (int32_t piece = 0; piece < num_pieces; ++piece) place_piece(pass, piece, shared);
  find_deficits(pass, plan, shared);
  __syncthreads();
  plan.num_short = pass.plan->num_short;
  for (int32_t piece = 0; piece < num_pieces; ++piece) assign_piece(pass, plan, piece);
  forget_stamps(pass, plan, threadIdx.x, blockDim.x);
  if (threadIdx.x == 0) end_pass(pass, plan);
}

void launch_pass(const char* op, const Pass& pass, Stream stream) {
  const PassConfig& config = pass.config;
  if (config.is_one_block) {
    cuda::launch(op, pass_kernel, {.grid = 1, .block = unsigned(config.threads)}, stream, pass);
    return;
  }
  const cuda::Shape pieces = {.grid = unsigned(config.num_pieces), .block = kChainThreads};
  const cuda::Shape and_one = {.grid = unsigned(config.num_pieces) + 1, .block = kChainThreads};
  cuda::launch(op, mark_kernel, pieces, stream, pass);
  cuda::launch(op, list_kernel, pieces, stream, pass);
  cuda::launch(op, place_kernel, and_one, stream, pass);
  cuda::launch(op, assign_kernel, pieces, stream, pass);
}

void require(bool holds, const char* why) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", why);
  std::abort();
}

// Gives the pass its shape and its part of the scratch.
void cut_pass(Pass& pass, int64_t num_rows, int64_t num_columns, Stream stream,
              cuda::ScratchCarver& scratch) {
  require(num_rows * num_columns < int64_t{1} << 30, "resolve: 2^30 entries or more in one pass");
  pass.num_rows = static_cast<int32_t>(num_rows);
  pass.num_columns = static_cast<int32_t>(num_columns);
  pass.config = pick_pass_config(pass.num_rows, pass.num_columns, stream.num_sms);
  pass.plan = scratch.take<PassPlan>(1);
  pass.firsts_of_piece = scratch.take<int32_t>(pass.config.num_pieces);
  pass.entry_state = scratch.take<int32_t>(num_rows * num_columns);
  require(pass.plan != nullptr && pass.firsts_of_piece != nullptr && pass.entry_state != nullptr,
          "resolve: the stream's scratch holds less than 4 bytes per entry");
}

}  // namespace
}  // namespace row_cache

void launch_resolve_cuda(const ResolveParams& params, Stream stream) {
  row_cache::Pass pass = {.cache = params.cache,
                          .selection = params.selection,
                          .sequence_of_row = params.sequence_of_row,
                          .block_table = params.block_table,
                          .block_tokens = params.block_tokens,
                          .slots = params.slots,
                          .miss_of = params.miss_of,
                          .num_misses = params.num_misses,
                          .selected_of_sequence = params.selected_of_sequence,
                          .missed_of_sequence = params.missed_of_sequence,
                          .counters = params.counters,
                          .orders = params.misses};
  cuda::ScratchCarver scratch(stream);
  row_cache::cut_pass(pass, params.selection.sizes[0], params.selection.sizes[1], stream, scratch);
  row_cache::launch_pass("resolve", pass, stream);
}

void launch_claim_cuda(const ClaimParams& params, Stream stream) {
  const int64_t num_rows = params.host_rows.sizes[0];
  row_cache::Pass pass = {
      .cache = params.cache,
      .host_rows = params.host_rows,
      .counters = params.counters,
      .is_claim = true,
      .stamp_ahead = params.protect_in_next_pass ? row_cache::kProtectedAhead : 0};
  cuda::ScratchCarver scratch(stream);
  row_cache::cut_pass(pass, 1, num_rows, stream, scratch);
  pass.orders = view(scratch.take<FetchOrder>(num_rows), num_rows);
  row_cache::require(pass.orders.data != nullptr,
                     "claim: the stream's scratch holds less than 20 bytes per row");
  row_cache::launch_pass("claim", pass, stream);
}

}  // namespace dhs
