// embedding: the rows of a table that tokens name, as f32.
//
//   out[i, :] = table[tokens[i], :]        zeros where positions[i] < 0 (padding)
//
// An f32 or bf16 table; exact. Bytes moved: num_tokens * width * (4 + element size).
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct EmbeddingParams {
  DType dtype = DType::kF32;               // of the table: kF32 or kBf16
  const void* table = nullptr;             // [vocab_size, width], dense
  TensorView<const int32_t, 1> tokens;     // [num_tokens], < vocab_size
  TensorView<const int32_t, 1> positions;  // [num_tokens]
  TensorView<float, 2> out;                // [num_tokens, width]
};
void launch_embedding(const EmbeddingParams& params, Stream stream);

}  // namespace dhs
