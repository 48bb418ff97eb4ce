#include <algorithm>
#include <iterator>
#include <utility>

#include "src/config/key_types.h"
#include "src/config/sim_config_key.h"

namespace dhs {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 30;
constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr NumberRange kShare = {1e-3, 1};
constexpr NumberRange kRate = {1, 1e20};
constexpr NumberRange kCount = {1, 1e15};

using Keys = std::vector<SimConfigKey>;

Keys required(Keys keys) {
  for (SimConfigKey& key : keys) key.required = true;
  return keys;
}

Keys hardware_keys() {
  constexpr auto kHardware = &SimConfig::hardware;
  using H = SimHardware;
  Keys keys = required({
      text_key("hardware.name", Field{kHardware, &H::name}),
      size_key("hardware.hbm", Field{kHardware, &H::hbm_bytes}, {.min = 1, .max = kMaxBytes}),
      number_key("hardware.hbm_bandwidth", Field{kHardware, &H::hbm_bandwidth}, kRate),
      number_key("hardware.fp8_flops", Field{kHardware, &H::fp8_flops}, kRate),
      number_key("hardware.fp4_flops", Field{kHardware, &H::fp4_flops}, kRate),
      number_key("hardware.mla_flops", Field{kHardware, &H::mla_flops}, kRate),
      number_key("hardware.link_bandwidth_288", Field{kHardware, &H::link_bandwidth_288}, kRate),
      number_key("hardware.link_bandwidth_656", Field{kHardware, &H::link_bandwidth_656}, kRate),
      number_key("hardware.link_bandwidth_1152", Field{kHardware, &H::link_bandwidth_1152}, kRate),
      size_key("hardware.host", Field{kHardware, &H::host_bytes}, {.min = 1, .max = kMaxBytes}),
  });
  keys.push_back(
      number_key("hardware.exchange_bandwidth", Field{kHardware, &H::exchange_bandwidth}, kRate));
  return keys;
}

Keys model_keys() {
  constexpr auto kModel = &SimConfig::model;
  using M = SimModel;
  const auto whole = [](const char* name, int64_t M::*field, int64_t min) {
    return integer_key(name, Field{&SimConfig::model, field}, {min, kMaxTokens});
  };
  const auto number = [](const char* name, double M::*field, NumberRange range) {
    return number_key(name, Field{&SimConfig::model, field}, range);
  };
  Keys keys = required({
      text_key("model.name", Field{kModel, &M::name}),
      whole("model.layers", &M::layers, 1),
      whole("model.moe_layers", &M::moe_layers, 0),
      whole("model.hidden_dim", &M::hidden_dim, 1),
      whole("model.experts", &M::experts, 1),
      whole("model.experts_per_token", &M::experts_per_token, 1),
      number("model.dense_parameters", &M::dense_parameters, kCount),
      number("model.head_parameters", &M::head_parameters, kCount),
      number("model.expert_parameters", &M::expert_parameters, kCount),
      whole("model.top_k", &M::top_k, 1),
      whole("model.index_groups", &M::index_groups, 1),
      whole("model.row_bytes", &M::row_bytes, 1),
      number("model.rows_per_token", &M::rows_per_token, {0.01, 1e6}),
      whole("model.rows_per_selection", &M::rows_per_selection, 1),
      whole("model.index_row_bytes", &M::index_row_bytes, 1),
      number("model.index_rows_per_token", &M::index_rows_per_token, {0.01, 1e6}),
      number("model.scan", &M::scan, {0, 1e6}),
      whole("model.index_heads", &M::index_heads, 1),
      whole("model.index_head_dim", &M::index_head_dim, 1),
      whole("model.attention_layers", &M::attention_layers, 1),
      whole("model.attention_rows", &M::attention_rows, 1),
      whole("model.attention_heads", &M::attention_heads, 1),
      whole("model.attention_dims", &M::attention_dims, 1),
  });
  keys.push_back(
      size_key("model.extra", Field{kModel, &M::extra_bytes}, {.min = 0, .max = kMaxBytes}));
  keys.push_back(number("model.capped_scan", &M::capped_scan, {0, 1e6}));
  keys.push_back(whole("model.scan_cap", &M::scan_cap, 0));
  return keys;
}

Keys deployment_keys() {
  constexpr auto kDeployment = &SimConfig::deployment;
  using D = SimDeployment;
  constexpr NumberRange kWeight = {0.1, 8};
  return {
      integer_key("deployment.num_gpus", Field{kDeployment, &D::num_gpus}, {1, 4096}),
      number_key("deployment.dense_weight_bytes", Field{kDeployment, &D::dense_weight_bytes},
                 kWeight),
      number_key("deployment.expert_weight_bytes", Field{kDeployment, &D::expert_weight_bytes},
                 kWeight),
      number_key("deployment.head_weight_bytes", Field{kDeployment, &D::head_weight_bytes},
                 kWeight),
      number_key("deployment.hbm_share", Field{kDeployment, &D::hbm_share}, {0.01, 1}),
      size_key("deployment.workspace", Field{kDeployment, &D::workspace_bytes},
               {.min = 0, .max = kMaxBytes}),
      size_key("deployment.chunk", Field{kDeployment, &D::chunk_bytes},
               {.min = 4096, .max = int64_t{1} << 30, .step = 4096}),
  };
}

Keys cost_keys() {
  constexpr auto kCost = &SimConfig::cost;
  using C = SimCosts;
  const auto share = [](const char* name, double C::*field) {
    return number_key(name, Field{&SimConfig::cost, field}, kShare);
  };
  return {
      share("cost.weight_bandwidth", &C::weight_bandwidth),
      share("cost.gemm", &C::gemm),
      share("cost.attention_bandwidth", &C::attention_bandwidth),
      share("cost.attention", &C::attention),
      share("cost.index_bandwidth", &C::index_bandwidth),
      share("cost.index", &C::index),
      share("cost.top_k_bandwidth", &C::top_k_bandwidth),
      integer_key("cost.top_k_passes", Field{kCost, &C::top_k_passes}, {0, 100}),
      number_key("cost.expert_imbalance", Field{kCost, &C::expert_imbalance}, {1, 100}),
      integer_key("cost.exchange_element_bytes", Field{kCost, &C::exchange_element_bytes},
                  {0, 100}),
      duration_key("cost.layer_time", Field{kCost, &C::layer_time}, absl::ZeroDuration()),
      duration_key("cost.step_time", Field{kCost, &C::step_time}, absl::ZeroDuration()),
      number_key("cost.hide", Field{kCost, &C::hide}, {0, 1}),
      number_key("cost.hide_verify", Field{kCost, &C::hide_verify}, {0, 1}),
  };
}

Keys locality_keys() {
  constexpr auto kLocality = &SimConfig::locality;
  using L = SimLocalityConfig;
  const std::vector<std::pair<std::string, SimLocality>> regimes = {
      {"close", SimLocality::kClose},
      {"wide", SimLocality::kWide},
      {"custom", SimLocality::kCustom}};
  return {
      choice_key("locality.regime", Field{kLocality, &L::regime}, regimes),
      number_key("locality.at_k", Field{kLocality, &L::at_k}, {0, 1}),
      number_key("locality.at_2k", Field{kLocality, &L::at_2k}, {0, 1}),
      number_key("locality.at_4k", Field{kLocality, &L::at_4k}, {0, 1}),
      number_key("locality.spread", Field{kLocality, &L::spread}, {1, 1e6}),
      integer_key("locality.shift_period", Field{kLocality, &L::shift_period}, {1, 1 << 30}),
      integer_key("locality.shift_steps", Field{kLocality, &L::shift_steps}, {1, 1 << 30}),
      number_key("locality.shift_factor", Field{kLocality, &L::shift_factor}, {1, 1000}),
      integer_key("locality.candidates", Field{kLocality, &L::num_candidates}, {1, 16}),
  };
}

Keys draft_keys() {
  constexpr auto kDraft = &SimConfig::draft;
  using D = SimDraft;
  return {
      text_key("draft.name", Field{kDraft, &D::name}),
      integer_key("draft.num_tokens", Field{kDraft, &D::num_tokens}, {0, 64}),
      number_key("draft.acceptance", Field{kDraft, &D::acceptance}, {0, 1}),
      fraction_key("draft.request_spread", Field{kDraft, &D::request_spread}),
      fraction_key("draft.token_spread", Field{kDraft, &D::token_spread}),
      bool_key("draft.adaptive", Field{kDraft, &D::is_adaptive}),
      size_key("draft.weights", Field{kDraft, &D::weight_bytes}, {.min = 0, .max = kMaxBytes}),
      size_key("draft.kv", Field{kDraft, &D::kv_bytes}, {.min = 0, .max = kMaxBytes}),
      duration_key("draft.time", Field{kDraft, &D::time}, absl::ZeroDuration()),
  };
}

Keys run_keys() {
  constexpr auto kWorkload = &SimConfig::workload;
  constexpr auto kRun = &SimConfig::run;
  using W = SimWorkload;
  using R = SimRun;
  return {
      integer_key("workload.context", Field{kWorkload, &W::context}, {1, kMaxTokens}),
      integer_key("workload.output_tokens", Field{kWorkload, &W::output_tokens}, {2, kMaxTokens}),
      integer_key("workload.concurrency", Field{kWorkload, &W::concurrency}, {1, 1 << 20}),
      make_key("workload.changes", kAcceptsChanges, Field{kWorkload, &W::changes}, parse_changes,
               print_changes),
      text_key("workload.trace", Field{kWorkload, &W::trace}),
      integer_key("run.sampled_groups", Field{kRun, &R::sampled_groups}, {1, 1024}),
      integer_key("run.warmup_steps", Field{kRun, &R::warmup_steps}, {0, 1 << 30}),
      integer_key("run.measured_steps", Field{kRun, &R::measured_steps}, {1, 1 << 30}),
      bool_key("run.warm", Field{kRun, &R::warm}),
      integer_key("run.series_steps", Field{kRun, &R::series_steps}, {0, 1 << 30}),
      integer_key("run.seed", Field{kRun, &R::seed}, {0, INT64_MAX}),
      integer_key("scheduler.max_running", Field{&SimConfig::scheduler, &SimScheduler::max_running},
                  {1, 65536}),
  };
}

}  // namespace

const std::vector<SimConfigKey>& sim_config_keys() {
  static const Keys kKeys = [] {
    Keys all;
    for (Keys keys : {hardware_keys(), model_keys(), deployment_keys(), cost_keys(),
                      locality_keys(), draft_keys(), run_keys()}) {
      std::move(keys.begin(), keys.end(), std::back_inserter(all));
    }
    return all;
  }();
  return kKeys;
}

}  // namespace dhs
