#include "kernels/sparse_attention/sparse_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/sparse_attention/sparse_attention_tables.h"

namespace dhs {
namespace {

constexpr RowFormat kFormats[] = {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8};
constexpr CpuIsa kIsas[] = {CpuIsa::kBase, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16};
constexpr int32_t kSlotsPerChunk = 10;

// Rows in slots of a row cache whose records carry another layer's bytes in front, and query rows.
struct Problem {
  Problem(RowLayout row_layout, int64_t heads, int64_t slot_count, int64_t k)
      : layout(row_layout), num_heads(heads), num_slots(slot_count), top_k(k) {
    record_bytes = layout.row_bytes() + 32;
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

  ChunkedItems records() { return {pool.data(), offsets.data(), kSlotsPerChunk, record_bytes}; }

  void write_row(int64_t slot, const std::vector<float>& latent, const std::vector<float>& rope) {
    encode_row(layout, latent.data(), rope.data(), records().at(slot) + 16);
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

  SparseAttentionParams params(std::vector<float>& out) {
    out.assign(static_cast<size_t>(num_rows() * num_heads * layout.latent_dim), 777.0f);
    SparseAttentionParams made;
    made.layout = layout;
    made.records = records();
    made.row_offset = 16;
    made.q_latent = view<const float>(q_latent.data(), num_rows(), num_heads, layout.latent_dim);
    made.q_rope = view<const float>(q_rope.data(), num_rows(), num_heads, layout.rope_dim);
    made.slots = view<const int32_t>(slots.data(), num_rows(), top_k);
    made.softmax_scale = scale;
    made.out = view(out.data(), num_rows(), num_heads, layout.latent_dim);
    return made;
  }

  std::vector<float> run(CpuIsa isa) {
    std::vector<float> out;
    launch_sparse_attention_with(attention_table(isa, layout), params(out));
    return out;
  }

  std::vector<float> reference() {
    std::vector<float> out;
    sparse_attention_ref(params(out));
    return out;
  }

  std::mt19937 random{5};
  RowLayout layout;
  int64_t num_heads, num_slots, top_k, record_bytes;
  float scale = 1.0f / 16;
  std::vector<int64_t> offsets;
  std::vector<std::byte> pool;
  std::vector<int32_t> slots;
  std::vector<float> q_latent, q_rope;
};

std::string describe(CpuIsa isa, RowFormat format) {
  return std::string(cpu_isa_name(isa)) + ", format " + std::to_string(static_cast<int>(format));
}

// The largest difference, over the largest magnitude of the head it belongs to.
double relative_error(const std::vector<float>& actual, const std::vector<float>& expected,
                      int64_t head_size) {
  double worst = 0;
  for (size_t first = 0; first < expected.size(); first += static_cast<size_t>(head_size)) {
    double largest = 1e-30, difference = 0;
    for (size_t i = first; i < first + static_cast<size_t>(head_size); ++i) {
      largest = std::max(largest, std::fabs(double{expected[i]}));
      const double here = std::fabs(double{actual[i]} - expected[i]);
      difference = std::isnan(here) ? 1e30 : std::max(difference, here);
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

// The root mean square of the difference over that of the expected values.
double rms_error(const std::vector<float>& actual, const std::vector<float>& expected) {
  double difference = 0, magnitude = 1e-60;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double{actual[i]} - expected[i], 2);
    magnitude += std::pow(double{expected[i]}, 2);
  }
  return std::isnan(difference) ? 1e30 : std::sqrt(difference / magnitude);
}

void round_to_bf16(std::vector<float>& values) {
  for (float& value : values) value = bf16_to_f32(f32_to_bf16(value));
}

// f32 tables must be exact to 1e-5 in every element. The bf16 table is compared with what the
// rounded q asks for: 2e-3 overall; an element may be off by 2^-8 of the latents' magnitude (5 at
// most here), which is what rounding every softmax weight to bf16 can do.
void expect_reference(Problem& problem, const std::string& what) {
  const std::vector<float> exact = problem.reference();
  for (CpuIsa isa : kIsas) {
    if (!cpu_supports(isa)) continue;
    const std::string where = describe(isa, problem.layout.format) + ", " + what;
    const std::vector<float> actual = problem.run(isa);
    if (!attention_table(isa, problem.layout).bf16_pairs) {
      EXPECT_LE(relative_error(actual, exact, problem.layout.latent_dim), 1e-5) << where;
      continue;
    }
    Problem rounded = problem;
    round_to_bf16(rounded.q_latent);
    round_to_bf16(rounded.q_rope);
    const std::vector<float> expected = rounded.reference();
    EXPECT_LE(rms_error(actual, expected), 2e-3) << where;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 0x1p-8 * 5) << where;
    }
  }
}

TEST(SparseAttention, every_table_agrees_with_the_reference) {
  struct Shape {
    int32_t latent_dim, rope_dim;
    int64_t num_heads;
  };
  for (RowFormat format : kFormats) {
    for (const Shape& shape :
         {Shape{512, 64, 64}, {128, 32, 8}, {64, 0, 20}, {24, 6, 33}, {7, 3, 5}}) {
      Problem problem({format, shape.latent_dim, shape.rope_dim}, shape.num_heads, 300, 260);
      for (int64_t count : {260, 0, 1, 2, 63, 64, 65, 199}) {
        problem.add_row(problem.some_slots(count));
      }
      expect_reference(problem, "latent " + std::to_string(shape.latent_dim));
    }
  }
}

TEST(SparseAttention, is_accurate_at_the_size_of_the_target_model) {
  for (RowFormat format : kFormats) {
    Problem problem({format, 512, 64}, 64, 2100, 2048);
    problem.add_row(problem.some_slots(2048));
    expect_reference(problem, "2048 rows");
  }
}

TEST(SparseAttention, stays_accurate_when_one_row_takes_all_the_weight) {
  for (RowFormat format : kFormats) {
    for (float scale : {1.0f, 20.0f}) {
      Problem problem({format, 128, 32}, 16, 300, 200);
      problem.scale = scale;
      problem.add_row(problem.some_slots(200));
      // At these scales a rounding error of one score moves weights by more than f32's own error.
      const std::vector<float> expected = problem.reference();
      for (CpuIsa isa : kIsas) {
        if (!cpu_supports(isa) || attention_table(isa, problem.layout).bf16_pairs) continue;
        EXPECT_LE(relative_error(problem.run(isa), expected, 128), 1e-5 * (1 + 20 * scale))
            << describe(isa, format) << ", scale " << scale;
      }
    }
  }
}

TEST(SparseAttention, equal_rows_come_out_as_they_are) {
  for (RowFormat format : kFormats) {
    Problem problem({format, 128, 32}, 8, 150, 140);
    const std::vector<float> latent = problem.values(128);
    for (int64_t slot = 0; slot < 150; ++slot) problem.write_row(slot, latent, problem.values(32));
    problem.add_row(problem.some_slots(140));
    std::vector<float> stored(128), rope(32);
    decode_row(problem.layout, problem.records().at(0) + 16, stored.data(), rope.data());
    for (CpuIsa isa : kIsas) {
      if (!cpu_supports(isa)) continue;
      const std::vector<float> out = problem.run(isa);
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], stored[i % 128], 3e-6f * std::fabs(stored[i % 128]))
            << describe(isa, format);
      }
    }
  }
}

