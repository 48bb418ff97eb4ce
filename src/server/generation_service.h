// dhisparse.v1.Generation. Its methods take raw bytes; see wire_message.h for why.
#pragma once

#include "dhisparse/v1/generation.grpc.pb.h"
#include "server/serving_context.h"

namespace dhs {

using RawGenerationService = wire::Generation::WithRawCallbackMethod_Generate<
    wire::Generation::WithRawCallbackMethod_Tokenize<
        wire::Generation::WithRawCallbackMethod_Detokenize<wire::Generation::Service>>>;

class GenerationService final : public RawGenerationService {
 public:
  explicit GenerationService(ServingContext& serving) : serving_(serving) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  ServingContext& serving_;
};

}  // namespace dhs
