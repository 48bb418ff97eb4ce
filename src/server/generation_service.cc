#include "server/generation_service.h"

#include <utility>

#include "server/generate_call.h"
#include "server/rpc_status.h"
#include "server/wire_message.h"

namespace dhs {
namespace {

absl::StatusOr<wire::TokenizeResponse> tokenize(const wire::TokenizeRequest& request,
                                                const RequestRules& rules) {
  DHS_ASSIGN_OR_RETURN(const auto tokens, tokenize_prompt(request.prompt(), rules));
  wire::TokenizeResponse response;
  response.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  return response;
}

absl::StatusOr<wire::DetokenizeResponse> detokenize(const wire::DetokenizeRequest& request,
                                                    const RequestRules& rules) {
  if (request.token_ids_size() > rules.limits.max_prompt_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("token_ids: ", request.token_ids_size(), " ids, the limit is ",
                     rules.limits.max_prompt_tokens, " (limits.max_prompt_tokens); send fewer"));
  }
  DHS_ASSIGN_OR_RETURN(const auto tokens,
                       check_token_ids(request.token_ids(), "token_ids", rules.model));
  wire::DetokenizeResponse response;
  response.set_text(rules.tokenizer.decode(
      tokens, !request.has_skip_special_tokens() || request.skip_special_tokens()));
  return response;
}

// Runs `answer` (Request -> StatusOr<Response>) on a worker.
template <class Request, class Answer>
grpc::ServerUnaryReactor* answer_on_worker(ServingContext& serving,
                                           grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* bytes,
                                           grpc::ByteBuffer* response, Answer answer) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool queued = serving.workers.try_run([&serving, reactor, bytes, response, answer] {
    Request request;
    absl::Status status = parse_message(*bytes, &request);
    if (status.ok()) {
      auto answered = answer(request, serving.rules());
      status = answered.status();
      if (status.ok()) *response = serialize_message(*answered);
    }
    reactor->Finish(to_grpc(status));
  });
  if (!queued) {
    reactor->Finish(to_grpc(absl::ResourceExhaustedError(
        absl::StrCat("calls being answered: the limit of ", ServingContext::kMaxNumQueuedJobs,
                     " is reached; try again later"))));
  }
  return reactor;
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return GenerateCall::start(serving_, context, request);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return answer_on_worker<wire::TokenizeRequest>(serving_, context, request, response, tokenize);
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return answer_on_worker<wire::DetokenizeRequest>(serving_, context, request, response,
                                                   detokenize);
}

}  // namespace dhs
