// What kernels find in the tables of a step.
#include "engine/batch_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dhs {
namespace {

KvGeometry make_kv_geometry(DraftPages draft) {
  const std::vector<int32_t> layers = {1};
  return make_geometry(layers, 16, 128, 8, draft);
}

class BatchTablesTest : public testing::Test {
 protected:
  void start(DraftPages draft) {
    auto device = open_device({.backend = BackendKind::kCpu});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    kv_ = std::make_unique<KvManager>(make_kv_geometry(draft), KvCapacity{64, 64, 4096},
                                      ResidencyConfig{});
    auto tables = BatchTables::create(*device_, {.max_rows = 8,
                                                 .max_sequences = 4,
                                                 .max_logit_rows = 8,
                                                 .max_num_blocks = 20,
                                                 .max_adjusted = 8,
                                                 .has_draft_pages = draft.page_bytes > 0});
    ASSERT_TRUE(tables.ok()) << tables.status();
    tables_ = *std::move(tables);
  }

  // A step that computes the request's newest token, beside one of padding.
  QueryRows lay_out(const SequenceMemory& memory, Position newest) {
    static constexpr TokenId kToken[] = {5};
    RankPlan plan;
    plan.work.push_back({.tokens = kToken, .first_position = newest, .memory = &memory});
    tables_.lay_out(plan, 2, {});
    device_->synchronize();
    return tables_.batch().rows;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<KvManager> kv_;
  BatchTables tables_;
};

void expect_row(TensorView<const int32_t, 2> table, int64_t row, std::span<const int32_t> items) {
  for (int64_t i = 0; i < std::ssize(items); ++i) EXPECT_EQ(table(row, i), items[i]) << i;
}

TEST_F(BatchTablesTest, hold_the_draft_pages_of_the_window_wherever_it_has_moved_to) {
  start({.page_bytes = 1024, .window = 100});
  SequenceMemory other = *kv_->admit({.max_tokens = 64});
  SequenceMemory memory = *kv_->admit({.max_tokens = 1000, .device_tokens = 2, .known_tokens = 1});
  int64_t num_behind = 0;
  for (Position newest = 0; newest < 900; newest += 30) {
    ASSERT_TRUE(kv_->cover(memory, newest + 1, newest, newest + 1));
    const QueryRows rows = lay_out(memory, newest);
    expect_row(rows.item_table, memory.index(), memory.index_items());
    expect_row(rows.page_table, memory.index(), memory.draft_pages());
    num_behind += memory.draft_pages()[0] < 0 ? 1 : 0;
  }
  EXPECT_GT(num_behind, 20);
}

TEST_F(BatchTablesTest, have_no_page_table_where_drafts_have_no_pages) {
  start({});
  SequenceMemory memory = *kv_->admit({.max_tokens = 100});
  const QueryRows rows = lay_out(memory, 70);
  expect_row(rows.item_table, memory.index(), memory.index_items());
  EXPECT_EQ(rows.page_table.data, nullptr);
  EXPECT_EQ(rows.positions(0), 70);
  EXPECT_EQ(rows.positions(1), -1);
}

// ---- Penalties and biases -----------------------------------------------------------------------

struct Adjusted {
  int32_t token;
  float scale, bias;

  friend bool operator==(const Adjusted&, const Adjusted&) = default;
};

class AdjustmentsTest : public BatchTablesTest {
 protected:
  // A draw that verifies `drafts` behind the newest token, after an output of `seen`.
  BatchSamplingParams lay_out_draw(std::vector<TokenId> drafts, std::vector<SeenToken> seen) {
    if (device_ == nullptr) {
      start({});
      memory_ = *kv_->admit({.max_tokens = 64});
    }
    tokens_ = std::move(drafts);
    seen_ = std::move(seen);
    tokens_.insert(tokens_.begin(), 5);
    RankPlan plan;
    plan.work.push_back({.tokens = tokens_,
                         .num_draft_tokens = static_cast<int32_t>(tokens_.size()) - 1,
                         .first_position = 9,
                         .memory = &memory_,
                         .wants_token = true,
                         .sampling = &sampling_,
                         .seen_tokens = seen_,
                         .seed = 3});
    tables_.lay_out(plan, std::ssize(tokens_) + 1,
                    [](const SequenceWork&) { return BatchTables::DrawnFrom{}; });
    device_->synchronize();
    return tables_.sampling({});
  }

  static std::vector<Adjusted> adjusted(const RowSampling& row) {
    std::vector<Adjusted> all;
    for (int32_t i = 0; i < row.num_adjustments; ++i) {
      const LogitAdjustment& by = row.adjustments[i];
      all.push_back({by.token, by.scale, by.bias});
    }
    return all;
  }

  SamplingParams sampling_;

