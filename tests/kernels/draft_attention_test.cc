#include "kernels/draft_attention/draft_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

using test::DeviceArray;

constexpr int32_t kPageTokens = 64;
constexpr int32_t kPagesPerChunk = 3;
constexpr int32_t kNumLayers = 2;

std::vector<float> random_floats(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

struct Shape {
  int32_t num_kv_heads = 2;
  int32_t heads_per_key_head = 2;
  int32_t head_dim = 16;
  DType dtype = DType::kBf16;
  int32_t block_rows = 4;
  bool is_causal = false;
  int64_t window = 0;
  std::vector<int32_t> first_position = {70};
  std::vector<int32_t> missing_pages = {};  // numbers of a sequence's pages that are absent
};

// Blocks of draft rows, each of a sequence of its own, whose context lies in pages. Sequences are
// listed backwards in the page table, pages are shuffled over chunks, and every tensor has strides
// of its own.
class Problem {
 public:
  explicit Problem(const Shape& shape, uint32_t page_seed = 5) : shape_(shape) {
    std::mt19937 random(11);
    layout_ = {shape.dtype, kNumLayers, shape.num_kv_heads, shape.head_dim, kPageTokens};
    const auto& firsts = shape.first_position;
    num_columns_ = std::max(0, *std::max_element(firsts.begin(), firsts.end())) / kPageTokens + 1;
    make_context(random);
    place_pages(page_seed);
    const int64_t rows = num_blocks() * shape.block_rows;
    q_ = random_floats(rows * q_stride(), random);
    kv_ = random_floats(rows * kv_stride(), random);
  }

  int64_t num_blocks() const { return static_cast<int64_t>(shape_.first_position.size()); }
  int64_t block_values() const { return shape_.block_rows * num_heads() * shape_.head_dim; }

  std::vector<float> attend(Stream stream = test::stream()) const {
    const DeviceArray<std::byte> pool(pool_);
    const DeviceArray<int64_t> offsets(offsets_);
    const DeviceArray<int32_t> table(table_), sequences(sequences_), firsts(shape_.first_position);
    const DeviceArray<float> q(q_), kv(kv_), out(static_cast<size_t>(out_size()), -7.0f);
    launch_draft_attention(params({pool.data(), offsets.data(), table.data(), sequences.data(),
                                   firsts.data(), q.data(), kv.data(), out.data()}),
                           stream);
    return out.download();
  }
  std::vector<float> attend_ref() {
    std::vector<float> out(static_cast<size_t>(out_size()), -7.0f);
    draft_attention_ref(params({pool_.data(), offsets_.data(), table_.data(), sequences_.data(),
                                shape_.first_position.data(), q_.data(), kv_.data(), out.data()}));
    return out;
  }
  void scale_queries(float factor) {
    for (float& value : q_) value *= factor;
  }
  // Block `block` alone.
  Problem only(int64_t block) const {
    Problem one = *this;
    one.shape_.first_position = {shape_.first_position[static_cast<size_t>(block)]};
    one.sequences_ = {sequences_[static_cast<size_t>(block)]};
    const int64_t row = block * shape_.block_rows, end = row + shape_.block_rows;
    one.q_.assign(q_.begin() + row * q_stride(), q_.begin() + end * q_stride());
    one.kv_.assign(kv_.begin() + row * kv_stride(), kv_.begin() + end * kv_stride());
    return one;
  }

 private:
  struct Arrays {
    std::byte* pool;
    const int64_t* offsets;
    const int32_t *table, *sequences, *firsts;
    const float *q, *kv;
    float* out;
  };

  int64_t num_heads() const { return int64_t{shape_.num_kv_heads} * shape_.heads_per_key_head; }
  int64_t q_stride() const { return num_heads() * shape_.head_dim + 3; }
  // A row: keys, 5 floats of others, values.
  int64_t kv_stride() const { return 2 * layout_.width() + 5; }
  int64_t out_size() const { return num_blocks() * block_values(); }

  // What the pages hold, in order of sequence and page. Whatever is no context is NaN.
  void make_context(std::mt19937& random) {
    const auto page_bytes = static_cast<size_t>(layout_.page_bytes());
    for (int32_t first : shape_.first_position) {
      for (int64_t page = 0; page < num_columns_; ++page) {
        std::vector<std::byte> bytes(page_bytes, std::byte{0xff});
        const auto tokens = std::min<int64_t>(kPageTokens, first - page * kPageTokens);
        for (int64_t token = 0; token < tokens; ++token) {
          fill_token(bytes.data() + layout_.offset(1, false, token), random);
          fill_token(bytes.data() + layout_.offset(1, true, token), random);
        }
        context_.push_back(std::move(bytes));
      }
    }
  }
  void fill_token(std::byte* to, std::mt19937& random) const {
    const std::vector<float> values = random_floats(layout_.width(), random);
    if (layout_.dtype == DType::kF32) {
      std::memcpy(to, values.data(), values.size() * sizeof(float));
    } else {
      convert_to_bf16(values.data(), layout_.width(), reinterpret_cast<Bf16*>(to));
    }
  }

  void place_pages(uint32_t seed) {
    const auto num_pages = static_cast<int64_t>(context_.size());
    const int64_t num_chunks = (num_pages + kPagesPerChunk - 1) / kPagesPerChunk;
    const int64_t chunk_bytes = kPagesPerChunk * layout_.page_bytes() + 64;
    pool_.assign(static_cast<size_t>(num_chunks * chunk_bytes), std::byte{0xff});
    for (int64_t c = 0; c < num_chunks; ++c) offsets_.push_back(c * chunk_bytes);
    std::vector<int32_t> order;
    for (int32_t page = 0; page < num_pages; ++page) order.push_back(page);
    std::mt19937 random(seed);
    std::shuffle(order.begin(), order.end(), random);
    std::shuffle(offsets_.begin(), offsets_.end(), random);
    const ChunkedItems pages{pool_.data(), offsets_.data(), kPagesPerChunk, layout_.page_bytes()};
    table_.assign(context_.size(), -1);
    for (int64_t block = 0; block < num_blocks(); ++block) {
      const int64_t sequence = num_blocks() - 1 - block;
      sequences_.push_back(static_cast<int32_t>(sequence));
      for (int64_t page = 0; page < num_columns_; ++page) {
        const auto number = static_cast<size_t>(block * num_columns_ + page);
        const auto& missing = shape_.missing_pages;
        if (std::count(missing.begin(), missing.end(), page) != 0) continue;
        std::copy(context_[number].begin(), context_[number].end(), pages.at(order[number]));
        table_[static_cast<size_t>(sequence * num_columns_ + page)] = order[number];
      }
    }
  }

  DraftAttentionParams params(const Arrays& arrays) const {
    const int64_t rows = num_blocks() * shape_.block_rows, head_dim = shape_.head_dim;
    const auto num_sequences = static_cast<int64_t>(table_.size()) / num_columns_;
    const TensorView<const float, 3> keys{
        arrays.kv, {rows, shape_.num_kv_heads, head_dim}, {kv_stride(), head_dim, 1}};
    TensorView<const float, 3> values = keys;
    values.data += layout_.width() + 5;
    return {.layout = layout_,
            .layer = 1,
            .pages = {arrays.pool, arrays.offsets, kPagesPerChunk, layout_.page_bytes()},
            .page_table = view(arrays.table, num_sequences, num_columns_),
            .sequence_of_block = view(arrays.sequences, num_blocks()),
            .first_position = view(arrays.firsts, num_blocks()),
            .block_rows = shape_.block_rows,
            .is_causal = shape_.is_causal,
            .window = shape_.window,
            .softmax_scale = 0.5f,
            .q = {arrays.q, {rows, num_heads(), head_dim}, {q_stride(), head_dim, 1}},
            .k = keys,
            .v = values,
            .out = view(arrays.out, rows, num_heads(), head_dim)};
  }
  Shape shape_;
  DraftPageLayout layout_;
  std::vector<std::vector<std::byte>> context_;
  std::vector<std::byte> pool_;
  std::vector<int64_t> offsets_;
  std::vector<int32_t> table_, sequences_;
  std::vector<float> q_, kv_;
  int64_t num_columns_ = 0;  // pages of a sequence in the table
};

void expect_reference(const Shape& shape) {
  Problem problem(shape);
  const std::vector<float> got = problem.attend(), want = problem.attend_ref();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 2e-5f * (1 + std::fabs(want[i]))) << i;
  }
}

