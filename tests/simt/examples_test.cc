// Kernels that are right give right results, under any schedule, without a report.
#include "simt/kernels/examples.cuh"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "simt/kernels/timing.cuh"
#include "simt/launch_fixture.h"

namespace simt {
namespace {

// The parameter is the schedule's seed.
class ExamplesTest : public LaunchTest, public testing::WithParamInterface<uint64_t> {
 protected:
  void SetUp() override {
    LaunchTest::SetUp();
    options().seed = GetParam();
    // In the checked build, one of the seeds keeps its two workers instead.
    options().global_races = GetParam() != 7;
  }
};

INSTANTIATE_TEST_SUITE_P(Seeds, ExamplesTest, testing::Values(0, 7, 12345));

TEST_P(ExamplesTest, a_block_sum_is_right) {
  const int n = 1 << 17;
  std::vector<float> x(n);
  for (int i = 0; i < n; ++i) {
    x[i] = (i % 17) * 0.25f;
  }
  const double expected = std::accumulate(x.begin(), x.end(), 0.0);
  float sum = 0;
  const ScopedBuffer x_buffer(x, "x");
  const ScopedBuffer sum_buffer(&sum, sizeof sum, "sum");

  ASSERT_TRUE(succeeded(launch(examples::block_sum, 64, 256, 0, nullptr, x.data(), &sum, n)));
  EXPECT_NEAR(sum, expected, 1e-4 * expected);
}

// A cache that holds every second one of the ids asked for, up to a thousand.
class FetchMissesCase {
 public:
  static constexpr int kTopk = 2048;
  static constexpr int kCached = 1000;
  static constexpr int kCapacity = 8192;
  static constexpr int kHostRows = 20000;

  FetchMissesCase()
      : topk(kTopk),
        hash_keys(kCapacity, -1),
        hash_slots(kCapacity, -1),
        slot_of(kTopk, -2),
        miss_ids(kTopk, -2),
        host_rows(size_t{kHostRows} * examples::kRowVectors),
        device_rows(size_t{kTopk + kCached} * examples::kRowVectors) {
    for (unsigned i = 0; i < host_rows.size(); ++i) {
      host_rows[i] = make_uint4(i, i * 3, i * 7, 5);
    }
    std::vector<int> ids(kHostRows);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(1));
    std::copy_n(ids.begin(), kTopk, topk.begin());
    for (int slot = 0; slot < kCached; ++slot) {
      insert(topk[slot * 2], slot);
    }
  }

  examples::FetchMissesArgs args() {
    examples::FetchMissesArgs args{};
    args.topk = topk.data();
    args.topk_count = kTopk;
    args.hash_keys = hash_keys.data();
    args.hash_slots = hash_slots.data();
    args.hash_capacity = kCapacity;
    args.host_rows = host_rows.data();
    args.device_rows = device_rows.data();
    args.used_slots = kCached;
    args.miss_count = &miss_count;
    args.miss_ids = miss_ids.data();
    args.slot_of = slot_of.data();
    return args;
  }

  bool row_arrived(int i) const {
    const uint4* expected = &host_rows[size_t(topk[i]) * examples::kRowVectors];
    const uint4* actual = &device_rows[size_t(slot_of[i]) * examples::kRowVectors];
    return std::memcmp(expected, actual, examples::kRowBytes) == 0;
  }

  std::vector<int> topk;
  std::vector<int> hash_keys;
  std::vector<int> hash_slots;
  std::vector<int> slot_of;
  std::vector<int> miss_ids;
  std::vector<uint4> host_rows;
  std::vector<uint4> device_rows;
  int miss_count = 0;

