#include "server/generate_call.h"

#include <absl/time/clock.h>

#include <algorithm>
#include <utility>

#include "server/rpc_status.h"
#include "server/wire_message.h"

namespace dhs {
namespace {

absl::Time effective_deadline(const grpc::CallbackServerContext& context,
                              const LimitsConfig& limits) {
  const auto asked = context.deadline();
  const absl::Time client = asked == std::chrono::system_clock::time_point::max()
                                ? absl::InfiniteFuture()
                                : absl::FromChrono(asked);
  return std::min(client, absl::Now() + limits.max_request_time);
}

// What a delta adds to a message, near enough for limits.
size_t wire_bytes(const OutputDelta& delta, bool with_logprobs) {
  size_t num_bytes = delta.text.size() + 4 * delta.tokens.size();
  if (with_logprobs) {
    for (const TokenOutput& token : delta.tokens) num_bytes += 8 + 12 * token.top.size();
  }
  return num_bytes;
}

void add_to_chunk(const OutputDelta& delta, bool with_logprobs, wire::Chunk& chunk) {
  chunk.mutable_text()->append(delta.text);
  for (const TokenOutput& token : delta.tokens) {
    chunk.add_token_ids(static_cast<uint32_t>(token.token));
    if (!with_logprobs) continue;
    wire::TokenLogprobs* logprobs = chunk.add_logprobs();
    logprobs->set_logprob(token.logprob);
    for (const TokenLogprob& alternative : token.top) {
      wire::TopLogprob* top = logprobs->add_top();
      top->set_token_id(static_cast<uint32_t>(alternative.token));
      top->set_logprob(alternative.logprob);
    }
  }
}

}  // namespace

GenerateCall::GenerateCall(ServingContext& serving, absl::Time deadline)
    : serving_(serving), deadline_(deadline) {}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::start(
    ServingContext& serving, grpc::CallbackServerContext* context,
    const grpc::ByteBuffer* request) {
  // Not make_shared: the constructor is private.
  std::shared_ptr<GenerateCall> call(
      new GenerateCall(serving, effective_deadline(*context, serving.limits)));
  call->self_ = call;
  const auto num_bytes = static_cast<int64_t>(request->Length());
  if (!serving.calls.add(call.get())) {
    call->end_before_submit(absl::UnavailableError(
        "the server is draining and takes no new requests; send it to another one"));
  } else if (!serving.arriving.try_take(num_bytes)) {
    call->end_before_submit(absl::ResourceExhaustedError(
        absl::StrCat("requests being read: the limit of ", serving.limits.max_arriving_bytes,
                     " bytes (limits.max_arriving) is reached; try again later")));
  } else if (!serving.workers.try_run([call, request, num_bytes, &serving] {
               call->run(*request);
               serving.arriving.give_back(num_bytes);
             })) {
    serving.arriving.give_back(num_bytes);
    call->end_before_submit(absl::ResourceExhaustedError(
        absl::StrCat("requests being tokenized: the limit of ", ServingContext::kMaxNumQueuedJobs,
                     " is reached; try again later")));
  }
  return call.get();
}

// ---- Worker ------------------------------------------------------------------------------------

void GenerateCall::run(const grpc::ByteBuffer& request) {
  bool is_cancelled = false;
  {
    MutexLock lock(mutex_);
    is_cancelled = end_wanted_.has_value();
  }
  if (is_cancelled) return end_before_submit(absl::CancelledError("the client ended the call"));
  wire::GenerateRequest message;
  if (absl::Status parsed = parse_message(request, &message); !parsed.ok()) {
    return end_before_submit(parsed);
  }
  auto valid = validate_request(message, serving_.rules());
  if (!valid.ok()) return end_before_submit(valid.status());
  if (absl::Status submitted = submit(*std::move(valid)); !submitted.ok()) {
    return end_before_submit(submitted);
  }
  pump();
}

absl::Status GenerateCall::submit(ValidRequest request) {
  request_id_ = std::move(request.request_id);
  stops_ = std::move(request.stops);
  wants_logprobs_ = request.engine_request.sampling.logprobs;
  assembler_.emplace(StreamingDetokenizer(serving_.tokenizer, request.skip_special_tokens),
                     std::move(request.stop_matcher), !stops_.empty());
  request.engine_request.deadline = deadline_;
  request.engine_request.arrived = arrived_;
  {
    // Queued before the engine knows the request, since output may come before submit returns; not
    // written yet, since the engine may refuse.
    wire::GenerateResponse accepted;
    accepted.mutable_accepted()->set_prompt_tokens(
        static_cast<uint32_t>(request.engine_request.prompt.size()));
    MutexLock lock(mutex_);
    enqueue(std::move(accepted));
  }
  DHS_ASSIGN_OR_RETURN(const RequestId id, serving_.engine.submit(std::move(request.engine_request),
                                                                  shared_from_this()));
  std::optional<FinishReason> end_now;
  {
    MutexLock lock(mutex_);
    engine_id_ = id;
    end_now = end_wanted_;
  }
  if (end_now) serving_.engine.end(id, *end_now);
  return absl::OkStatus();
}

void GenerateCall::end_before_submit(const absl::Status& status) {
  {
    MutexLock lock(mutex_);
    discard_output(status);
    has_ended_ = true;
  }
  pump();
}

// ---- gRPC --------------------------------------------------------------------------------------

void GenerateCall::OnWriteDone(bool ok) {
  if (!ok) give_up(absl::CancelledError("the client is gone"));
  std::optional<RequestId> awake;
  {
    MutexLock lock(mutex_);
    is_writing_ = false;
    if (std::exchange(is_paused_, false)) awake = engine_id_;
  }
  if (awake) serving_.engine.set_paused(*awake, false);
  pump();
}

void GenerateCall::OnCancel() { give_up(absl::CancelledError("the client ended the call")); }

void GenerateCall::OnDone() {
  serving_.calls.remove(this);
  // `serving_` may be gone from here on.
  const std::shared_ptr<GenerateCall> last = std::move(self_);
}

void GenerateCall::abort(const absl::Status& status) { give_up(status); }

void GenerateCall::give_up(const absl::Status& status) {
  {
    MutexLock lock(mutex_);
    const bool is_all_out = has_ended_ && outbox_.empty();
    if (!is_all_out) discard_output(status);
  }
  end_in_engine(FinishReason::kCancelled);
}

void GenerateCall::end_in_engine(FinishReason reason) {
  std::optional<RequestId> id;
  {
    MutexLock lock(mutex_);
    end_wanted_ = reason;
    id = engine_id_;
  }
  if (id) serving_.engine.end(*id, reason);
}

void GenerateCall::pump() {
  std::optional<Outgoing> next;
  absl::Status status;
  {
    MutexLock lock(mutex_);
    if (is_writing_ || is_finishing_) return;
    if (!outbox_.empty()) {
      is_writing_ = true;
      writing_since_ = absl::Now();
      next = std::move(outbox_.front());
      outbox_.pop_front();
      outbox_bytes_ -= next->num_bytes;
    } else if (has_ended_) {
      is_finishing_ = true;
      status = given_up_.value_or(status_);
    } else {
      return;
    }
  }
  // Outside the lock: after Finish, OnDone may run on another thread at once.
  if (next) {
    writing_ = serialize_message(next->response);
    StartWrite(&writing_);
  } else {
    Finish(to_grpc(status));
  }
}

// ---- Output ------------------------------------------------------------------------------------

void GenerateCall::on_tokens(const std::vector<TokenOutput>& tokens) {
  if (assembler_->match() || tokens.empty()) return;
  last_token_at_ = absl::Now();
  if (num_tokens_received_ == 0) first_token_at_ = last_token_at_;
  const OutputDelta delta = assembler_->push(tokens);
  num_tokens_received_ = assembler_->num_tokens();
  bool is_slow = false;
  std::optional<RequestId> idle;
  {
    MutexLock lock(mutex_);
    append(delta);
    is_slow = static_cast<int64_t>(outbox_bytes_) > serving_.limits.max_unread_output_bytes;
    const bool is_idle =
        is_writing_ && last_token_at_ - writing_since_ > serving_.limits.park_after;
    if (is_idle && !is_paused_) {
      is_paused_ = true;
      idle = engine_id_;
    }
  }
  if (idle) serving_.engine.set_paused(*idle, true);
  if (is_slow) {
    give_up(absl::ResourceExhaustedError(absl::StrCat(
        "output waiting for the client: the limit of ", serving_.limits.max_unread_output_bytes,
        " bytes (limits.max_unread_output) is reached; read the stream faster")));
  } else if (assembler_->match()) {
    end_in_engine(FinishReason::kStop);
  }
  pump();
}

void GenerateCall::on_finished(const Finished& finished) {
  const OutputDelta delta = assembler_->finish();
  const absl::Status status = final_status(finished);
  {
    MutexLock lock(mutex_);
    append(delta);
    if (status.ok()) enqueue(finished_message(finished));
    status_ = status;
    has_ended_ = true;
  }
  pump();
}

void GenerateCall::append(const OutputDelta& delta) {
  if (given_up_ || delta.empty()) return;
  num_tokens_given_ += static_cast<int64_t>(delta.tokens.size());
  const size_t num_bytes = wire_bytes(delta, wants_logprobs_);
  const bool joins = !outbox_.empty() && outbox_.back().response.has_chunk() &&
                     outbox_.back().num_bytes + num_bytes <= kMaxJoinedBytes;
  if (!joins) enqueue({});
  add_to_chunk(delta, wants_logprobs_, *outbox_.back().response.mutable_chunk());
  outbox_.back().num_bytes += num_bytes;
  outbox_bytes_ += num_bytes;
}

void GenerateCall::enqueue(wire::GenerateResponse response) {
  if (given_up_) return;
  response.set_request_id(request_id_);
  outbox_.push_back({std::move(response), 0});
}

void GenerateCall::discard_output(const absl::Status& status) {
  if (!given_up_) given_up_ = status;
  outbox_.clear();
  outbox_bytes_ = 0;
}

absl::Status GenerateCall::final_status(const Finished& finished) const {
  // Whatever came after a stop string matched: to the client that is a proper end.
  if (assembler_->match()) return absl::OkStatus();
  switch (finished.reason) {
    case FinishReason::kStop:
    case FinishReason::kLength:
      return absl::OkStatus();
    case FinishReason::kDeadline:
      return absl::DeadlineExceededError(
          absl::StrCat("the deadline passed after ", num_tokens_received_,
                       " tokens; allow more time or ask for fewer tokens"));
    case FinishReason::kCancelled:
      return absl::UnavailableError("the engine is stopping; send the request to another server");
    case FinishReason::kError:
      break;
  }
  log_error("a request failed in the engine: ", finished.error.ToString());
  return absl::InternalError(absl::StrCat("engine fault: ", finished.error.message()));
}

wire::GenerateResponse GenerateCall::finished_message(const Finished& finished) const {
  wire::GenerateResponse response;
  wire::Finished& to = *response.mutable_finished();
  const std::optional<StopMatch>& match = assembler_->match();
  to.set_reason(match || finished.reason == FinishReason::kStop ? wire::FINISH_REASON_STOP
                                                                : wire::FINISH_REASON_LENGTH);
  if (match) {
    to.set_stop_string(stops_[match->stop_idx]);
  } else if (finished.stop_token) {
    to.set_stop_token_id(static_cast<uint32_t>(*finished.stop_token));
  }
  wire::Usage& usage = *to.mutable_usage();
  usage.set_prompt_tokens(static_cast<uint64_t>(finished.usage.prompt_tokens));
  usage.set_completion_tokens(static_cast<uint64_t>(num_tokens_given_));
  usage.set_cached_prompt_tokens(static_cast<uint64_t>(finished.usage.cached_prompt_tokens));
  usage.set_rows_selected(static_cast<uint64_t>(finished.usage.rows_selected));
  usage.set_rows_fetched(static_cast<uint64_t>(finished.usage.rows_fetched));
  usage.set_drafts_verified(static_cast<uint64_t>(finished.usage.drafts_verified));
  usage.set_drafts_accepted(static_cast<uint64_t>(finished.usage.drafts_accepted));
  usage.set_times_parked(static_cast<uint64_t>(finished.usage.times_parked));
  if (num_tokens_received_ > 0) {
    usage.set_time_to_first_token_s(absl::ToDoubleSeconds(first_token_at_ - arrived_));
  }
  if (num_tokens_received_ > 1) {
    usage.set_time_per_output_token_s(absl::ToDoubleSeconds(last_token_at_ - first_token_at_) /
                                      static_cast<double>(num_tokens_received_ - 1));
  }
  return response;
}

}  // namespace dhs
