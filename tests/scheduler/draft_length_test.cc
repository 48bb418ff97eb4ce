// What rows cost, what a cap of drafts brings, and the policy in a closed loop with a machine.
#include "scheduler/draft_length.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "scheduler/draft_policy.h"
#include "scheduler/row_cost.h"

namespace dhs {
namespace {

// ---- The cost of a row --------------------------------------------------------------------------

// 10 ms, 0.2 ms a row, 0.05 ms a prompt token, 2 ms to propose, and half of the fetches.
absl::Duration taken(const RowCost::Step& step) {
  return absl::Seconds(0.010 + 0.0002 * static_cast<double>(step.num_rows) +
                       0.00005 * static_cast<double>(step.prompt_tokens) +
                       (step.is_proposing ? 0.002 : 0) + step.fetch_s / 2);
}

TEST(RowCost, is_learned_from_steps_that_differ) {
  RowCost cost;
  EXPECT_FALSE(cost.is_known());
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const RowCost::Step step{.num_rows = 20 + static_cast<int64_t>(random() % 60),
                             .prompt_tokens = static_cast<int64_t>(random() % 3) * 40,
                             .is_proposing = random() % 4 > 0};
    cost.observe(step, taken(step));
  }
  EXPECT_TRUE(cost.is_known());
  EXPECT_NEAR(cost.row_s(), 0.0002, 0.00001);
  EXPECT_NEAR(cost.proposing_s(), 0.002, 0.0002);
}

TEST(RowCost, is_not_known_from_steps_that_are_all_alike) {
  RowCost cost;
  for (int i = 0; i < 300; ++i) cost.observe({.num_rows = 64}, absl::Milliseconds(20 + i % 3));
  EXPECT_FALSE(cost.is_known());
  EXPECT_NEAR(cost.step_s(), 0.021, 0.001);
}

TEST(RowCost, stays_as_learned_while_steps_are_alike) {
  RowCost cost;
  for (int i = 0; i < 100; ++i) {
    const RowCost::Step step{.num_rows = 20 + 40 * (i % 2)};
    cost.observe(step, taken(step));
  }
  for (int i = 0; i < 1000; ++i) {
    cost.observe({.num_rows = 60}, taken({.num_rows = 60}) + absl::Microseconds(300 * (i % 2)));
  }
  EXPECT_NEAR(cost.row_s(), 0.0002, 0.00002);
}

TEST(RowCost, terms_that_change_together_share_what_they_cost) {
  RowCost cost;
  for (int i = 0; i < 300; ++i) {
    const RowCost::Step step{.num_rows = 20 + 40 * (i % 2), .prompt_tokens = 80 * (i % 2)};
    cost.observe(step, taken(step));
  }
  EXPECT_GT(cost.row_s(), 0);
  EXPECT_LT(cost.row_s(), 0.0004) << "all of it would be 0.0003";
}

TEST(RowCost, a_hiccup_does_not_change_it_much) {
  RowCost cost;
  for (int i = 0; i < 100; ++i) {
    const RowCost::Step step{.num_rows = 20 + 40 * (i % 2)};
    cost.observe(step, i == 90 ? absl::Seconds(5) : taken(step));
  }
  EXPECT_NEAR(cost.row_s(), 0.0002, 0.0001);
}

TEST(RowCost, together_with_the_expected_fetches_is_right_whatever_hides_of_them) {
  RowCost cost;
  std::mt19937 random(2);
  const double fetch_s = 0.0003;  // of a row
  for (int i = 0; i < 200; ++i) {
    const int64_t num_rows = 20 + static_cast<int64_t>(random() % 60);
    const RowCost::Step step{.num_rows = num_rows,
                             .fetch_s = fetch_s * static_cast<double>(num_rows)};
    cost.observe(step, taken(step));
  }
  EXPECT_NEAR(cost.row_s() + fetch_s, 0.0002 + fetch_s / 2, 0.00002);
}

// ---- The cap ------------------------------------------------------------------------------------

DraftLoad load_of(int num_requests, double acceptance) {
  DraftLoad load{.requests = {},
                 .base_s = 0.010,
                 .proposing_s = 0.002,
                 .running = std::vector<double>(5, 1.0)};
  for (int i = 0; i < num_requests; ++i) {
    load.requests.push_back({.acceptance = std::vector<double>(4, acceptance), .row_s = 0.0002});
  }
  return load;
}

TEST(DraftLength, output_is_tokens_by_seconds_at_the_best_lengths) {
  const DraftLoad few = load_of(2, 0.8);
  EXPECT_NEAR(output_under(few, 0), 2 / 0.0104, 1e-9);
  const double tokens = 1 + 0.8 + 0.64 + 0.512 + 0.4096;
  EXPECT_NEAR(output_under(few, 4), 2 * tokens / (0.012 + 2 * 5 * 0.0002), 1e-9);
  EXPECT_GT(output_under(few, 4), output_under(few, 2));
  const DraftLoad many = load_of(500, 0.3);  // a row costs more than a draft brings
  EXPECT_NEAR(output_under(many, 4), 500 / 0.112, 1e-6) << "no draft is verified, all are proposed";
  EXPECT_GT(output_under(many, 0), output_under(many, 4));
}

TEST(DraftLength, more_running_requests_and_more_misses_of_each_count) {
  DraftLoad load = load_of(100, 0.5);
  const double before = output_under(load, 0);
  load.running[0] = 1.5;
  EXPECT_NEAR(output_under(load, 0), 150 / (0.010 + 150 * 0.0002), 1e-9);
  EXPECT_GT(output_under(load, 0), before);
  for (DraftLoad::Request& request : load.requests) request.fetch_s = 0.0001;
  const double factor = std::pow(1.5, 1.05);
  EXPECT_NEAR(output_under(load, 0), 150 / (0.010 + 150 * (0.0002 + 0.0001 * factor)), 1e-9);
}

TEST(DraftLength, changes_when_another_cap_was_better_three_times_in_a_row) {
  DraftLength length(2);
  const std::vector<double> better = {100, 90, 94};
  EXPECT_EQ(length.evaluate(better), 2);
  EXPECT_EQ(length.evaluate(better), 2);
  EXPECT_EQ(length.evaluate(std::vector<double>{96, 90, 94}), 2) << "not by 3 %: counted anew";
  EXPECT_EQ(length.evaluate(better), 2);
  EXPECT_EQ(length.evaluate(better), 2);
  EXPECT_EQ(length.evaluate(better), 0);
  length.set_cap(0);
  EXPECT_EQ(length.cap(), 0);
  EXPECT_EQ(length.evaluate(std::vector<double>{90, 90, 94}), 0);
}

TEST(DraftLength, changes_at_once_when_another_cap_is_much_better) {
  DraftLength length(2);
  EXPECT_EQ(length.evaluate(std::vector<double>{116, 90, 90}), 2) << "not by 30 %";
  EXPECT_EQ(length.evaluate(std::vector<double>{118, 90, 90}), 0);
}

// ---- In a closed loop ---------------------------------------------------------------------------

// Requests whose drafts are accepted with a probability of their own, on a machine as above.
class Machine {
 public:
  static constexpr int kMost = 4;