 private:
  void insert(int id, int slot) {
    unsigned at = examples::hash_id(id) % kCapacity;
    while (hash_keys[at] != -1) {
      at = (at + 1) % kCapacity;
    }
    hash_keys[at] = id;
    hash_slots[at] = slot;
  }
};

TEST_P(ExamplesTest, fetched_rows_arrive_in_their_slots) {
  FetchMissesCase data;
  const ScopedBuffer topk(data.topk, "topk");
  const ScopedBuffer hash_keys(data.hash_keys, "hash_keys");
  const ScopedBuffer hash_slots(data.hash_slots, "hash_slots");
  const ScopedBuffer slot_of(data.slot_of, "slot_of");
  const ScopedBuffer miss_ids(data.miss_ids, "miss_ids");
  const ScopedBuffer host_rows(data.host_rows, "host_rows");
  const ScopedBuffer device_rows(data.device_rows, "device_rows");
  const ScopedBuffer miss_count(&data.miss_count, sizeof data.miss_count, "miss_count");

  ASSERT_TRUE(succeeded(
      launch(examples::fetch_misses, FetchMissesCase::kTopk / 256, 256, 0, nullptr, data.args())));
  EXPECT_EQ(data.miss_count, FetchMissesCase::kTopk - FetchMissesCase::kCached);
  for (int i = 0; i < FetchMissesCase::kTopk; ++i) {
    const int slot = data.slot_of[i];
    const bool cached = i % 2 == 0 && i / 2 < FetchMissesCase::kCached;
    if (cached) {
      ASSERT_EQ(slot, i / 2);
    } else {
      ASSERT_GE(slot, FetchMissesCase::kCached);
      ASSERT_EQ(data.miss_ids[slot - FetchMissesCase::kCached], data.topk[i]);
      ASSERT_TRUE(data.row_arrived(i)) << "row of " << i;
    }
  }
}

TEST_P(ExamplesTest, a_bf16_product_is_right) {
  const int m = 64;
  const int n = 64;
  const int k = 256;
  std::vector<__nv_bfloat16> a(m * k);
  std::vector<__nv_bfloat16> b(n * k);
  std::vector<float> c(m * n);
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::generate(a.begin(), a.end(), [&] { return __float2bfloat16(normal(random)); });
  std::generate(b.begin(), b.end(), [&] { return __float2bfloat16(normal(random)); });
  const ScopedBuffer a_buffer(a, "a");
  const ScopedBuffer b_buffer(b, "b");
  const ScopedBuffer c_buffer(c, "c");

  ASSERT_TRUE(
      succeeded(launch(examples::gemm_bf16, dim3(n / 8, m / 16), 32, examples::kGemmSharedBytes,
                       nullptr, a.data(), b.data(), c.data(), n, k)));
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      double expected = 0;
      for (int i = 0; i < k; ++i) {
        expected += double(__bfloat162float(a[row * k + i])) * __bfloat162float(b[column * k + i]);
      }
      ASSERT_NEAR(c[row * n + column], expected, 1e-4) << row << "," << column;
    }
  }
}

TEST_P(ExamplesTest, tiles_of_eight_lanes_sum_up) {
  std::vector<int> x(64);
  std::iota(x.begin(), x.end(), 0);
  const ScopedBuffer x_buffer(x, "x");

  ASSERT_TRUE(succeeded(launch(examples::tile_sum, 1, 64, 0, nullptr, x.data())));
  for (int first = 0; first < 64; first += 8) {
    EXPECT_EQ(x[first], 8 * first + 28);
    EXPECT_EQ(x[first + 1], first + 1);
  }
}

TEST_P(ExamplesTest, a_warp_reverses_its_values) {
  std::vector<int> x(32);
  std::vector<int> y(32);
  std::iota(x.begin(), x.end(), 0);
  const ScopedBuffer x_buffer(x, "x");
  const ScopedBuffer y_buffer(y, "y");

  ASSERT_TRUE(succeeded(launch(examples::warp_reverse, 1, 32, 0, nullptr, x.data(), y.data())));
  std::reverse(y.begin(), y.end());
  EXPECT_EQ(x, y);
}

TEST_P(ExamplesTest, a_warp_can_wait_for_another) {
  int flag = 0;
  const ScopedBuffer flag_buffer(&flag, sizeof flag, "flag");

  ASSERT_TRUE(succeeded(launch(examples::spin_until_set, 1, 64, 0, nullptr, &flag)));
  EXPECT_EQ(flag, 1);
}

TEST_P(ExamplesTest, a_partial_last_warp_runs) {
  std::vector<float> x(1000, 1.0f);
  const ScopedBuffer x_buffer(x, "x");

  ASSERT_TRUE(succeeded(launch(timing::scale, 4, dim3(250), 0, nullptr, x.data(), 1000)));
  EXPECT_EQ(std::count(x.begin(), x.end(), 3.0f), 1000);
  EXPECT_EQ(last_report().threads, 1000u);
}

TEST_F(LaunchTest, impossible_shapes_are_rejected) {
  EXPECT_EQ(launch(timing::scale, 1, 1025, 0, nullptr, nullptr, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(timing::scale, 1, 0, 0, nullptr, nullptr, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(timing::scale, 0, 32, 0, nullptr, nullptr, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(timing::scale, 1, 32, 228 << 10, nullptr, nullptr, 0), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace simt