 private:
  SequenceMemory memory_;
  std::vector<TokenId> tokens_;
  std::vector<SeenToken> seen_;
};

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(AdjustmentsTest, are_none_for_an_ordinary_request) {
  const BatchSamplingParams rows = lay_out_draw({6, 7}, {});
  for (int64_t row = 0; row < 3; ++row) {
    EXPECT_THAT(adjusted(rows.rows(row)), IsEmpty());
    EXPECT_EQ(rows.rows(row).adjustments, nullptr);
  }
}

TEST_F(AdjustmentsTest, scale_what_was_seen_and_take_off_what_was_put_out) {
  sampling_ = {.repetition_penalty = 1.5f,
               .presence_penalty = 0.5f,
               .frequency_penalty = 0.25f,
               .logit_bias = {{2, 4}, {5, -1}, {9, 3}}};
  const BatchSamplingParams rows = lay_out_draw({}, {{2, true, 0}, {3, true, 2}, {5, false, 1}});
  EXPECT_THAT(adjusted(rows.rows(0)), ElementsAre(Adjusted{2, 1.5f, 4}, Adjusted{3, 1.5f, -1},
                                                  Adjusted{5, 1.5f, -1.75f}, Adjusted{9, 1, 3}));
  EXPECT_THAT(adjusted(rows.rows(1)), IsEmpty());  // padding
}

TEST_F(AdjustmentsTest, of_a_verify_row_count_the_drafts_before_it) {
  sampling_ = {.repetition_penalty = 2, .presence_penalty = 1, .frequency_penalty = 0.5f};
  const BatchSamplingParams rows = lay_out_draw({8, 5, 8}, {{5, false, 1}, {7, true, 0}});
  EXPECT_THAT(adjusted(rows.rows(0)), ElementsAre(Adjusted{5, 2, -1.5f}, Adjusted{7, 2, 0}));
  EXPECT_THAT(adjusted(rows.rows(1)),
              ElementsAre(Adjusted{5, 2, -1.5f}, Adjusted{7, 2, 0}, Adjusted{8, 2, -1.5f}));
  EXPECT_THAT(adjusted(rows.rows(2)),
              ElementsAre(Adjusted{5, 2, -2}, Adjusted{7, 2, 0}, Adjusted{8, 2, -1.5f}));
  EXPECT_THAT(adjusted(rows.rows(3)),
              ElementsAre(Adjusted{5, 2, -2}, Adjusted{7, 2, 0}, Adjusted{8, 2, -2}));
  EXPECT_EQ(rows.rows(2).draft_token, 8);
  EXPECT_EQ(rows.rows(2).position, 12u);
}

TEST_F(AdjustmentsTest, of_a_bias_alone_heed_no_draft) {
  sampling_ = {.logit_bias = {{8, 4}}};
  const BatchSamplingParams rows = lay_out_draw({8, 6}, {});
  for (int64_t row = 0; row < 3; ++row) {
    EXPECT_THAT(adjusted(rows.rows(row)), ElementsAre(Adjusted{8, 1, 4}));
  }
}

// Logits of 0..3 by hand: 0 leads, then 1, 2, 3. The output so far is 0 0 1, the prompt was 2.
TEST_F(AdjustmentsTest, of_each_kind_of_penalty_move_the_argmax_as_computed_by_hand) {
  const std::vector<SeenToken> output = {{0, false, 2}, {1, false, 1}};
  const std::vector<SeenToken> all = {{0, false, 2}, {1, false, 1}, {2, true, 0}};
  struct Case {
    SamplingParams sampling;
    const std::vector<SeenToken>& seen;
    TokenId argmax;
  };
  const Case cases[] = {
      {{}, output, 0},
      {{.presence_penalty = 0.4f}, output, 0},                            // 3.6 3.3 3.2 2.5
      {{.presence_penalty = 1.0f}, output, 2},                            // 3.0 2.7 3.2 2.5
      {{.frequency_penalty = 0.4f}, output, 1},                           // 3.2 3.3 3.2 2.5
      {{.frequency_penalty = 1.0f}, output, 2},                           // 2.0 2.7 3.2 2.5
      {{.repetition_penalty = 1.1f}, all, 0},                             // 3.6 3.4 2.9 2.5
      {{.repetition_penalty = 2.0f}, all, 3},                             // 2.0 1.85 1.6 2.5
      {{.repetition_penalty = 0.5f, .frequency_penalty = 0.8f}, all, 1},  // 6.4 6.6 6.4 2.5
      {{.presence_penalty = 1.0f, .logit_bias = {{3, 1}}}, output, 3},    // 3.0 2.7 3.2 3.5
  };
  const std::vector<float> logits = {4.0f, 3.7f, 3.2f, 2.5f};
  for (const Case& one : cases) {
    sampling_ = one.sampling;
    sampling_.temperature = 0;
    BatchSamplingParams rows = lay_out_draw({}, one.seen);
    TokenId drawn = -1;
    float logprob = 0;
    rows.logits = view(logits.data(), 1, 4);
    rows.rows = view(rows.rows.data, 1);
    rows.tokens = view(&drawn, 1);
    rows.logprobs = view(&logprob, 1);
    rows.top_tokens = view(rows.top_tokens.data, 1, 0);
    rows.top_logprobs = view(rows.top_logprobs.data, 1, 0);
    launch_sampling(rows, device_->stream());
    device_->synchronize();
    EXPECT_EQ(drawn, one.argmax) << &one - cases;
  }
}

}  // namespace
}  // namespace dhs
