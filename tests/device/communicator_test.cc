#include "dhisparse/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <random>

#include "rank_threads.h"

namespace dhs {
namespace {

using testing::HasSubstr;

constexpr int kRankCounts[] = {1, 2, 4};

// Values whose sum depends on the order of adding them.
std::vector<float> values_of(int rank, int64_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank) + 7);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(random() % 2001) - 1000.0f,
                       static_cast<int>(random() % 40) - 20);
  }
  return values;
}

std::vector<float> ascending_sum(int size, int64_t count) {
  std::vector<float> sums = values_of(0, count);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<float> values = values_of(rank, count);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  return sums;
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(LocalCommunicator, every_rank_knows_its_place) {
  for (int size : kRankCounts) {
    const Ranks ranks = make_local_communicators(size);
    ASSERT_EQ(ranks.size(), static_cast<size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(ranks[static_cast<size_t>(rank)]->rank(), rank);
      EXPECT_EQ(ranks[static_cast<size_t>(rank)]->size(), size);
      EXPECT_TRUE(ranks[static_cast<size_t>(rank)]->status().ok());
      EXPECT_FALSE(ranks[static_cast<size_t>(rank)]->can_be_captured());
    }
  }
}

TEST(LocalCommunicator, all_reduce_gives_every_rank_the_bits_of_the_ascending_sum) {
  for (int size : kRankCounts) {
    for (int64_t count : {0, 1, 3, 4, 1001}) {
      const std::vector<uint32_t> expected = bits_of(ascending_sum(size, count));
      run_ranks(make_local_communicators(size), [&](Communicator& group) {
        std::vector<float> data = values_of(group.rank(), count);
        group.all_reduce_sum(data.data(), count, {});
        EXPECT_EQ(bits_of(data), expected) << "rank " << group.rank() << " of " << size;
      });
    }
  }
}

TEST(LocalCommunicator, reduce_scatter_gives_each_rank_its_part_of_the_same_sum) {
  constexpr int64_t kCount = 37;
  for (int size : kRankCounts) {
    const std::vector<float> sums = ascending_sum(size, kCount * size);
    run_ranks(make_local_communicators(size), [&](Communicator& group) {
      std::vector<float> send = values_of(group.rank(), kCount * size);
      const auto begin = sums.begin() + group.rank() * kCount;
      const std::vector<uint32_t> expected = bits_of({begin, begin + kCount});
      std::vector<float> receive(kCount);
      group.reduce_scatter_sum(send.data(), receive.data(), kCount, {});
      EXPECT_EQ(bits_of(receive), expected);
      // In place: the rank's own part of what it sends.
      float* own = send.data() + group.rank() * kCount;
      group.reduce_scatter_sum(send.data(), own, kCount, {});
      EXPECT_EQ(bits_of({own, own + kCount}), expected);
    });
  }
}

TEST(LocalCommunicator, all_gather_lines_up_the_ranks_in_and_out_of_place) {
  constexpr int64_t kBytes = 13;
  for (int size : kRankCounts) {
    std::vector<char> expected;
    for (int rank = 0; rank < size; ++rank) {
      expected.insert(expected.end(), kBytes, static_cast<char>('a' + rank));
    }
    run_ranks(make_local_communicators(size), [&](Communicator& group) {
      const std::vector<char> send(kBytes, static_cast<char>('a' + group.rank()));
      std::vector<char> receive(expected.size(), '?');
      group.all_gather(send.data(), receive.data(), kBytes, {});
      EXPECT_EQ(receive, expected);
      std::vector<char> in_place(expected.size(), '?');
      char* own = in_place.data() + group.rank() * kBytes;
      std::copy(send.begin(), send.end(), own);
      group.all_gather(own, in_place.data(), kBytes, {});
      EXPECT_EQ(in_place, expected);
    });
  }
}

TEST(LocalCommunicator, broadcast_gives_every_rank_the_roots_bytes_whoever_is_the_root) {
  for (int size : kRankCounts) {
    run_ranks(make_local_communicators(size), [&](Communicator& group) {
      for (int root = 0; root < size; ++root) {
        std::vector<int> data(5, 100 + group.rank());
        group.broadcast(data.data(), static_cast<int64_t>(data.size() * sizeof(int)), root, {});
        EXPECT_EQ(data, std::vector<int>(5, 100 + root));
      }
    });
  }
}

TEST(LocalCommunicator, exchanges_of_nothing_still_meet) {
  run_ranks(make_local_communicators(3), [](Communicator& group) {
    group.all_gather(nullptr, nullptr, 0, {});
    group.all_reduce_sum(nullptr, 0, {});
    group.reduce_scatter_sum(nullptr, nullptr, 0, {});
    group.broadcast(nullptr, 0, 1, {});
    EXPECT_TRUE(group.status().ok());
    group.barrier();
  });
}

TEST(LocalCommunicator, nobody_passes_a_barrier_before_all_have_come) {
  constexpr int kSize = 4;
  std::atomic<int> num_before = 0;
  run_ranks(make_local_communicators(kSize), [&](Communicator& group) {
    for (int round = 1; round <= 50; ++round) {
      ++num_before;
      group.barrier();
      EXPECT_GE(num_before, round * kSize);
      group.barrier();
    }
  });
}

TEST(LocalCommunicator, many_exchanges_in_a_row_do_not_mix) {
  constexpr int kSize = 3;
  run_ranks(make_local_communicators(kSize), [](Communicator& group) {
    float total = 0.0f;
    for (int round = 0; round < 300; ++round) {
      float value = static_cast<float>(round * (group.rank() + 1));
      group.all_reduce_sum(&value, 1, {});
      total += value;
      int32_t ranks[kSize] = {};
      const int32_t mine = round + group.rank();
      group.all_gather(&mine, ranks, sizeof(mine), {});
      for (int rank = 0; rank < kSize; ++rank) ASSERT_EQ(ranks[rank], round + rank);
    }
    EXPECT_EQ(total, 6.0f * 300 * 299 / 2);
  });
}

TEST(LocalCommunicator, a_rank_that_leaves_frees_those_who_wait_for_it) {
  run_ranks(make_local_communicators(3), [](Communicator& group) {
    float value = 1.0f;
    group.all_reduce_sum(&value, 1, {});
    EXPECT_EQ(value, 3.0f);
    if (group.rank() == 1) return;
    group.all_reduce_sum(&value, 1, {});  // never joined by rank 1
    const absl::Status status = group.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("has left its group of 3"));
    group.barrier();  // and nothing hangs from then on
  });
}

