// A server over a FakeEngine on a loopback port, and the two ends tests talk to it with.
#pragma once

#include <absl/time/clock.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "byte_tokenizer.h"
#include "dhisparse/client.h"
#include "dhisparse/server.h"
#include "dhisparse/v1/generation.grpc.pb.h"
#include "fake_engine.h"

namespace dhs {

namespace wire = ::dhisparse::v1;

// What a Generate call brought.
struct Outcome {
  grpc::Status status;
  int num_chunks = 0;
  std::string text;
  std::string tokens;  // the byte tokens as bytes; others are left out
  int num_tokens = 0;
  std::optional<wire::Finished> finished;
};

inline void take(const wire::GenerateResponse& response, Outcome& outcome) {
  if (response.has_finished()) outcome.finished = response.finished();
  if (!response.has_chunk()) return;
  ++outcome.num_chunks;
  outcome.text += response.chunk().text();
  for (const uint32_t id : response.chunk().token_ids()) {
    ++outcome.num_tokens;
    if (id < 256) outcome.tokens += static_cast<char>(id);
  }
}

inline wire::GenerateRequest text_request(const std::string& text) {
  wire::GenerateRequest request;
  request.mutable_text()->set_text(text);
  return request;
}

// A call that the test reads when it likes.
class OpenCall {
 public:
  OpenCall(wire::Generation::Stub& stub, const wire::GenerateRequest& request,
           std::optional<absl::Duration> timeout = {}) {
    if (timeout) context.set_deadline(absl::ToChronoTime(absl::Now() + *timeout));
    reader = stub.Generate(&context, request);
  }

  Outcome read_all() {
    Outcome outcome;
    wire::GenerateResponse response;
    while (reader->Read(&response)) take(response, outcome);
    outcome.status = reader->Finish();
    return outcome;
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<wire::GenerateResponse>> reader;
};

class ServerTest : public ::testing::Test {
 protected:
  void TearDown() override { server_.reset(); }

  // Every test calls it once, after it has set up `engine_`, `config_` and `limits_`.
  void start() {
    config_.listen = "127.0.0.1:0";
    auto server = start_server(config_, limits_, engine_, tokenizer_, reloader_.get());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    stub_ = wire::Generation::NewStub(channel_);
    client_ = make_client(server_->address());
  }

  Outcome generate(const wire::GenerateRequest& request) {
    return OpenCall(*stub_, request).read_all();
  }

  // Answers every request to come with `text` and then `reason`.
  void answer_with(std::string text, FinishReason reason = FinishReason::kStop) {
    engine_.on_submit([text = std::move(text), reason](FakeEngine& engine, RequestId id) {
      engine.emit(id, text);
      engine.finish(id, reason);
    });
  }

  FakeEngine engine_;
  Tokenizer tokenizer_ = byte_tokenizer();
  ServerConfig config_;
  LimitsConfig limits_;
  std::unique_ptr<ConfigReloader> reloader_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<wire::Generation::Stub> stub_;
  std::unique_ptr<Client> client_;
};

}  // namespace dhs
