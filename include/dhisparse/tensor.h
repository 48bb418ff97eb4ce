// tensor: element types, their codecs, and views. Plain data only: nvcc compiles this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace dhs {

enum class DType : uint8_t { kF32, kBf16, kF8E4m3, kI32, kI64, kU8 };

constexpr int dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kF8E4m3:
    case DType::kU8:
      return 1;
  }
  return 0;
}

const char* dtype_name(DType dtype);

// How KV rows and index keys are stored: kernels/kv_row has the bytes.
enum class RowFormat { kF32, kBf16, kFp8 };

// ---- Codecs. Rounding is to nearest, ties to even, as the models' reference code rounds. --------

using Bf16 = uint16_t;
using F8E4m3 = uint8_t;  // e4m3fn: no infinities, 0x7f and 0xff are NaN, largest finite 448

inline float bf16_to_f32(Bf16 bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

inline Bf16 f32_to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Bf16>((bits >> 16) | 0x40u);
  return static_cast<Bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float f8e4m3_to_f32(F8E4m3 bits);
// Values beyond +-448 saturate; NaN stays NaN.
F8E4m3 f32_to_f8e4m3(float value);

// Converts `count` elements of `dtype` (kF32, kBf16 or kF8E4m3, unscaled) to f32.
void convert_to_f32(DType dtype, const void* source, int64_t count, float* target);
// Rounds `count` f32 values to bf16.
void convert_to_bf16(const float* source, int64_t count, Bf16* target);

// ---- Views ------------------------------------------------------------------------------------

// A strided view that owns nothing: `data` must outlive it. Strides are in elements; the last axis
// is contiguous unless `strides` says otherwise.
template <class T, int Rank>
struct TensorView {
  T* data = nullptr;
  int64_t sizes[Rank] = {};
  int64_t strides[Rank] = {};

  constexpr T* row(int64_t i) const { return data + i * strides[0]; }
  constexpr T& operator()(int64_t i) const requires(Rank == 1) { return data[i * strides[0]]; }
  constexpr T& operator()(int64_t i, int64_t j) const requires(Rank == 2) {
    return data[i * strides[0] + j * strides[1]];
  }
  constexpr T& operator()(int64_t i, int64_t j, int64_t k) const requires(Rank == 3) {
    return data[i * strides[0] + j * strides[1] + k * strides[2]];
  }
  constexpr operator TensorView<const T, Rank>() const requires(!std::is_const_v<T>) {
    TensorView<const T, Rank> view{data};
    for (int i = 0; i < Rank; ++i) {
      view.sizes[i] = sizes[i];
      view.strides[i] = strides[i];
    }
    return view;
  }
};

// A dense row-major view: view(data, rows, columns).
template <class T, class... Sizes>
TensorView<T, static_cast<int>(sizeof...(Sizes))> view(T* data, Sizes... sizes) {
  constexpr int kRank = static_cast<int>(sizeof...(Sizes));
  TensorView<T, kRank> made{data, {static_cast<int64_t>(sizes)...}, {}};
  int64_t stride = 1;
  for (int i = kRank - 1; i >= 0; --i) {
    made.strides[i] = stride;
    stride *= made.sizes[i];
  }
  return made;
}

// Items of equal size that live in chunks of one memory pool: slots of a row cache, index key
// pages. Item i is at pool + chunk_offset[i / items_per_chunk] + (i % items_per_chunk) *
// item_bytes. Offsets of chunks that the owner has given back are stale: the owner never names
// their items.
struct ChunkedItems {
  std::byte* pool = nullptr;
  const int64_t* chunk_offset = nullptr;  // [num_segments] bytes from pool
  int32_t items_per_chunk = 1;
  int64_t item_bytes = 0;

  constexpr std::byte* at(int64_t item) const {
    return pool + chunk_offset[item / items_per_chunk] + (item % items_per_chunk) * item_bytes;
  }
};

}  // namespace dhs
