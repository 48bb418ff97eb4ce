#include <nlohmann/json.hpp>

#include "dhisparse/sim.h"

namespace dhs {
namespace {

using Json = nlohmann::ordered_json;

Json times_json(const StepTimes& times) {
  return {{"gemm", times.gemm},           {"index", times.index},       {"top_k", times.top_k},
          {"attention", times.attention}, {"exchange", times.exchange}, {"fetch", times.fetch},
          {"draft", times.draft},         {"fixed", times.fixed}};
}

Json rows_json(const RowCounts& rows) {
  return {{"selected", rows.selected},
          {"needed", rows.needed},
          {"missed", rows.missed},
          {"evicted", rows.evicted}};
}

Json memory_json(const SimMemory& memory) {
  return {{"weight_bytes", memory.weight_bytes},
          {"draft_weight_bytes", memory.draft_weight_bytes},
          {"draft_kv_bytes", memory.draft_kv_bytes},
          {"draft_requests", memory.draft_requests},
          {"pool_bytes", memory.pool_bytes},
          {"num_chunks", memory.num_chunks},
          {"host_block_bytes", memory.host_block_bytes},
          {"host_requests", memory.host_requests},
          {"decode_rows", memory.decode_rows}};
}

Json point_json(const SimPoint& point) {
  return {{"first_step", point.first_step},
          {"time_s", point.time},
          {"concurrency", point.concurrency},
          {"running", point.running},
          {"waiting", point.waiting},
          {"chunks_free", point.chunks_free},
          {"chunks_index", point.chunks_index},
          {"cached_rows", point.cached_rows},
          {"chunks_released", point.chunks_released},
          {"rows_refilled", point.rows_refilled},
          {"step_time_s", point.step_time},
          {"host_fetch_fraction", point.rows.fetch_fraction()},
          {"missed_per_selected", point.rows.missed_per_selected()}};
}

Json change_json(const SimChangeReport& change) {
  return {{"step", change.step},
          {"concurrency", change.concurrency},
          {"admitted", change.admitted},
          {"chunks_released", change.chunks_released},
          {"steps_to_admit", change.steps_to_admit}};
}

template <class T, class Print>
Json list_json(const std::vector<T>& values, Print print) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(print(value));
  return list;
}

Json config_json(const SimConfig& config) {
  Json json = Json::object();
  for (const ConfigValue& value : config_values(config)) json[value.key] = value.value;
  return json;
}

}  // namespace

std::string report_json(const SimReport& report) {
  const Json json = {
      {"simulated", true},
      {"output_tokens_per_s_per_gpu", report.output_tokens_per_s_per_gpu},
      {"tpot_mean_s", report.tpot_mean},
      {"tpot_p50_s", report.tpot_p50},
      {"tpot_p99_s", report.tpot_p99},
      {"step_time_s", report.step_time},
      {"step_parts_s", times_json(report.times)},
      {"host_fetch_fraction", report.rows.fetch_fraction()},
      {"missed_per_selected", report.rows.missed_per_selected()},
      {"fetched_rows_per_step", report.fetched_rows_per_step},
      {"acceptance_length", report.acceptance_length},
      {"verified_drafts", report.verified_drafts},
      {"draft_cap", report.draft_cap},
      {"max_running", report.max_running},
      {"mean_running", report.mean_running},
      {"offered_on_rank", report.offered_on_rank},
      {"preemptions", report.num_preemptions},
      {"rows_per_request", report.rows_per_request},
      {"rows", rows_json(report.rows)},
      {"host_fetch_fraction_of_group", report.fetch_fraction_of_group},
      {"steps", report.steps},
      {"seconds", report.seconds},
      {"memory", memory_json(report.memory)},
      {"changes", list_json(report.changes, change_json)},
      {"series", list_json(report.series, point_json)},
      {"config", config_json(report.config)},
  };
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace dhs