TEST(DraftAttention, equals_the_reference_for_every_sharing_of_key_heads) {
  for (int32_t heads_per_key_head : {1, 2, 3, 8}) {
    for (int32_t num_kv_heads : {1, 3}) {
      SCOPED_TRACE(testing::Message() << heads_per_key_head << " x " << num_kv_heads);
      expect_reference({.num_kv_heads = num_kv_heads,
                        .heads_per_key_head = heads_per_key_head,
                        .block_rows = 5,
                        .first_position = {70, 3}});
    }
  }
}

TEST(DraftAttention, equals_the_reference_for_every_head_dim_and_both_dtypes) {
  for (int32_t head_dim : {8, 16, 24, 64, 80, 128, 256}) {
    for (DType dtype : {DType::kBf16, DType::kF32}) {
      SCOPED_TRACE(testing::Message() << head_dim << ", " << dtype_name(dtype));
      expect_reference({.num_kv_heads = 1, .head_dim = head_dim, .dtype = dtype});
    }
  }
}

TEST(DraftAttention, equals_the_reference_for_every_number_of_block_rows) {
  for (int32_t block_rows : {1, 2, 7, 16, 33, 67}) {
    for (bool is_causal : {false, true}) {
      SCOPED_TRACE(testing::Message() << block_rows << (is_causal ? ", causal" : ""));
      expect_reference({.num_kv_heads = 1,
                        .heads_per_key_head = 3,
                        .block_rows = block_rows,
                        .is_causal = is_causal,
                        .first_position = {37}});
    }
  }
}

