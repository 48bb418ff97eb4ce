// sparse_attention's fast path on sm_90a: wgmma. Compiled for no other architecture.
//
// Work. As in sparse_attention.cu, with 64 heads per block and two warpgroups that each have half
// of the latents: 64 x 256 sums of 512 latents, 128 registers a thread. A warpgroup's product has
// 64 rows, and only heads of one query row share a selection, so models (or ranks) with fewer heads
// stay with mma.sync.
//
// Stages, per tile of 64 rows; two block barriers, three for fp8:
//   load        second warpgroup: the next tile -> shared memory, cp.async in 16-byte vectors from
//               the slot or, for a miss, from the host block; bf16 swizzled into the other tile,
//               fp8 as stored. Before that, fused retrieval: rows first named here -> their slots.
//   decode      fp8, both warpgroups, before the rest: -> bf16, exact
//   score       first warpgroup, meanwhile: S = q k^T, wgmma m64n64k16, one chain over all dims,
//               lines of k in both operands
//   softmax     first warpgroup: in registers, a head lies in four lanes; weights to shared memory
//   accumulate  both: O = O * rescale + P V, wgmma m64n256k16 over the same tile, whose lines now
//               hold n; the table of the tile after the next is read meanwhile
// and after a segment:
//   finish      O -> out, merged, or -> scratch
//
// Shared memory: warpgroup_shared_bytes(). At 512+64: 72 KB q, 72 KB per bf16 tile (two, or one and
// 41 KB of fp8 rows on their way), 8 KB weights, 3 KB tables and states: 226 or 195 KB. One block
// per SM.
//
// Bound: tensor cores, 2176 cycles of a tile's 9.4 MFLOP, and what does not overlap with them:
// softmax and barriers, fp8's decoding. Rows as in sparse_attention.cu. Bits differ from those of
// mma.sync: hardware adds the products of an instruction in an order of its own.
#include "kernels/cuda/launch.h"
#include "kernels/sparse_attention/warpgroup_attention.cuh"

namespace dhs::cuda {
namespace {

constexpr const char* kOp = "sparse_attention";

template <int kLatentDim, bool kFp8>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    warpgroup_attention_kernel(const __grid_constant__ AttentionLaunch launch) {
  DHS_DYN_SHARED(SharedAtom, smem);
  WarpgroupAttention<kLatentDim, kFp8> attention(launch, smem->bytes);
  attention.run();
}

template <bool kFp8>
AttentionEntry kernel_of(int32_t latent_dim) {
  return latent_dim == 128 ? warpgroup_attention_kernel<128, kFp8>
                           : warpgroup_attention_kernel<512, kFp8>;
}

}  // namespace

AttentionEntry warpgroup_attention(const RowLayout& layout) {
  static OncePerDevice once;
  once(kOp, [] {
    for (const int32_t latent_dim : {128, 512}) {
      allow_shared_bytes(kOp, kernel_of<true>(latent_dim), max_shared_bytes(90));
      allow_shared_bytes(kOp, kernel_of<false>(latent_dim), max_shared_bytes(90));
    }
  });
  return layout.format == RowFormat::kFp8 ? kernel_of<true>(layout.latent_dim)
                                          : kernel_of<false>(layout.latent_dim);
}

}  // namespace dhs::cuda
