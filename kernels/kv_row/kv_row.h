// kv_row: the bytes of one token's KV in one layer, and of one index key. Pictures: docs/FORMATS.md
//
// Row formats (latent_dim = kv_lora_rank, rope_dim = qk_rope_head_dim), a row a multiple of 16 B:
//   f32   latent f32 | rope f32
//   bf16  latent bf16 | rope bf16                                        512+64: 1152 B
//   fp8   latent e4m3 | f32 scale per 128 latents (padded to 16 B) | rope bf16     512+64: 656 B
//         scale = max(amax, 1e-4) / 448 rounded up to a power of two (kv tiles of FlashMLA's
//         layout); stored value = e4m3(x / scale), so x ~= value * scale.
// Index key page: 64 keys of one index group, planar: keys [64, index_dim] then, for fp8 only,
// scales f32 [64]; a multiple of 16 B.
//   fp8 key: scale = max(amax, 1e-4) / 448, rounded up to a power of two.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

inline constexpr int64_t kRowScaleGroup = 128;  // latents that share one scale

constexpr int64_t row_aligned(int64_t bytes) { return (bytes + 15) / 16 * 16; }
constexpr int64_t row_element_bytes(RowFormat format) {
  return format == RowFormat::kF32 ? 4 : format == RowFormat::kBf16 ? 2 : 1;
}

struct RowLayout {
  RowFormat format = RowFormat::kBf16;
  int32_t latent_dim = 0;
  int32_t rope_dim = 0;

  constexpr int64_t num_scales() const {  // 0 unless fp8
    return format == RowFormat::kFp8 ? (latent_dim + kRowScaleGroup - 1) / kRowScaleGroup : 0;
  }
  constexpr int64_t scales_offset() const {  // fp8 only
    return row_aligned(latent_dim * row_element_bytes(format));
  }
  constexpr int64_t rope_offset() const {
    return format == RowFormat::kFp8 ? scales_offset() + row_aligned(num_scales() * 4)
                                     : latent_dim * row_element_bytes(format);
  }
  constexpr int64_t row_bytes() const {
    return row_aligned(rope_offset() + rope_dim * (format == RowFormat::kF32 ? 4 : 2));
  }
};

struct IndexKeyLayout {
  RowFormat format = RowFormat::kBf16;
  int32_t index_dim = 0;
  int32_t block_tokens = 64;

  constexpr int64_t key_bytes() const {  // of one key, without its scale
    return index_dim * row_element_bytes(format);
  }
  constexpr int64_t scales_offset() const { return block_tokens * key_bytes(); }  // in a page
  constexpr int64_t page_bytes() const {
    return row_aligned(scales_offset() + (format == RowFormat::kFp8 ? block_tokens * 4 : 0));
  }
};

// f32 latent [latent_dim] and rope [rope_dim] -> row bytes, and back. Every byte of the row is
// written, padding as zero. Pure functions; rows need no alignment beyond 16 bytes.
void encode_row(const RowLayout& layout, const float* latent, const float* rope, std::byte* row);
void decode_row(const RowLayout& layout, const std::byte* row, float* latent, float* rope);

// Writes key `offset` (0..block_tokens-1) of a page; touches only that key's bytes and scale.
void encode_index_key(const IndexKeyLayout& layout, const float* key, int offset, std::byte* page);
void decode_index_key(const IndexKeyLayout& layout, const std::byte* page, int offset, float* key);

// Many rows at once, outside any record: what imports, exports and checks of a device's codecs use.
// Both are bound by memory; row_bytes + 4 * (latent_dim + rope_dim) bytes per row.
struct EncodeRowsParams {
  RowLayout layout;
  TensorView<const float, 2> latents;  // [num_rows, latent_dim]
  TensorView<const float, 2> ropes;    // [num_rows, rope_dim]
  TensorView<std::byte, 2> rows;       // out: [num_rows, row_bytes], 16-byte aligned rows
};
void launch_encode_rows(const EncodeRowsParams& params, Stream stream);

struct DecodeRowsParams {
  RowLayout layout;
  TensorView<const std::byte, 2> rows;  // [num_rows, row_bytes], 16-byte aligned rows
  TensorView<float, 2> latents;         // out: [num_rows, latent_dim]
  TensorView<float, 2> ropes;           // out: [num_rows, rope_dim]
  // out, null to skip: [num_rows, latent_dim], as tensor cores take them: the decoded value rounded
  // to bf16, which changes nothing for bf16 and fp8 rows.
  TensorView<Bf16, 2> latents_bf16;
};
void launch_decode_rows(const DecodeRowsParams& params, Stream stream);

}  // namespace dhs
