#include "server/admin_service.h"

#include "server/rpc_status.h"

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
  to.set_parks(count(from.parks));
  to.set_resumes(count(from.resumes));
  to.set_refused_queue_full(count(from.refused_queue_full));
  to.set_refused_unavailable(count(from.refused_unavailable));
  const auto finished = [&](FinishReason reason) {
    return count(from.request_figures.finished[static_cast<size_t>(reason)]);
  };
  to.set_finished_stop(finished(FinishReason::kStop));
  to.set_finished_length(finished(FinishReason::kLength));
  to.set_finished_cancelled(finished(FinishReason::kCancelled));
  to.set_finished_deadline(finished(FinishReason::kDeadline));
  to.set_finished_error(finished(FinishReason::kError));
}

void put_histogram(const Histogram& from, wire::Histogram& to) {
  for (size_t i = 0; i < from.num_edges; ++i) to.add_upper_edges(from.edges[i]);
  for (size_t i = 0; i <= from.num_edges; ++i) to.add_counts(count(from.counts[i]));
  to.set_sum(from.sum);
}

void put_figures(const EngineState& from, wire::Figures& to) {
  const RequestFigures& requests = from.request_figures;
  put_histogram(requests.first_token, *to.mutable_first_token());
  put_histogram(requests.queue, *to.mutable_queue());
  put_histogram(requests.whole, *to.mutable_whole());
  put_histogram(requests.inter_token, *to.mutable_inter_token());
  put_histogram(requests.per_output_token, *to.mutable_per_output_token());
  put_histogram(requests.prompt_tokens, *to.mutable_prompt_tokens());
  put_histogram(requests.output_tokens, *to.mutable_output_tokens());
  put_histogram(from.step_figures.seconds, *to.mutable_step_seconds());
  put_histogram(from.step_figures.tokens, *to.mutable_step_tokens());
}

void put_prefix(const PrefixCounts& from, wire::PrefixCounts& to) {
  to.set_looked_up(count(from.looked_up));
  to.set_on_device(count(from.on_device));
  to.set_on_host(count(from.on_host));
}

void put_drafts(const EngineState& from, wire::Drafts& to) {
  to.set_kind(from.draft_kind);
  to.set_cap(count(from.draft_cap));
  to.set_draws(count(from.drafts.draws));
  to.set_verified(count(from.drafts.verified));
  to.set_accepted(count(from.drafts.accepted));
  for (int64_t verified : from.drafts.verified_at) to.add_verified_at(count(verified));
  for (int64_t accepted : from.drafts.accepted_at) to.add_accepted_at(count(accepted));
}

void put_reloads(const ReloadCounts& from, wire::Reloads& to) {
  to.set_succeeded(count(from.succeeded));
  to.set_failed(count(from.failed));
  to.set_is_last_successful(from.is_last_successful);
  to.set_last_success_unix_s(static_cast<double>(absl::ToUnixMillis(from.last_success)) / 1e3);
}

void put_tiers(const EngineState& from, wire::State& to) {
  wire::DeviceTier& device = *to.mutable_device_tier();
  device.set_pool_bytes(count(from.device_pool_bytes));
  device.set_index_bytes(count(from.device_index_bytes));
  device.set_row_cache_bytes(count(from.device_row_cache_bytes));
  device.set_chunk_bytes(count(from.chunk_bytes));
  device.set_chunks_free(count(from.chunks_free));
  device.set_index_chunks_grown(count(from.index_moves.grown));
  device.set_index_chunks_released(count(from.index_moves.released));
  device.set_draft_bytes(count(from.device_draft_bytes));
  device.set_draft_chunks_grown(count(from.draft_moves.grown));
  device.set_draft_chunks_released(count(from.draft_moves.released));
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
  to.set_chunks_required(count(from.chunks_required));
  to.set_chunks_grown(count(from.chunks_grown));
  to.set_chunks_released(count(from.chunks_released));
  to.set_rows_selected(count(from.rows_selected));
  to.set_rows_hit(count(from.rows_hit));
  to.set_rows_missed(count(from.rows_missed));
  to.set_fetched_bytes(count(from.fetched_bytes));
  to.set_rows_refilled(count(from.rows_refilled));
  to.set_refilled_bytes(count(from.refilled_bytes));
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
  response->set_failure(state.failure);
  response->set_emulated_link_s(absl::ToDoubleSeconds(state.emulated_link_time));
  response->set_max_running(count(state.max_running));
  response->set_max_batched_tokens(count(state.max_batched_tokens));
  put_prefix(state.prefix, *response->mutable_prefix());
  put_drafts(state, *response->mutable_drafts());
  put_figures(state, *response->mutable_figures());
  if (serving_.reloader != nullptr) {
    put_reloads(serving_.reloader->counts(), *response->mutable_reloads());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

// On a worker: it waits for the engine's step.
grpc::ServerUnaryReactor* AdminService::Reload(grpc::CallbackServerContext* context,
                                               const wire::ReloadRequest* /*request*/,
                                               wire::ReloadResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (serving_.reloader == nullptr) {
    reactor->Finish(to_grpc(absl::UnimplementedError("there is no configuration to reload")));
    return reactor;
  }
  const bool is_queued = serving_.workers.try_run([this, reactor, response] {
    const auto changes = serving_.reloader->reload();
    if (!changes.ok()) return reactor->Finish(to_grpc(changes.status()));
    for (const ConfigChange& change : *changes) {
      wire::ConfigChange& to = *response->add_changes();
      to.set_key(change.key);
      to.set_before(change.before);
      to.set_after(change.after);
    }
    reactor->Finish(grpc::Status::OK);
  });
  if (!is_queued) {
    reactor->Finish(to_grpc(absl::ResourceExhaustedError(
        absl::StrCat("calls being answered: the limit of ", ServingContext::kMaxNumQueuedJobs,
                     " is reached; try again later"))));
  }
  return reactor;
}

}  // namespace dhs
