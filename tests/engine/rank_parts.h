// The parts of an engine of several ranks, put together in the open: ranks meet through the twin of
// NCCL that lives in this process, on the CPU and on emulated GPUs.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "dhisparse/communicator.h"
#include "engine/engine_loop.h"
#include "engine/engine_plan.h"
#include "engine/ranks_executor.h"

namespace dhs {

struct RankParts {
  EnginePlan plan;
  std::vector<std::unique_ptr<KvManager>> kv;
  std::unique_ptr<RanksExecutor> executor;

  std::vector<KvManager*> kv_pointers() const {
    std::vector<KvManager*> pointers;
    for (const auto& manager : kv) pointers.push_back(manager.get());
    return pointers;
  }
};

inline RankParts make_rank_parts(const EngineConfig& config) {
  RankParts parts;
  auto plan = make_plan(config);
  EXPECT_TRUE(plan.ok()) << plan.status();
  parts.plan = *std::move(plan);
  std::vector<std::unique_ptr<Device>> devices;
  for (int rank = 0; rank < config.parallel.num_ranks; ++rank) {
    DeviceConfig device = config.device;
    device.ordinal += rank;
    auto opened = open_device(device);
    EXPECT_TRUE(opened.ok()) << opened.status();
    devices.push_back(*std::move(opened));
  }
  for (int holder = 0; holder < num_holders(config.parallel); ++holder) {
    parts.kv.push_back(
        std::make_unique<KvManager>(parts.plan.geometry, parts.plan.capacity, config.residency));
  }
  auto executor = RanksExecutor::create(
      std::move(devices), make_local_communicators(config.parallel.num_ranks), config, parts.plan);
  EXPECT_TRUE(executor.ok()) << executor.status();
  parts.executor = *std::move(executor);
  return parts;
}

inline std::unique_ptr<Engine> start_ranks(const EngineConfig& config) {
  RankParts parts = make_rank_parts(config);
  ModelInfo info{.name = "ranks",
                 .max_context = parts.plan.max_context,
                 .longest_request = parts.plan.max_context,
                 .vocab_size = parts.plan.model.vocab_size,
                 .eos_token_ids = parts.plan.model.eos_token_ids};
  return std::make_unique<EngineLoop>(config, std::move(info), std::move(parts.kv),
                                      std::move(parts.executor));
}

}  // namespace dhs