TEST(DraftAttention, sees_exactly_the_window) {
  for (int64_t window : {1, 2, 3, 4, 5, 31, 32, 33, 64, 65, 100, 1000}) {
    for (bool is_causal : {false, true}) {
      SCOPED_TRACE(testing::Message() << window << (is_causal ? ", causal" : ""));
      expect_reference({.num_kv_heads = 1,
                        .is_causal = is_causal,
                        .window = window,
                        .first_position = {130, 64, 0, 1}});
    }
  }
}

TEST(DraftAttention, reads_its_context_to_the_last_position_and_not_beyond) {
  for (int32_t first : {0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 200}) {
    SCOPED_TRACE(first);
    expect_reference({.first_position = {first}});
  }
}

TEST(DraftAttention, skips_pages_that_are_not_on_the_device) {
  expect_reference({.first_position = {150, 20}, .missing_pages = {1}});
  expect_reference({.first_position = {150, 64}, .missing_pages = {0, 2}});
  expect_reference({.window = 40, .first_position = {130}, .missing_pages = {0, 1, 2}});
}

TEST(DraftAttention, gives_zeros_to_padding_blocks) {
  const Shape shape{.first_position = {-1, 40, -1}};
  Problem problem(shape);
  const std::vector<float> out = problem.attend();
  const auto block = static_cast<size_t>(problem.block_values());
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i] == 0.0f, i / block != 1) << i;
  }
  expect_reference(shape);
}

TEST(DraftAttention, takes_no_blocks_as_nothing_to_do) {
  launch_draft_attention({.layout = {DType::kBf16, 1, 2, 16},
                          .block_rows = 4,
                          .q = view<const float>(nullptr, 0, 4, 16),
                          .out = view<float>(nullptr, 0, 4, 16)},
                         test::stream());
}

TEST(DraftAttention, stays_finite_where_one_score_towers_over_the_others) {
  Shape shape{.dtype = DType::kF32, .first_position = {100}};
  Problem problem(shape);
  problem.scale_queries(300.0f);
  const std::vector<float> got = problem.attend(), want = problem.attend_ref();
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-3f) << i;
}

TEST(DraftAttention, gives_a_block_the_same_bits_alone_and_in_a_batch) {
  const Shape shape{.num_kv_heads = 3,
                    .heads_per_key_head = 4,
                    .head_dim = 24,
                    .block_rows = 9,
                    .window = 90,
                    .first_position = {150, -1, 33, 0, 127}};
  Problem problem(shape);
  set_num_kernel_threads(2);
  const std::vector<float> all = problem.attend();
  set_num_kernel_threads(1);
  EXPECT_EQ(problem.attend(), all);
  for (int64_t block = 0; block < problem.num_blocks(); ++block) {
    const std::vector<float> alone = problem.only(block).attend();
    EXPECT_TRUE(
        std::equal(alone.begin(), alone.end(), all.begin() + block * problem.block_values()))
        << block;
  }
  set_num_kernel_threads(0);
}

// The launch is cut by the number of SMs.
TEST(DraftAttention, gives_the_same_bits_on_a_device_of_any_size) {
  for (int32_t head_dim : {64, 128, 256}) {
    const Shape shape{.num_kv_heads = 1,
                      .heads_per_key_head = 5,
                      .head_dim = head_dim,
                      .block_rows = 7,
                      .window = 50,
                      .first_position = {70, 33}};
    Stream small = test::stream(), large = test::stream();
    small.num_sms = 1;
    large.num_sms = 1000;
    EXPECT_EQ(Problem(shape).attend(small), Problem(shape).attend(large));
  }
}

TEST(DraftAttention, gives_the_same_bits_wherever_the_pages_lie) {
  const Shape shape{.block_rows = 3, .first_position = {200, 90}};
  EXPECT_EQ(Problem(shape, 5).attend(), Problem(shape, 6).attend());
}

}  // namespace
}  // namespace dhs
