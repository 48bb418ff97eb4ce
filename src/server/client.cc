#include "dhisparse/client.h"

#include <absl/time/clock.h>
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "dhisparse/v1/admin.grpc.pb.h"
#include "dhisparse/v1/generation.grpc.pb.h"
#include "server/rpc_status.h"

namespace dhs {
namespace {

namespace wire = ::dhisparse::v1;

void put_prompt(const ClientRequest& from, wire::GenerateRequest& to) {
  if (const auto* text = std::get_if<std::string>(&from.prompt)) {
    wire::TextPrompt& prompt = *to.mutable_text();
    prompt.set_text(*text);
    if (from.add_special_tokens) prompt.set_add_special_tokens(*from.add_special_tokens);
    if (from.parse_special_tokens) prompt.set_parse_special_tokens(*from.parse_special_tokens);
    return;
  }
  const auto& ids = std::get<std::vector<uint32_t>>(from.prompt);
  to.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
}

void put_sampling(const ClientRequest& from, wire::Sampling& to) {
  if (from.temperature) to.set_temperature(*from.temperature);
  if (from.top_p) to.set_top_p(*from.top_p);
  if (from.top_k) to.set_top_k(*from.top_k);
  if (from.min_p) to.set_min_p(*from.min_p);
  if (from.repetition_penalty) to.set_repetition_penalty(*from.repetition_penalty);
  if (from.presence_penalty) to.set_presence_penalty(*from.presence_penalty);
  if (from.frequency_penalty) to.set_frequency_penalty(*from.frequency_penalty);
  for (const auto& [token, bias] : from.logit_bias) {
    wire::LogitBias& entry = *to.add_logit_bias();
    entry.set_token_id(token);
    entry.set_bias(bias);
  }
  if (from.seed) to.set_seed(*from.seed);
  if (from.max_tokens) to.set_max_tokens(*from.max_tokens);
  if (from.min_tokens) to.set_min_tokens(*from.min_tokens);
  to.mutable_stop()->Add(from.stop.begin(), from.stop.end());
  to.mutable_stop_token_ids()->Add(from.stop_token_ids.begin(), from.stop_token_ids.end());
  if (from.ignore_eos) to.set_ignore_eos(*from.ignore_eos);
}

wire::GenerateRequest to_wire(const ClientRequest& from) {
  wire::GenerateRequest to;
  to.set_request_id(from.request_id);
  put_prompt(from, to);
  put_sampling(from, *to.mutable_sampling());
  to.set_priority(from.priority);
  to.mutable_prefix_cache()->set_salt(from.cache_salt);
  to.mutable_prefix_cache()->set_bypass(from.bypass_prefix_cache);
  wire::Output& output = *to.mutable_output();
  if (from.include_stop_str_in_output) {
    output.set_include_stop_str_in_output(*from.include_stop_str_in_output);
  }
  if (from.skip_special_tokens) output.set_skip_special_tokens(*from.skip_special_tokens);
  if (from.logprobs) output.set_logprobs(true);
  if (from.top_logprobs > 0) output.set_top_logprobs(from.top_logprobs);
  return to;
}

void take_chunk(const wire::Chunk& from, ClientOutput& to) {
  to.text += from.text();
  for (int i = 0; i < from.token_ids_size(); ++i) {
    TokenOutput token;
    token.token = static_cast<TokenId>(from.token_ids(i));
    if (i < from.logprobs_size()) {
      token.logprob = from.logprobs(i).logprob();
      for (const wire::TopLogprob& top : from.logprobs(i).top()) {
        token.top.push_back({static_cast<TokenId>(top.token_id()), top.logprob()});
      }
    }
    to.tokens.push_back(std::move(token));
  }
}

void take_finished(const wire::Finished& from, ClientOutput& to) {
  to.reason =
      from.reason() == wire::FINISH_REASON_LENGTH ? FinishReason::kLength : FinishReason::kStop;
  if (from.stop_case() == wire::Finished::kStopString) to.stop_string = from.stop_string();
  if (from.stop_case() == wire::Finished::kStopTokenId) {
    to.stop_token = static_cast<TokenId>(from.stop_token_id());
  }
  const wire::Usage& usage = from.usage();
  to.usage = {.prompt_tokens = static_cast<int64_t>(usage.prompt_tokens()),
              .completion_tokens = static_cast<int64_t>(usage.completion_tokens()),
              .cached_prompt_tokens = static_cast<int64_t>(usage.cached_prompt_tokens()),
              .rows_selected = static_cast<int64_t>(usage.rows_selected()),
              .rows_fetched = static_cast<int64_t>(usage.rows_fetched()),
              .drafts_verified = static_cast<int64_t>(usage.drafts_verified()),
              .drafts_accepted = static_cast<int64_t>(usage.drafts_accepted()),
              .times_parked = static_cast<int64_t>(usage.times_parked())};
  if (usage.has_time_to_first_token_s()) {
    to.time_to_first_token_s = usage.time_to_first_token_s();
  }
  if (usage.has_time_per_output_token_s()) {
    to.time_per_output_token_s = usage.time_per_output_token_s();
  }
}

int64_t count(uint64_t value) { return static_cast<int64_t>(value); }

Histogram to_histogram(const wire::Histogram& from) {
  Histogram to;
  to.num_edges = std::min<size_t>(from.upper_edges_size(), Histogram::kMaxEdges);
  for (size_t i = 0; i < to.num_edges; ++i) to.edges[i] = from.upper_edges(static_cast<int>(i));
  const auto num_counts = std::min<size_t>(from.counts_size(), to.num_edges + 1);
  for (size_t i = 0; i < num_counts; ++i) to.counts[i] = count(from.counts(static_cast<int>(i)));
  to.sum = from.sum();
  return to;
}

void take_figures(const wire::State& from, EngineState& to) {
  const wire::Figures& figures = from.figures();
  RequestFigures& requests = to.request_figures;
  requests.first_token = to_histogram(figures.first_token());
  requests.queue = to_histogram(figures.queue());
  requests.whole = to_histogram(figures.whole());
  requests.inter_token = to_histogram(figures.inter_token());
  requests.per_output_token = to_histogram(figures.per_output_token());
  requests.prompt_tokens = to_histogram(figures.prompt_tokens());
  requests.output_tokens = to_histogram(figures.output_tokens());
  to.step_figures.seconds = to_histogram(figures.step_seconds());
  to.step_figures.tokens = to_histogram(figures.step_tokens());
  const wire::Requests& counts = from.requests();
  const auto finished = [&](FinishReason reason) -> int64_t& {
    return requests.finished[static_cast<size_t>(reason)];
  };
  finished(FinishReason::kStop) = count(counts.finished_stop());
  finished(FinishReason::kLength) = count(counts.finished_length());
  finished(FinishReason::kCancelled) = count(counts.finished_cancelled());
  finished(FinishReason::kDeadline) = count(counts.finished_deadline());
  finished(FinishReason::kError) = count(counts.finished_error());
}

void take_drafts(const wire::Drafts& from, EngineState& to) {
  to.draft_kind = from.kind();
  to.draft_cap = count(from.cap());
  to.drafts = {.draws = count(from.draws()),
               .verified = count(from.verified()),
               .accepted = count(from.accepted()),
               .verified_at = {from.verified_at().begin(), from.verified_at().end()},
               .accepted_at = {from.accepted_at().begin(), from.accepted_at().end()}};
}

// What came after the first version of the contract.
void take_rest(const wire::State& from, EngineState& to) {
  to.failure = from.failure();
  to.emulated_link_time = absl::Seconds(from.emulated_link_s());
  to.max_running = count(from.max_running());
  to.max_batched_tokens = count(from.max_batched_tokens());
  to.parks = count(from.requests().parks());
  to.resumes = count(from.requests().resumes());
  to.refused_queue_full = count(from.requests().refused_queue_full());
  to.refused_unavailable = count(from.requests().refused_unavailable());
  to.prefix = {.looked_up = count(from.prefix().looked_up()),
               .on_device = count(from.prefix().on_device()),
               .on_host = count(from.prefix().on_host())};
  to.index_moves = {.grown = count(from.device_tier().index_chunks_grown()),
                    .released = count(from.device_tier().index_chunks_released())};
  to.draft_moves = {.grown = count(from.device_tier().draft_chunks_grown()),
                    .released = count(from.device_tier().draft_chunks_released())};
  take_figures(from, to);
  take_drafts(from.drafts(), to);
}

std::optional<ReloadCounts> to_reloads(const wire::State& from) {
  if (!from.has_reloads()) return std::nullopt;
  const wire::Reloads& reloads = from.reloads();
  const auto millis = static_cast<int64_t>(reloads.last_success_unix_s() * 1e3);
  return ReloadCounts{.succeeded = count(reloads.succeeded()),
                      .failed = count(reloads.failed()),
                      .is_last_successful = reloads.is_last_successful(),
                      .last_success = absl::FromUnixMillis(millis)};
}

GroupState to_group(const wire::IndexGroup& from) {
  return {.first_layer = static_cast<int32_t>(from.first_layer()),
          .num_layers = static_cast<int32_t>(from.num_layers()),
          .record_bytes = static_cast<int64_t>(from.record_bytes()),
          .capacity_rows = static_cast<int64_t>(from.capacity_rows()),
          .resident_rows = static_cast<int64_t>(from.resident_rows()),
          .chunks = static_cast<int64_t>(from.chunks()),
          .chunks_required = count(from.chunks_required()),
          .chunks_grown = count(from.chunks_grown()),
          .chunks_released = count(from.chunks_released()),
          .rows_selected = static_cast<int64_t>(from.rows_selected()),
          .rows_hit = static_cast<int64_t>(from.rows_hit()),
          .rows_missed = static_cast<int64_t>(from.rows_missed()),
          .fetched_bytes = static_cast<int64_t>(from.fetched_bytes()),
          .rows_refilled = count(from.rows_refilled()),
          .refilled_bytes = count(from.refilled_bytes()),
          .rows_evicted = static_cast<int64_t>(from.rows_evicted()),
          .rows_released = static_cast<int64_t>(from.rows_released())};
}

EngineState to_engine_state(const wire::State& from) {
  EngineState to{
      .model_name = from.model().name(),
      .device = from.device(),
      .residency_mode = from.residency_mode(),
      .link_emulated = from.link_emulated(),
      .steps = static_cast<int64_t>(from.steps()),
      .running_requests = static_cast<int64_t>(from.requests().running()),
      .queued_requests = static_cast<int64_t>(from.requests().queued()),
      .queued_tokens = static_cast<int64_t>(from.requests().queued_tokens()),
      .parked_requests = static_cast<int64_t>(from.requests().parked()),
      .peak_running_requests = static_cast<int64_t>(from.requests().peak_running()),
      .finished_requests = static_cast<int64_t>(from.requests().finished()),
      .prompt_tokens = static_cast<int64_t>(from.prompt_tokens()),
      .generated_tokens = static_cast<int64_t>(from.generated_tokens()),
      .cached_prompt_tokens = static_cast<int64_t>(from.cached_prompt_tokens()),
      .preemptions = static_cast<int64_t>(from.requests().preemptions()),
      .device_pool_bytes = static_cast<int64_t>(from.device_tier().pool_bytes()),
      .device_index_bytes = static_cast<int64_t>(from.device_tier().index_bytes()),
      .device_draft_bytes = static_cast<int64_t>(from.device_tier().draft_bytes()),
      .device_row_cache_bytes = static_cast<int64_t>(from.device_tier().row_cache_bytes()),
      .host_pool_bytes = static_cast<int64_t>(from.host_tier().pool_bytes()),
      .host_used_bytes = static_cast<int64_t>(from.host_tier().used_bytes()),
      .host_cached_bytes = static_cast<int64_t>(from.host_tier().cached_bytes()),
      .chunk_bytes = static_cast<int64_t>(from.device_tier().chunk_bytes()),
      .chunks_free = static_cast<int64_t>(from.device_tier().chunks_free()),
      .groups = {}};
  for (const wire::IndexGroup& group : from.groups()) to.groups.push_back(to_group(group));
  take_rest(from, to);
  return to;
}

ModelInfo to_model_info(const wire::Model& from) {
  return {.name = from.name(),
          .max_context = static_cast<int64_t>(from.max_context()),
          .vocab_size = static_cast<int64_t>(from.vocab_size()),
          .eos_token_ids = {from.eos_token_ids().begin(), from.eos_token_ids().end()}};
}

void set_timeout(absl::Duration timeout, grpc::ClientContext& context) {
  if (timeout == absl::InfiniteDuration()) return;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

class GrpcClient final : public Client {
 public:
  explicit GrpcClient(const std::shared_ptr<grpc::Channel>& channel)
      : generation_(wire::Generation::NewStub(channel)), admin_(wire::Admin::NewStub(channel)) {}

  absl::StatusOr<ClientOutput> generate(const ClientRequest& request,
                                        const OnText& on_text) override {
    grpc::ClientContext context;
    set_timeout(request.timeout, context);
    const auto reader = generation_->Generate(&context, to_wire(request));
    ClientOutput output;
    bool finished = false;
    wire::GenerateResponse response;
    while (reader->Read(&response)) {
      output.request_id = response.request_id();
      if (response.has_accepted()) {
        output.accepted_prompt_tokens = response.accepted().prompt_tokens();
      } else if (response.has_chunk()) {
        take_chunk(response.chunk(), output);
        const std::string& text = response.chunk().text();
        if (on_text && !text.empty() && !on_text(text)) context.TryCancel();
      } else if (response.has_finished()) {
        take_finished(response.finished(), output);
        finished = true;
      }
    }
    const grpc::Status status = reader->Finish();
    if (!status.ok()) return from_grpc(status);
    if (!finished) return absl::InternalError("the stream ended without a `finished` message");
    return output;
  }

  absl::StatusOr<std::vector<TokenId>> tokenize(const std::string& text,
                                                absl::Duration timeout) override {
    grpc::ClientContext context;
    set_timeout(timeout, context);
    wire::TokenizeRequest request;
    request.mutable_prompt()->set_text(text);
    wire::TokenizeResponse response;
    DHS_RETURN_IF_ERROR(from_grpc(generation_->Tokenize(&context, request, &response)));
    return std::vector<TokenId>(response.token_ids().begin(), response.token_ids().end());
  }

  absl::StatusOr<std::string> detokenize(const std::vector<uint32_t>& token_ids,
                                         absl::Duration timeout) override {
    grpc::ClientContext context;
    set_timeout(timeout, context);
    wire::DetokenizeRequest request;
    request.mutable_token_ids()->Add(token_ids.begin(), token_ids.end());
    wire::DetokenizeResponse response;
    DHS_RETURN_IF_ERROR(from_grpc(generation_->Detokenize(&context, request, &response)));
    return response.text();
  }

  absl::StatusOr<ServerState> state(absl::Duration timeout) override {
    grpc::ClientContext context;
    set_timeout(timeout, context);
    wire::State response;
    DHS_RETURN_IF_ERROR(from_grpc(admin_->GetState(&context, {}, &response)));
    return ServerState{.version = response.version(),
                       .draining = response.draining(),
                       .model = to_model_info(response.model()),
                       .engine = to_engine_state(response),
                       .reloads = to_reloads(response)};
  }

  absl::StatusOr<std::vector<ConfigChange>> reload(absl::Duration timeout) override {
    grpc::ClientContext context;
    set_timeout(timeout, context);
    wire::ReloadResponse response;
    DHS_RETURN_IF_ERROR(from_grpc(admin_->Reload(&context, {}, &response)));
    std::vector<ConfigChange> changes;
    for (const wire::ConfigChange& change : response.changes()) {
      changes.push_back({.key = change.key(),
                         .before = change.before(),
                         .after = change.after(),
                         .is_live = true});
    }
    return changes;
  }

 private:
  std::unique_ptr<wire::Generation::Stub> generation_;
  std::unique_ptr<wire::Admin::Stub> admin_;
};

}  // namespace

std::unique_ptr<Client> make_client(const std::string& target) {
  // It would print that a text is not UTF-8; the server's answer says so too.
  google::protobuf::SetLogHandler(nullptr);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return std::make_unique<GrpcClient>(
      grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
}

}  // namespace dhs
