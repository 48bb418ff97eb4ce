#include "sim/cost_model.h"

#include <algorithm>
#include <cmath>

namespace dhs {
namespace sim {
namespace {

constexpr double kScoreBytes = 4;
// Experts whose weights are smaller than this run on the fp4 units.
constexpr double kFp8Bytes = 0.9;

double seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

}  // namespace

double weight_bytes(const SimConfig& config) {
  const SimModel& model = config.model;
  const SimDeployment& deployment = config.deployment;
  const double experts = model.expert_parameters * static_cast<double>(model.experts) *
                         static_cast<double>(model.moe_layers);
  const double split = 2 * model.head_parameters * deployment.head_weight_bytes +
                       experts * deployment.expert_weight_bytes +
                       static_cast<double>(model.extra_bytes);
  return model.dense_parameters * deployment.dense_weight_bytes + split / deployment.num_gpus;
}

double CostModel::scan_rows(double context) const {
  const SimModel& model = config_.model;
  return model.scan * context +
         model.capped_scan * std::min(context, static_cast<double>(model.scan_cap));
}

double CostModel::link_bandwidth() const {
  const SimHardware& hardware = config_.hardware;
  const struct {
    double bytes, rate;
  } points[] = {{288, hardware.link_bandwidth_288},
                {656, hardware.link_bandwidth_656},
                {1152, hardware.link_bandwidth_1152}};
  const auto bytes = static_cast<double>(config_.model.row_bytes);
  if (bytes <= points[0].bytes) return points[0].rate;
  for (int i = 1; i < 3; ++i) {
    if (bytes > points[i].bytes) continue;
    const double part = (bytes - points[i - 1].bytes) / (points[i].bytes - points[i - 1].bytes);
    return points[i - 1].rate + part * (points[i].rate - points[i - 1].rate);
  }
  return points[2].rate;
}

double CostModel::gemm_time(const StepLoad& load) const {
  const SimModel& model = config_.model;
  const SimDeployment& deployment = config_.deployment;
  const SimHardware& hardware = config_.hardware;
  const auto experts = static_cast<double>(model.experts);
  const auto chosen = static_cast<double>(model.experts_per_token);
  const auto moe_layers = static_cast<double>(model.moe_layers);
  const double active = experts * (1 - std::pow(1 - chosen / experts, load.all_query_rows));
  const double bytes = model.dense_parameters * deployment.dense_weight_bytes +
                       model.head_parameters * deployment.head_weight_bytes / deployment.num_gpus +
                       active / deployment.num_gpus * model.expert_parameters * moe_layers *
                           deployment.expert_weight_bytes;
  const double dense = 2 * (model.dense_parameters + model.head_parameters) * load.query_rows;
  const double expert = 2 * model.expert_parameters * moe_layers * chosen * load.query_rows *
                        config_.cost.expert_imbalance;
  const double expert_peak =
      deployment.expert_weight_bytes < kFp8Bytes ? hardware.fp4_flops : hardware.fp8_flops;
  return std::max(bytes / (hardware.hbm_bandwidth * config_.cost.weight_bandwidth),
                  dense / (hardware.fp8_flops * config_.cost.gemm) +
                      expert / (expert_peak * config_.cost.gemm));
}

double CostModel::index_time(const StepLoad& load) const {
  const SimModel& model = config_.model;
  const double bytes = load.scanned_rows * static_cast<double>(model.index_row_bytes);
  const double flops =
      load.scored_rows * 2 * static_cast<double>(model.index_heads * model.index_head_dim);
  return std::max(bytes / (config_.hardware.hbm_bandwidth * config_.cost.index_bandwidth),
                  flops / (config_.hardware.fp8_flops * config_.cost.index));
}

double CostModel::attention_time(const StepLoad& load) const {
  const SimModel& model = config_.model;
  const double rows =
      load.query_rows * static_cast<double>(model.attention_layers * model.attention_rows);
  const double bytes = rows * static_cast<double>(model.row_bytes);
  const double flops = rows * 2 * static_cast<double>(model.attention_heads * model.attention_dims);
  return std::max(bytes / (config_.hardware.hbm_bandwidth * config_.cost.attention_bandwidth),
                  flops / (config_.hardware.mla_flops * config_.cost.attention));
}

StepTimes CostModel::times(const StepLoad& load) const {
  const SimModel& model = config_.model;
  const SimCosts& cost = config_.cost;
  const double hbm = config_.hardware.hbm_bandwidth;
  StepTimes times;
  times.gemm = gemm_time(load);
  times.index = index_time(load);
  times.top_k = load.scored_rows * kScoreBytes * static_cast<double>(cost.top_k_passes) /
                (hbm * cost.top_k_bandwidth);
  times.attention = attention_time(load);
  times.exchange = load.query_rows *
                   static_cast<double>(model.moe_layers * model.experts_per_token *
                                       model.hidden_dim * cost.exchange_element_bytes) /
                   config_.hardware.exchange_bandwidth;
  times.fetch = load.fetched_rows * static_cast<double>(model.row_bytes) / link_bandwidth() *
                (1 - (load.is_verify ? cost.hide_verify : cost.hide));
  if (config_.draft.num_tokens > 0 && load.is_proposing) {
    times.draft = static_cast<double>(config_.draft.weight_bytes) / (hbm * cost.weight_bandwidth) +
                  seconds(config_.draft.time);
  }
  times.fixed =
      static_cast<double>(model.layers) * seconds(cost.layer_time) + seconds(cost.step_time);
  return times;
}

}  // namespace sim

void StepTimes::add(const StepTimes& other) {
  gemm += other.gemm;
  index += other.index;
  top_k += other.top_k;
  attention += other.attention;
  exchange += other.exchange;
  fetch += other.fetch;
  draft += other.draft;
  fixed += other.fixed;
}

StepTimes StepTimes::scaled(double factor) const {
  return {.gemm = gemm * factor,
          .index = index * factor,
          .top_k = top_k * factor,
          .attention = attention * factor,
          .exchange = exchange * factor,
          .fetch = fetch * factor,
          .draft = draft * factor,
          .fixed = fixed * factor};
}

}  // namespace dhs
