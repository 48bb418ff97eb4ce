#include "simt/kernels/examples.cuh"

namespace simt::examples {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kThreads = 256;
constexpr int kAbsent = -1;

// The slot of `id`, or kAbsent.
__device__ int find_slot(const FetchMissesArgs& args, int id) {
  const unsigned first = hash_id(id);
  for (int probe = 0; probe < args.hash_capacity; ++probe) {
    const int at = (first + probe) & (args.hash_capacity - 1);
    const int key = __ldg(args.hash_keys + at);
    if (key == id) {
      return args.hash_slots[at];
    }
    if (key == kAbsent) {
      return kAbsent;
    }
  }
  return kAbsent;
}

// A distinct index below *count for each lane with `wanted`, at one atomic per warp. All lanes
// call.
__device__ int claim_index(int* count, bool wanted) {
  const int lane = threadIdx.x % 32;
  const unsigned wanting = __ballot_sync(kAllLanes, wanted);
  int base = 0;
  if (lane == 0 && wanting != 0) {
    base = atomicAdd(count, __popc(wanting));
  }
  base = __shfl_sync(kAllLanes, base, 0);
  const unsigned lower_lanes = (1u << lane) - 1;
  return base + __popc(wanting & lower_lanes);
}

}  // namespace

__global__ void __launch_bounds__(256) fetch_misses(FetchMissesArgs args) {
  __shared__ int ids[kThreads];
  __shared__ int slots[kThreads];
  __shared__ int count;
  if (threadIdx.x == 0) {
    count = 0;
  }
  __syncthreads();

  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const bool in_range = i < args.topk_count;
  const int id = in_range ? args.topk[i] : kAbsent;
  int slot = id >= 0 ? find_slot(args, id) : kAbsent;
  const bool missing = id >= 0 && slot == kAbsent;
  const int index = claim_index(&count, missing);
  if (missing) {
    const int miss = atomicAdd(args.miss_count, 1);
    slot = args.used_slots + miss;
    args.miss_ids[miss] = id;
    ids[index] = id;
    slots[index] = slot;
  }
  if (in_range) {
    args.slot_of[i] = slot;
  }
  __syncthreads();

  // All threads copy all rows, vector by vector, so that neighbours read neighbours.
  const int vectors = count * kRowVectors;
  for (int v = threadIdx.x; v < vectors; v += blockDim.x) {
    const int row = v / kRowVectors;
    const int column = v % kRowVectors;
    const size_t to = size_t(slots[row]) * kRowVectors + column;
    const size_t from = size_t(ids[row]) * kRowVectors + column;
    args.device_rows[to] = args.host_rows[from];
  }
}

}  // namespace simt::examples
