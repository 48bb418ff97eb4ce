#include "engine/start.h"

#include <algorithm>

#include "dhisparse/communicator.h"
#include "engine/engine_loop.h"
#include "engine/engine_plan.h"
#include "engine/model_executor.h"
#include "engine/ranks_executor.h"

namespace dhs {
namespace {

// What rows of some hundred bytes are gathered with over PCIe 5 x16.
constexpr int64_t kUsualLinkBytesPerSecond = 40'000'000'000;

using Devices = std::vector<std::unique_ptr<Device>>;

// One device per rank, from device.ordinal on. `auto` is decided by the first.
absl::StatusOr<Devices> open_devices(const EngineConfig& config) {
  Devices devices;
  DeviceConfig wanted = config.device;
  for (int rank = 0; rank < config.parallel.num_ranks; ++rank) {
    wanted.ordinal = config.device.ordinal + rank;
    absl::StatusOr<std::unique_ptr<Device>> device = open_device(wanted);
    if (!device.ok() && config.parallel.num_ranks > 1) {
      return absl::Status(device.status().code(),
                          absl::StrCat("parallel.ranks is ", config.parallel.num_ranks, ", rank ",
                                       rank, ": ", device.status().message()));
    }
    if (!device.ok()) return device.status();
    wanted.backend = (*device)->kind();
    devices.push_back(*std::move(device));
  }
  return devices;
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> make_communicators(
    const EngineConfig& config, BackendKind kind) {
  if (kind == BackendKind::kCpu) return make_local_communicators(config.parallel.num_ranks);
  std::vector<int> ordinals;
  for (int rank = 0; rank < config.parallel.num_ranks; ++rank) {
    ordinals.push_back(config.device.ordinal + rank);
  }
  return make_nccl_communicators(ordinals);
}

absl::StatusOr<std::unique_ptr<Executor>> make_executor(const EngineConfig& config,
                                                        const EnginePlan& plan, Devices devices) {
  if (config.parallel.num_ranks == 1) {
    DHS_ASSIGN_OR_RETURN(std::unique_ptr<Executor> alone,
                         ModelExecutor::load(std::move(devices.front()), nullptr, config, plan));
    return alone;
  }
  DHS_ASSIGN_OR_RETURN(auto communicators, make_communicators(config, devices.front()->kind()));
  DHS_ASSIGN_OR_RETURN(
      std::unique_ptr<Executor> ranks,
      RanksExecutor::create(std::move(devices), std::move(communicators), config, plan));
  return ranks;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> start_engine(const EngineConfig& config) {
  return start_engine_with(config, [](std::unique_ptr<Executor> executor) { return executor; });
}

absl::StatusOr<std::unique_ptr<Engine>> start_engine_with(const EngineConfig& config,
                                                          const WrapExecutor& wrap) {
  DHS_ASSIGN_OR_RETURN(EnginePlan plan, make_plan(config));
  DHS_ASSIGN_OR_RETURN(Devices devices, open_devices(config));
  if (plan.capacity.link_bytes_per_s == 0 && devices.front()->kind() == BackendKind::kCuda) {
    plan.capacity.link_bytes_per_s = kUsualLinkBytesPerSecond;
  }
  std::vector<std::unique_ptr<KvManager>> kv;
  for (int holder = 0; holder < num_holders(config.parallel); ++holder) {
    kv.push_back(std::make_unique<KvManager>(plan.geometry, plan.capacity, config.residency));
  }
  const int64_t longest = longest_request(*kv.front(), plan.max_context);
  if (longest < 2) return kv.front()->fits(2);
  log_plan(plan, config, devices.front()->description(), longest);
  DHS_ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor,
                       make_executor(config, plan, std::move(devices)));
  ModelInfo info{.name = config.model.name,
                 .max_context = plan.max_context,
                 .longest_request = longest,
                 .vocab_size = plan.model.vocab_size,
                 .eos_token_ids = plan.model.eos_token_ids};
  EngineConfig effective = config;
  effective.scheduler.draft = draft_schedule(config.draft, plan.draft.num_proposals);
  return std::make_unique<EngineLoop>(effective, std::move(info), std::move(kv),
                                      wrap(std::move(executor)));
}

}  // namespace dhs
