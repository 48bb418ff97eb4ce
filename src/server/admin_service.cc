#include "server/admin_service.h"

namespace dhs {
namespace {

uint64_t count(int64_t value) { return static_cast<uint64_t>(value); }

void put_model(const ModelInfo& from, wire::Model& to) {
  to.set_name(from.name);
  to.set_max_context(count(from.max_context));
  to.set_vocab_size(count(from.vocab_size));
  for (TokenId id : from.eos_token_ids) to.add_eos_token_ids(static_cast<uint32_t>(id));
}

void put_requests(const EngineState& from, wire::Requests& to) {
  to.set_running(count(from.running_requests));
  to.set_queued(count(from.queued_requests));
  to.set_queued_tokens(count(from.queued_tokens));
  to.set_peak_running(count(from.peak_running_requests));
  to.set_finished(count(from.finished_requests));
  to.set_parked(count(from.parked_requests));
  to.set_preemptions(count(from.preemptions));
}

void put_tiers(const EngineState& from, wire::State& to) {
  wire::DeviceTier& device = *to.mutable_device_tier();
  device.set_pool_bytes(count(from.device_pool_bytes));
  device.set_index_bytes(count(from.device_index_bytes));
  device.set_row_cache_bytes(count(from.device_row_cache_bytes));
  device.set_chunk_bytes(count(from.chunk_bytes));
  device.set_chunks_free(count(from.chunks_free));
  wire::HostTier& host = *to.mutable_host_tier();
  host.set_pool_bytes(count(from.host_pool_bytes));
  host.set_used_bytes(count(from.host_used_bytes));
  host.set_cached_bytes(count(from.host_cached_bytes));
}

void put_group(const GroupState& from, wire::IndexGroup& to) {
  to.set_first_layer(static_cast<uint32_t>(from.first_layer));
  to.set_num_layers(static_cast<uint32_t>(from.num_layers));
  to.set_record_bytes(count(from.record_bytes));
  to.set_capacity_rows(count(from.capacity_rows));
  to.set_resident_rows(count(from.resident_rows));
  to.set_chunks(count(from.chunks));
  to.set_rows_selected(count(from.rows_selected));
  to.set_rows_hit(count(from.rows_hit));
  to.set_rows_missed(count(from.rows_missed));
  to.set_fetched_bytes(count(from.fetched_bytes));
  to.set_rows_evicted(count(from.rows_evicted));
  to.set_rows_released(count(from.rows_released));
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::GetState(grpc::CallbackServerContext* context,
                                                 const wire::GetStateRequest* /*request*/,
                                                 wire::State* response) {
  const EngineState state = serving_.engine.state();
  response->set_version(DHS_VERSION);
  put_model(serving_.engine.model_info(), *response->mutable_model());
  response->set_device(state.device);
  response->set_residency_mode(state.residency_mode);
  response->set_link_emulated(state.link_emulated);
  put_requests(state, *response->mutable_requests());
  response->set_steps(count(state.steps));
  response->set_prompt_tokens(count(state.prompt_tokens));
  response->set_generated_tokens(count(state.generated_tokens));
  response->set_cached_prompt_tokens(count(state.cached_prompt_tokens));
  put_tiers(state, *response);
  for (const GroupState& group : state.groups) put_group(group, *response->add_groups());
  response->set_draining(serving_.calls.closed());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace dhs
