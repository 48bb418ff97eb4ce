#include "model/sharding.h"

#include <absl/strings/str_join.h>

#include <numeric>
#include <string>
#include <vector>

#include "dhisparse/base.h"

namespace dhs {
namespace {

struct SplitSize {
  const char* name;  // as the checkpoint's configuration calls it
  int64_t value;
};

std::vector<SplitSize> split_sizes(const TargetConfig& config, ParallelMode mode) {
  std::vector<SplitSize> sizes;
  auto add = [&](const char* name, int64_t value) {
    if (value > 0) sizes.push_back({name, value});
  };
  const bool has_experts = config.first_k_dense < config.num_layers;
  if (has_experts) add("n_routed_experts", config.num_experts);
  if (mode == ParallelMode::kData) return sizes;
  add("num_attention_heads", config.num_heads);
  if (config.first_k_dense > 0) add("intermediate_size", config.dense_intermediate_dim);
  if (has_experts) {
    add("n_shared_experts * moe_intermediate_size",
        int64_t{config.num_shared_experts} * config.moe_intermediate_dim);
  }
  return sizes;
}

absl::Status check_divisible(const TargetConfig& config, ParallelMode mode, int num_ranks) {
  std::vector<std::string> indivisible;
  int64_t common = 0;
  for (const SplitSize& size : split_sizes(config, mode)) {
    common = std::gcd(common, size.value);
    if (size.value % num_ranks == 0) continue;
    indivisible.push_back(absl::StrCat(size.name, " is ", size.value));
  }
  if (indivisible.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parallel.ranks is ", num_ranks, ", which does not divide this checkpoint: ",
                   absl::StrJoin(indivisible, ", "), "; use a number of ranks that divides ",
                   common, mode == ParallelMode::kTensor ? ", or parallel.mode: data" : ""));
}

}  // namespace

absl::StatusOr<Sharding> make_sharding(const TargetConfig& config, const ModelOptions& options) {
  Sharding sharding;
  if (options.communicator == nullptr) return sharding;
  const Shard own{options.communicator->rank(), options.communicator->size()};
  DHS_RETURN_IF_ERROR(check_divisible(config, options.parallel_mode, own.size));
  sharding.experts = own;
  if (options.parallel_mode == ParallelMode::kData) {
    sharding.gathering = options.communicator;
    return sharding;
  }
  sharding.heads = own;
  sharding.mlp = own;
  sharding.summing = options.communicator;
  return sharding;
}

TargetConfig own_part(TargetConfig config, const Sharding& sharding) {
  config.num_heads = static_cast<int>(sharding.heads.part_of(config.num_heads));
  config.dense_intermediate_dim =
      static_cast<int>(sharding.mlp.part_of(config.dense_intermediate_dim));
  return config;
}

}  // namespace dhs
