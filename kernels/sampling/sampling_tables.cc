#include "kernels/sampling/sampling_tables.h"

#include <cstring>
#include <limits>

#include "kernels/activation/vector_exp.h"

namespace dhs {
namespace {

using Double16 = double __attribute__((vector_size(128)));
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargestFloat = std::numeric_limits<float>::max();

#define DHS_INLINE [[gnu::always_inline]] inline

DHS_INLINE void load_body(const float* logits, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = logits[i] + 0.0f;
    const float bounded = value > kLargestFloat ? kLargestFloat : value;
    values[i] = bounded >= -kLargestFloat ? bounded : -kInfinity;  // NaN fails the comparison
  }
}

DHS_INLINE float largest_body(const float* values, int64_t count) {
  Float16 best = Float16{} - kInfinity;
  int64_t i = 0;
  for (; i + kFloat16Lanes <= count; i += kFloat16Lanes) {
    Float16 lanes;
    std::memcpy(&lanes, values + i, sizeof(lanes));
    best = lanes > best ? lanes : best;
  }
  float all[kFloat16Lanes];
  std::memcpy(all, &best, sizeof(all));
  float result = -kInfinity;
  for (float value : all) result = value > result ? value : result;
  for (; i < count; ++i) result = values[i] > result ? values[i] : result;
  return result;
}

DHS_INLINE void exponentials_16(const float* values, const float largest_and_temperature[2],
                                float* mass, Double16& sums) {
  Float16 x;
  std::memcpy(&x, values, sizeof(x));
  x = (x - largest_and_temperature[0]) / largest_and_temperature[1];
  exp16(x);
  std::memcpy(mass, &x, sizeof(x));
  sums += __builtin_convertvector(x, Double16);
}

DHS_INLINE double exponentials_body(const float* values, int64_t count,
                                    const float largest_and_temperature[2], float* mass) {
  Double16 sums{};
  int64_t i = 0;
  for (; i + kFloat16Lanes <= count; i += kFloat16Lanes) {
    exponentials_16(values + i, largest_and_temperature, mass + i, sums);
  }
  if (i < count) {
    float tail[kFloat16Lanes], tail_mass[kFloat16Lanes];
    for (float& value : tail) value = -kInfinity;
    const size_t bytes = static_cast<size_t>(count - i) * sizeof(float);
    std::memcpy(tail, values + i, bytes);
    exponentials_16(tail, largest_and_temperature, tail_mass, sums);
    std::memcpy(mass + i, tail_mass, bytes);
  }
  double all[kFloat16Lanes];
  std::memcpy(all, &sums, sizeof(all));
  double total = 0;
  for (double sum : all) total += sum;
  return total;
}

#define DHS_SAMPLING_TABLE(isa, attribute)                                                   \
  attribute void load_##isa(const float* logits, int64_t count, float* values) {             \
    load_body(logits, count, values);                                                        \
  }                                                                                          \
  attribute float largest_##isa(const float* values, int64_t count) {                        \
    return largest_body(values, count);                                                      \
  }                                                                                          \
  attribute double exponentials_##isa(const float* values, int64_t count,                    \
                                      const float largest_and_temperature[2], float* mass) { \
    return exponentials_body(values, count, largest_and_temperature, mass);                  \
  }                                                                                          \
  constexpr SamplingTable kSamplingTable_##isa = {load_##isa, largest_##isa, exponentials_##isa};

DHS_SAMPLING_TABLE(base, )
DHS_SAMPLING_TABLE(avx2, __attribute__((target("avx2"))))
DHS_SAMPLING_TABLE(avx512, __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))))

}  // namespace

const SamplingTable& sampling_table(CpuIsa isa) {
  if (isa >= CpuIsa::kAvx512) return kSamplingTable_avx512;
  return isa == CpuIsa::kAvx2 ? kSamplingTable_avx2 : kSamplingTable_base;
}

}  // namespace dhs