TEST(LocalCommunicator, an_abort_from_outside_frees_a_waiting_rank) {
  Ranks ranks = make_local_communicators(2);
  std::atomic<bool> returned = false;
  std::thread waiting([&] {
    ranks[0]->barrier();
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(returned);
  ranks[1]->abort();
  waiting.join();
  EXPECT_EQ(ranks[0]->status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(ranks[0]->status().message()), HasSubstr("told to stop"));
}

// Whoever gives its memory back after an abort must not have it touched any more.
TEST(LocalCommunicator, an_abort_in_the_middle_of_exchanges_leaves_no_one_in_freed_memory) {
  for (int delay_us = 0; delay_us < 40; ++delay_us) {
    Ranks ranks = make_local_communicators(4);
    Communicator& outside = *ranks[3];
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(delay_us * 5));
      outside.abort();
    });
    std::vector<std::thread> threads;
    for (auto& rank : ranks) {
      threads.emplace_back([&group = *rank] {
        while (group.status().ok()) {
          std::vector<float> data(256, 1.0f);
          group.all_reduce_sum(data.data(), 256, {});
        }
      });
    }
    stopper.join();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(NcclCommunicators, are_refused_in_a_program_without_cuda_with_a_remedy) {
  const absl::Status status = make_nccl_communicators({0, 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("built without CUDA; use cpu or auto"));
}

TEST(PeerAccess, is_refused_in_a_program_without_cuda) {
  EXPECT_EQ(enable_peer_access({0, 1}).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace dhs
