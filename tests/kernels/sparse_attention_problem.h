// A problem for sparse_attention's tests, and every version of the op that this program has.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/sparse_attention/attention_config.h"
#include "kernels/test_memory.h"
#if !DHS_TEST_CUDA
#include "kernels/sparse_attention/sparse_attention_tables.h"
#endif

namespace dhs::test {

struct AttentionVersion {
  std::string name;
  bool rounds_to_bf16 = false;  // q and weights
  std::function<void(const SparseAttentionParams&)> launch;
};

#if DHS_TEST_CUDA
inline AttentionDesc attention_desc(const SparseAttentionParams& params, const Stream& on) {
  return {.layout = params.layout,
          .num_query_rows = params.out.sizes[0],
          .num_heads = static_cast<int32_t>(params.out.sizes[1]),
          .top_k = static_cast<int32_t>(params.slots.sizes[1]),
          .num_sms = on.num_sms,
          .compute_capability = on.compute_capability,
          .scratch_bytes = on.scratch_bytes};
}

// As `spread` says, whatever the op would choose by itself.
inline void launch_spread(const SparseAttentionParams& params, const AttentionSpread& spread,
                          const Stream& on) {
  launch_sparse_attention_as(make_attention_config(attention_desc(params, on), spread), params, on);
}

// The stream of a device that has wgmma, which the current one must be.
inline Stream warpgroup_stream() {
  Stream made = stream();
  made.compute_capability = 90;
  return made;
}
inline bool device_has_warpgroups() {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  return major == 9 && minor == 0;
}

// The op's own choice first; then wgmma with any number of heads, segment by segment and all in one
// block.
inline std::vector<AttentionVersion> attention_versions(const RowLayout& layout) {
  std::vector<AttentionVersion> versions = {
      {"cuda", fits_tensor_cores(layout),
       [](const SparseAttentionParams& params) { launch_sparse_attention(params, stream()); }}};
  if (!fits_warpgroups(layout) || !device_has_warpgroups()) return versions;
  for (const int32_t segments : {1, 100}) {
    const AttentionSpread spread{AttentionKernel::kWarpgroup, kWarpgroupHeads, segments};
    versions.push_back({"wgmma, " + std::to_string(segments) + " segments per block", true,
                        [spread](const SparseAttentionParams& params) {
                          launch_spread(params, spread, warpgroup_stream());
                        }});
  }
  return versions;
}
#else
inline std::vector<AttentionVersion> attention_versions(const RowLayout& layout) {
  std::vector<AttentionVersion> versions;
  for (CpuIsa isa : {CpuIsa::kBase, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    if (!cpu_supports(isa)) continue;
    const AttentionTable table = attention_table(isa, layout);
    versions.push_back(
        {cpu_isa_name(isa), table.bf16_pairs, [table](const SparseAttentionParams& params) {
           launch_sparse_attention_with(table, params);
         }});
  }
  return versions;
}
#endif

// Rows in slots of a row cache whose records carry another layer's bytes around them, the same rows
// in host blocks, and query rows.
struct AttentionProblem {
  static constexpr int32_t kSlotsPerChunk = 10;
  static constexpr int32_t kBlockTokens = 4;
  static constexpr int64_t kRowOffset = 16;  // of the layer within a record
  static constexpr int64_t kGroupOffset = 64;

  AttentionProblem(RowLayout row_layout, int64_t heads, int64_t slot_count, int64_t k)
      : layout(row_layout), num_heads(heads), num_slots(slot_count), top_k(k) {
    record_bytes = layout.row_bytes() + 2 * kRowOffset;
    const int64_t num_chunks = (num_slots + kSlotsPerChunk - 1) / kSlotsPerChunk;
    for (int64_t c = 0; c < num_chunks; ++c) {
      offsets.push_back((num_chunks - 1 - c) * kSlotsPerChunk * record_bytes);
    }
    pool.resize(static_cast<size_t>(num_chunks * kSlotsPerChunk * record_bytes));
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      write_row(slot, values(layout.latent_dim), values(layout.rope_dim));
    }
  }

  std::vector<float> values(int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> made(static_cast<size_t>(count));
    for (float& value : made) value = normal(random);
    return made;
  }

  std::byte* slot_row(int64_t slot) {
    return ChunkedItems{pool.data(), offsets.data(), kSlotsPerChunk, record_bytes}.at(slot) +
           kRowOffset;
  }
  void write_row(int64_t slot, const std::vector<float>& latent, const std::vector<float>& rope) {
    encode_row(layout, latent.data(), rope.data(), slot_row(slot));
  }

  void add_row(const std::vector<int32_t>& row_slots) {
    add_row(row_slots, values(num_heads * layout.latent_dim), values(num_heads * layout.rope_dim));
  }
  void add_row(std::vector<int32_t> row_slots, const std::vector<float>& latent,
               const std::vector<float>& rope) {
    row_slots.resize(static_cast<size_t>(top_k), -1);
    slots.insert(slots.end(), row_slots.begin(), row_slots.end());
    q_latent.insert(q_latent.end(), latent.begin(), latent.end());
    q_rope.insert(q_rope.end(), rope.begin(), rope.end());
  }

  // `count` different slots in random order.
  std::vector<int32_t> some_slots(int64_t count) {
    std::vector<int32_t> all(static_cast<size_t>(num_slots));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    all.resize(static_cast<size_t>(count));
    return all;
  }

  int64_t num_rows() const { return static_cast<int64_t>(slots.size()) / top_k; }

  // Turns every third slot into a miss: its record moves to a host block, in another order, and
  // `garbage` takes its place. Entries miss as resolve would tell.
  void lose_slots(std::byte garbage) {
    const int64_t block_bytes = kGroupOffset + (kBlockTokens + 1) * record_bytes;
    const int64_t num_blocks = (num_slots + kBlockTokens - 1) / kBlockTokens;
    host.assign(static_cast<size_t>(num_blocks * block_bytes), std::byte{0x5a});
    const HostRecords records = host_records(host.data());
    std::vector<int32_t> order_of(static_cast<size_t>(num_slots), -1);
    miss_of.assign(slots.size(), -1);
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] < 0 || slots[i] % 3 != 0) continue;
      int32_t& order = order_of[static_cast<size_t>(slots[i])];
      const bool is_first = order < 0;
      if (is_first) {
        order = static_cast<int32_t>(orders.size());
        orders.push_back({num_slots - 1 - slots[i], slots[i]});
        std::byte* record = slot_row(slots[i]) - kRowOffset;
        std::copy_n(record, record_bytes, records.at(orders.back().host_row));
        std::fill_n(record, record_bytes, garbage);
      }
      miss_of[i] = 2 * order + (is_first ? 1 : 0);
    }
  }

  HostRecords host_records(std::byte* base) const {
    return {.base = base,
            .block_bytes = kGroupOffset + (kBlockTokens + 1) * record_bytes,
            .group_offset = kGroupOffset,
            .record_bytes = record_bytes,
            .block_tokens = kBlockTokens};
  }

  // Everything as a launch wants it, over the given memory.
  SparseAttentionParams params(std::byte* pool_data, const int64_t* offset_data,
                               const int32_t* slot_data, float* out) const {
    SparseAttentionParams made;
    made.layout = layout;
    made.records = {pool_data, offset_data, kSlotsPerChunk, record_bytes};
    made.row_offset = kRowOffset;
    made.slots = view(slot_data, num_rows(), top_k);
    made.softmax_scale = scale;
    made.out = view(out, num_rows(), num_heads, int64_t{layout.latent_dim});
    return made;
  }
  void set_query(SparseAttentionParams& made, const float* latent, const float* rope) const {
    made.q_latent = view(latent, num_rows(), num_heads, int64_t{layout.latent_dim});
    made.q_rope = view(rope, num_rows(), num_heads, int64_t{layout.rope_dim});
  }
  size_t out_size() const {
    return static_cast<size_t>(num_rows() * num_heads * layout.latent_dim);
  }

  // The output; what the launch left in the pool is in pool_after.
  std::vector<float> run(const AttentionVersion& version) {
    const DeviceArray<std::byte> device_pool(pool);
    const DeviceArray<int64_t> device_offsets(offsets);
    const DeviceArray<int32_t> device_slots(slots), device_miss_of(miss_of);
    const DeviceArray<float> device_latent(q_latent), device_rope(q_rope);
    const DeviceArray<FetchOrder> device_orders(orders);
    const HostArray host_arena(host.empty() ? std::vector<std::byte>(16) : host);
    const DeviceArray<float> out(out_size(), 777.0f);
    SparseAttentionParams made =
        params(device_pool.data(), device_offsets.data(), device_slots.data(), out.data());
    set_query(made, device_latent.data(), device_rope.data());
    if (!miss_of.empty()) {
      made.fetch.miss_of = view<const int32_t>(device_miss_of.data(), num_rows(), top_k);
      made.fetch.orders = view<const FetchOrder>(device_orders.data(), device_orders.size());
      made.fetch.host = host_records(host_arena.data());
    }
    version.launch(made);
    const std::vector<float> result = out.download();
    pool_after = device_pool.download();
    return result;
  }

  std::vector<float> reference() {
    std::vector<float> out(out_size());
    SparseAttentionParams made = params(pool.data(), offsets.data(), slots.data(), out.data());
    set_query(made, q_latent.data(), q_rope.data());
    sparse_attention_ref(made);
    return out;
  }

  std::mt19937 random{5};
  RowLayout layout;
  int64_t num_heads, num_slots, top_k, record_bytes;
  float scale = 1.0f / 16;
  std::vector<int64_t> offsets;
  std::vector<std::byte> pool, pool_after, host;
  std::vector<int32_t> slots, miss_of;
  std::vector<FetchOrder> orders;
  std::vector<float> q_latent, q_rope;
};

}  // namespace dhs::test