  Machine(int num_requests, double row_s, double record_fetch_s = 0)
      : row_s_(row_s),
        record_fetch_s_(record_fetch_s),
        policy_(kMost, true, record_fetch_s),
        drafts_(num_requests),
        misses_(num_requests) {}

  // Records that each of its rows misses.
  void set_misses(size_t request, int64_t per_row) { misses_[request] = per_row; }

  // By turns of all requests: what they verified in the last step.
  void run(int num_steps, const std::vector<double>& acceptance, bool gives_confidence = false) {
    for (int i = 0; i < num_steps; ++i) step(acceptance, gives_confidence);
  }

  DraftPolicy& policy() { return policy_; }
  double mean_length(size_t request) const {
    return static_cast<double>(num_verified_[request]) / static_cast<double>(num_steps_);
  }
  void reset_counts() {
    num_steps_ = 0;
    std::fill(num_verified_.begin(), num_verified_.end(), 0);
  }

 private:
  void reconsider() {
    std::vector<const RequestDrafts*> requests;
    for (const RequestDrafts& drafts : drafts_) requests.push_back(&drafts);
    const std::vector<double> same(kMost + 1, 1.0);
    policy_.set_cap(policy_.best_cap(requests, same));
  }

  void step(const std::vector<double>& acceptance, bool gives_confidence) {
    if (policy_.is_due()) reconsider();
    policy_.begin_step(false);
    std::uniform_real_distribution<double> unit(0, 1);
    int64_t num_rows = 0;
    int64_t num_fetched = 0;
    for (size_t i = 0; i < drafts_.size(); ++i) {
      const int64_t length = policy_.num_to_verify(drafts_[i], num_proposed_);
      int64_t accepted = 0;
      while (accepted < length && unit(random_) < acceptance[i]) ++accepted;
      const int64_t fetched = misses_[i] * (1 + length);
      policy_.observe(drafts_[i],
                      {.num_verified = length, .num_accepted = accepted, .rows_fetched = fetched});
      num_fetched += fetched;
      num_verified_[i] += length;
      num_rows += 1 + length;
    }
    for (size_t i = 0; i < drafts_.size(); ++i) {
      num_proposed_ = policy_.num_to_ask(drafts_[i]);
      drafts_[i].confidence.assign(gives_confidence ? num_proposed_ : 0,
                                   static_cast<float>(acceptance[i]));
    }
    const bool is_proposing = num_proposed_ > 0;
    const double rows_s =
        row_s_ * static_cast<double>(num_rows) + record_fetch_s_ * static_cast<double>(num_fetched);
    policy_.end_step(0, is_proposing, absl::Seconds(0.010 + rows_s + (is_proposing ? 0.002 : 0)));
    ++num_steps_;
  }