TEST(SparseAttention, a_single_row_comes_out_bit_for_bit) {
  std::vector<float> latent;  // every e4m3 value, at a scale of its own per group of 128
  for (int code = 0; code < 256; ++code) {
    const float value = f8e4m3_to_f32(static_cast<F8E4m3>(code));
    latent.push_back(std::isnan(value) ? 0.0f : value * (code < 128 ? 0x1p-5f : 0x1p4f));
  }
  for (RowFormat format : kFormats) {
    for (CpuIsa isa : kIsas) {
      if (!cpu_supports(isa)) continue;
      Problem problem({format, 256, 32}, 3, 4, 4);
      problem.write_row(2, latent, problem.values(32));
      problem.add_row({2});
      const std::vector<float> out = problem.run(isa);
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], latent[i % 256]) << describe(isa, format) << " at " << i;
      }
    }
  }
}

TEST(SparseAttention, gives_zeros_for_a_row_without_slots) {
  for (CpuIsa isa : kIsas) {
    if (!cpu_supports(isa)) continue;
    Problem problem({RowFormat::kBf16, 512, 64}, 64, 8, 16);
    problem.add_row({});
    const std::vector<float> out = problem.run(isa);
    EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float x) { return x == 0.0f; }))
        << cpu_isa_name(isa);
  }
}

