// What kernels find in the tables of a step.
#include "engine/batch_tables.h"

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
                                                 .max_num_blocks = 20,
                                                 .has_draft_pages = draft.page_bytes > 0});
    ASSERT_TRUE(tables.ok()) << tables.status();
    tables_ = *std::move(tables);
  }

  // A step that computes the request's newest token, beside one of padding.
  QueryRows lay_out(const SequenceMemory& memory, Position newest) {
    static constexpr TokenId kToken[] = {5};
    RankPlan plan;
    plan.work.push_back({.tokens = kToken, .first_position = newest, .memory = &memory});
    tables_.lay_out(plan, 2);
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

}  // namespace
}  // namespace dhs