  const double row_s_;
  const double record_fetch_s_;
  DraftPolicy policy_;
  std::vector<RequestDrafts> drafts_;
  std::vector<int64_t> misses_;
  std::vector<int64_t> num_verified_ = std::vector<int64_t>(drafts_.size());
  int64_t num_steps_ = 0;
  int64_t num_proposed_ = 0;
  std::mt19937 random_{7};
};

TEST(DraftPolicy, fixed_asks_for_and_verifies_all) {
  DraftPolicy policy(3, false, 0);
  RequestDrafts drafts;
  for (int i = 0; i < 200; ++i) {
    policy.begin_step(false);
    ASSERT_EQ(policy.num_to_ask(drafts), 3);
    ASSERT_EQ(policy.num_to_verify(drafts, 3), 3);
    policy.observe(drafts, {.num_verified = 3, .num_accepted = 0});
    policy.end_step(0, true, absl::Milliseconds(10 + i % 9));
    ASSERT_FALSE(policy.is_due());
  }
}

TEST(DraftPolicy, verifies_all_until_it_knows_what_rows_cost) {
  Machine machine(8, 0.001);
  machine.run(5, std::vector<double>(8, 0.0));
  EXPECT_EQ(machine.mean_length(0), 4.0 * 4 / 5) << "nothing was proposed before the first step";
}

TEST(DraftPolicy, verifies_most_where_rows_are_cheap) {
  Machine machine(4, 0.00001);
  machine.run(2000, std::vector<double>(4, 0.8));
  EXPECT_EQ(machine.policy().cap(), 4);
  machine.reset_counts();
  machine.run(256, std::vector<double>(4, 0.8));
  EXPECT_GT(machine.mean_length(0), 3.8);
}

TEST(DraftPolicy, verifies_fewer_for_requests_whose_drafts_fail) {
  for (const bool gives_confidence : {false, true}) {
    Machine machine(40, 0.0002);  // 18 ms for 1 row each
    std::vector<double> acceptance(40, 0.9);
    for (size_t i = 20; i < 40; ++i) acceptance[i] = 0.05;
    machine.run(1000, acceptance, gives_confidence);
    machine.reset_counts();
    machine.run(512, acceptance, gives_confidence);
    EXPECT_GT(machine.mean_length(0), 2.5);
    EXPECT_LT(machine.mean_length(39), 0.5);
    EXPECT_GT(machine.mean_length(39), 0.0) << "one draft now and then, or nothing is learned";
  }
}

TEST(DraftPolicy, verifies_fewer_for_requests_whose_rows_are_fetched) {
  Machine machine(40, 0.0002, 0.00005);
  for (size_t i = 20; i < 40; ++i) machine.set_misses(i, 20);  // 1 ms a row
  const std::vector<double> acceptance(40, 0.7);
  machine.run(1000, acceptance);
  machine.reset_counts();
  machine.run(512, acceptance);
  EXPECT_GT(machine.mean_length(0), 0.8);
  EXPECT_LT(machine.mean_length(39), 0.3);
}

TEST(DraftPolicy, gives_drafts_up_where_they_bring_nothing_and_takes_them_up_again) {
  Machine machine(40, 0.0002);
  machine.run(1500, std::vector<double>(40, 0.02));
  EXPECT_EQ(machine.policy().cap(), 0);
  machine.reset_counts();
  machine.run(640, std::vector<double>(40, 0.02));
  EXPECT_LT(machine.mean_length(0), 0.05) << "probes only";
  machine.run(6000, std::vector<double>(40, 0.95));
  EXPECT_EQ(machine.policy().cap(), 4);
}

TEST(DraftPolicy, gives_drafts_up_soon_where_they_lose_clearly) {
  Machine machine(40, 0.0002);  // 44 ms for 5 rows each, 18 ms for 1
  machine.run(48, std::vector<double>(40, 0.02));
  EXPECT_EQ(machine.policy().cap(), 0);
}

// What the few draws of trials at another cap brought says more of their text than of that cap.
TEST(DraftPolicy, verifies_more_soon_where_text_becomes_easy) {
  Machine machine(4, 0.0005);
  double sum = 0;
  for (int i = 0; i < 40; ++i) {
    machine.run(150, std::vector<double>(4, 0.3));
    machine.reset_counts();
    machine.run(150, std::vector<double>(4, 0.95));
    sum += machine.mean_length(0);
  }
  EXPECT_GT(sum / 40, 2.3);
}

TEST(DraftPolicy, is_the_same_every_time) {
  Machine first(10, 0.0002), second(10, 0.0002);
  for (Machine* machine : {&first, &second}) machine->run(700, std::vector<double>(10, 0.5));
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(first.mean_length(i), second.mean_length(i));
}

}  // namespace
}  // namespace dhs