// Each of the query rows of `batch`, run alone, has the bits it has in `together`.
void expect_rows_alone(const Problem& batch, CpuIsa isa, const std::vector<float>& together,
                       const std::string& what) {
  const int64_t latent_size = batch.num_heads * batch.layout.latent_dim;
  const int64_t rope_size = batch.num_heads * batch.layout.rope_dim;
  for (int64_t t = 0; t < batch.num_rows(); ++t) {
    Problem alone(batch.layout, batch.num_heads, batch.num_slots, batch.top_k);
    const auto slots = batch.slots.begin() + t * batch.top_k;
    const auto latent = batch.q_latent.begin() + t * latent_size;
    const auto rope = batch.q_rope.begin() + t * rope_size;
    alone.add_row({slots, slots + batch.top_k}, {latent, latent + latent_size},
                  {rope, rope + rope_size});
    const auto expected = together.begin() + t * latent_size;
    EXPECT_EQ(alone.run(isa), std::vector<float>(expected, expected + latent_size))
        << what << ", row " << t;
  }
}

TEST(SparseAttention, a_row_does_not_depend_on_its_batch_or_on_threads) {
  for (RowFormat format : kFormats) {
    for (CpuIsa isa : kIsas) {
      if (!cpu_supports(isa)) continue;
      Problem batch({format, 128, 32}, 70, 300, 200);
      for (int64_t count : {200, 3, 130, 0, 77, 64}) batch.add_row(batch.some_slots(count));
      set_num_kernel_threads(1);
      const std::vector<float> together = batch.run(isa);
      for (int threads : {1, 2, 8}) {  // 8: more threads than rows, so heads are split
        set_num_kernel_threads(threads);
        const std::string what = describe(isa, format) + ", threads " + std::to_string(threads);
        EXPECT_EQ(batch.run(isa), together) << what;
        expect_rows_alone(batch, isa, together, what);
      }
    }
  }
}

TEST(SparseAttention, does_not_depend_on_slot_numbers) {
  for (RowFormat format : kFormats) {
    for (CpuIsa isa : kIsas) {
      if (!cpu_supports(isa)) continue;
      Problem problem({format, 128, 32}, 16, 300, 150);
      std::vector<int32_t> there(150);
      for (int32_t i = 0; i < 150; ++i) {
        const std::vector<float> latent = problem.values(128), rope = problem.values(32);
        problem.write_row(i, latent, rope);
        problem.write_row(299 - i, latent, rope);
        there[static_cast<size_t>(i)] = 299 - i;
      }
      std::vector<int32_t> here(150);
      std::iota(here.begin(), here.end(), 0);
      const std::vector<float> latent = problem.values(16 * 128), rope = problem.values(16 * 32);
      problem.add_row(here, latent, rope);
      problem.add_row(there, latent, rope);
      const std::vector<float> out = problem.run(isa);
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + 16 * 128, out.begin() + 16 * 128))
          << describe(isa, format);
    }
  }
}

TEST(SparseAttention, does_not_depend_on_the_width_of_the_selection) {
  for (CpuIsa isa : kIsas) {
    if (!cpu_supports(isa)) continue;
    Problem narrow({RowFormat::kBf16, 128, 32}, 16, 300, 100);
    Problem wide({RowFormat::kBf16, 128, 32}, 16, 300, 256);
    const std::vector<int32_t> slots = narrow.some_slots(100);
    const std::vector<float> latent = narrow.values(16 * 128), rope = narrow.values(16 * 32);
    narrow.add_row(slots, latent, rope);
    wide.add_row(slots, latent, rope);
    EXPECT_EQ(wide.run(isa), narrow.run(isa)) << cpu_isa_name(isa);
  }
}

}  // namespace
}  // namespace dhs
