#include "sim/selections.h"

#include <numeric>

#include "dhisparse/base.h"

namespace dhs::sim {
namespace {

class Drawn final : public Selections {
 public:
  Drawn(const SelectionModel& model, uint64_t key, int32_t num_tokens)
      : generator_(model, key, num_tokens) {}

  int32_t num_tokens() const override { return generator_.num_tokens(); }
  void next(TensorView<int32_t, 2> selection) override { generator_.next(selection); }
  void reject(int32_t count) override { generator_.reject(count); }
  std::vector<int32_t> rows_by_recency(int group) const override {
    return generator_.rows_by_recency(group);
  }

 private:
  SelectionGenerator generator_;
};

class Replayed final : public Selections {
 public:
  Replayed(const RecordedLoad& load, int64_t request) : load_(load), request_(request) {}

  int32_t num_tokens() const override {
    return load_.first_tokens(request_) + static_cast<int32_t>(row_);
  }
  void next(TensorView<int32_t, 2> selection) override { load_.copy(request_, row_++, selection); }
  void reject(int32_t count) override {
    DHS_CHECK(count <= row_, count, " rows taken back of ", row_);
    row_ -= count;
  }
  std::vector<int32_t> rows_by_recency(int) const override {
    std::vector<int32_t> rows(num_tokens());
    std::iota(rows.rbegin(), rows.rend(), 0);
    return rows;
  }

 private:
  const RecordedLoad& load_;
  const int64_t request_;
  int64_t row_ = 0;
};

}  // namespace

std::unique_ptr<Selections> draw_selections(const SelectionModel& model, uint64_t key,
                                            int32_t num_tokens) {
  return std::make_unique<Drawn>(model, key, num_tokens);
}

std::unique_ptr<Selections> replay_selections(const RecordedLoad& load, int64_t request) {
  return std::make_unique<Replayed>(load, request);
}

}  // namespace dhs::sim
