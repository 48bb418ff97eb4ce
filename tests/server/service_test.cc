// What surrounds Generate: health, reflection, state, draining, the listening address.
#include <gmock/gmock.h>

#include <thread>

#include "server_fixture.h"

namespace dhs {
namespace {

using ::testing::HasSubstr;

grpc::ByteBuffer bytes(const std::string& content) {
  const grpc::Slice slice(content);
  return grpc::ByteBuffer(&slice, 1);
}

std::string content(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string all;
  if (!buffer.Dump(&slices).ok()) return all;
  for (const grpc::Slice& slice : slices) {
    all.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return all;
}

class ServiceTest : public ServerTest {
 protected:
  // One message there, one back, by method name: for services whose stubs are not at hand.
  grpc::Status call(const std::string& method, const std::string& request, std::string* response) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(channel_);
    const auto stream = stub.PrepareCall(&context, method, &queue);
    void* tag = nullptr;
    bool ok = false;
    const auto wait = [&] { return queue.Next(&tag, &ok) && ok; };
    stream->StartCall(nullptr);
    wait();
    stream->Write(bytes(request), nullptr);
    wait();
    stream->WritesDone(nullptr);
    wait();
    grpc::ByteBuffer buffer;
    stream->Read(&buffer, nullptr);
    if (wait()) *response = content(buffer);
    grpc::Status status;
    stream->Finish(&status, nullptr);
    wait();
    return status;
  }

  // HealthCheckResponse.status, or the gRPC code when there is none: "SERVING", "NOT_FOUND", ...
  std::string health(const std::string& service) {
    std::string request;
    if (!service.empty()) {
      request = std::string("\x0a") + static_cast<char>(service.size()) + service;
    }
    std::string response;
    const grpc::Status status = call("/grpc.health.v1.Health/Check", request, &response);
    if (status.error_code() == grpc::NOT_FOUND) return "NOT_FOUND";
    if (!status.ok()) return status.error_message();
    if (response == std::string("\x08\x01")) return "SERVING";
    if (response == std::string("\x08\x02")) return "NOT_SERVING";
    return "UNKNOWN";
  }

  bool serving_has_stopped() { return health("") != "SERVING"; }

  grpc::Status list_services(std::string* response) {
    return call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                std::string("\x3a\x00", 2), response);
  }
};

TEST_F(ServiceTest, is_healthy_once_it_is_started) {
  start();
  EXPECT_EQ(health(""), "SERVING");
  EXPECT_EQ(health("dhisparse.v1.Generation"), "SERVING");
  EXPECT_EQ(health("no.such.Service"), "NOT_FOUND");
}

TEST_F(ServiceTest, lists_its_services_when_reflection_is_on) {
  config_.reflection = true;
  start();
  std::string response;
  EXPECT_TRUE(list_services(&response).ok());
  EXPECT_THAT(response, HasSubstr("dhisparse.v1.Generation"));
  EXPECT_THAT(response, HasSubstr("dhisparse.v1.Admin"));
  EXPECT_THAT(response, HasSubstr("grpc.health.v1.Health"));
}

TEST_F(ServiceTest, does_not_list_its_services_when_reflection_is_off) {
  config_.reflection = false;
  start();
  std::string response;
  EXPECT_EQ(list_services(&response).error_code(), grpc::UNIMPLEMENTED);
  EXPECT_EQ(response, "");
}

TEST_F(ServiceTest, tells_the_state_of_the_engine) {
  start();
  OpenCall running(*stub_, text_request("x"));
  engine_.wait_for_request();
  const auto state = client_->state(absl::Seconds(60));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->model.name, "fake");
  EXPECT_EQ(state->model.max_context, 100);
  EXPECT_EQ(state->model.eos_token_ids, std::vector<TokenId>{256});
  EXPECT_EQ(state->engine.running_requests, 1);
  ASSERT_EQ(state->engine.groups.size(), 1u);
  EXPECT_EQ(state->engine.groups[0].first_layer, 2);
  EXPECT_EQ(state->engine.groups[0].record_bytes, 1152);
  EXPECT_FALSE(state->draining);
}

TEST_F(ServiceTest, is_unhealthy_for_good_once_the_engine_can_run_no_step) {
  start();
  engine_.fail_with(absl::AbortedError("rank 1 is gone"));
  EXPECT_EQ(health(""), "NOT_SERVING");
  EXPECT_EQ(health("dhisparse.v1.Generation"), "NOT_SERVING");
  EXPECT_EQ(client_->state(absl::Seconds(60))->engine.failure, "rank 1 is gone");
}

TEST_F(ServiceTest, tells_counters_and_figures_as_the_engine_has_them) {
  EngineState told;
  told.max_running = 9;
  told.emulated_link_time = absl::Milliseconds(1500);
  told.parks = 4;
  told.resumes = 3;
  told.refused_queue_full = 2;
  told.draft_kind = "dspark";
  told.draft_cap = 5;
  told.drafts.add(5, 2);
  told.drafts.add(3, 3);
  told.prefix = {.looked_up = 300, .on_device = 128, .on_host = 64};
  told.index_moves = {.grown = 8, .released = 5};
  told.draft_moves = {.grown = 6, .released = 1};
  told.device_draft_bytes = 4096;
  told.request_figures.finished = {1, 2, 3, 4, 5};
  told.request_figures.first_token.observe(0.03, 7);
  told.step_figures.tokens.observe(1e9);
  engine_.set_state(told);
  start();
  const EngineState heard = client_->state(absl::Seconds(60))->engine;
  EXPECT_EQ(heard.max_running, 9);
  EXPECT_EQ(heard.emulated_link_time, absl::Milliseconds(1500));
  EXPECT_EQ(heard.parks, 4);
  EXPECT_EQ(heard.resumes, 3);
  EXPECT_EQ(heard.refused_queue_full, 2);
  EXPECT_EQ(heard.prefix.on_host, 64);
  EXPECT_EQ(heard.draft_kind, "dspark");
  EXPECT_EQ(heard.draft_cap, 5);
  EXPECT_EQ(heard.drafts.verified, 8);
  EXPECT_EQ(heard.drafts.accepted, 5);
  EXPECT_EQ(heard.drafts.verified_at, (std::vector<int64_t>{2, 2, 2, 1, 1}));
  EXPECT_EQ(heard.drafts.accepted_at, (std::vector<int64_t>{2, 2, 1, 0, 0}));
  EXPECT_EQ(heard.drafts.mean_accepted_length(), 3.5);
  EXPECT_EQ(heard.index_moves.released, 5);
  EXPECT_EQ(heard.draft_moves.grown, 6);
  EXPECT_EQ(heard.draft_moves.released, 1);
  EXPECT_EQ(heard.device_draft_bytes, 4096);
  EXPECT_EQ(heard.request_figures.finished, told.request_figures.finished);
  const Histogram& first_token = heard.request_figures.first_token;
  EXPECT_EQ(first_token.counts, told.request_figures.first_token.counts);
  EXPECT_EQ(first_token.edges, told.request_figures.first_token.edges);
  EXPECT_DOUBLE_EQ(first_token.sum, 0.21);
  EXPECT_EQ(heard.step_figures.tokens.counts, told.step_figures.tokens.counts);
}

TEST_F(ServiceTest, tokenizes_and_detokenizes) {
  start();
  EXPECT_EQ(*client_->tokenize("h\xc3\xa9", absl::Seconds(60)),
            (std::vector<TokenId>{'h', 0xc3, 0xa9}));
  EXPECT_EQ(*client_->detokenize({'h', 0xc3, 0xa9, 256}, absl::Seconds(60)), "h\xc3\xa9");
  EXPECT_EQ(*client_->detokenize({0xc3}, absl::Seconds(60)), "\xef\xbf\xbd");
}

TEST_F(ServiceTest, names_the_address_it_cannot_bind) {
  start();
  ServerConfig taken;
  taken.listen = server_->address();
  const auto second = start_server(taken, limits_, engine_, tokenizer_, nullptr);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("server.listen: cannot listen on " + server_->address()));
}

TEST_F(ServiceTest, reports_the_port_it_was_given) {
  start();
  EXPECT_THAT(server_->address(), ::testing::StartsWith("127.0.0.1:"));
  EXPECT_NE(server_->address(), "127.0.0.1:0");
}

TEST_F(ServiceTest, finishes_what_is_running_while_it_drains) {
  start();
  OpenCall running(*stub_, text_request("x"));
  const RequestId id = engine_.wait_for_request();
  std::thread drain([this] { server_->drain(absl::InfiniteDuration()); });
  // Draining is visible to everyone before anything ends.
  while (!serving_has_stopped()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(health("dhisparse.v1.Generation"), "NOT_SERVING");
  while (!client_->state(absl::Seconds(60))->draining) absl::SleepFor(absl::Milliseconds(1));
  const Outcome refused = generate(text_request("y"));
  EXPECT_EQ(refused.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(refused.status.error_message(),
            "the server is draining and takes no new requests; send it to another one");
  EXPECT_TRUE(engine_.is_running(id));
  engine_.emit(id, "done");
  engine_.finish(id, FinishReason::kStop);
  const Outcome outcome = running.read_all();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(outcome.text, "done");
  drain.join();
  EXPECT_EQ(generate(text_request("z")).status.error_code(), grpc::UNAVAILABLE);
}

TEST_F(ServiceTest, ends_what_is_running_when_the_drain_takes_too_long) {
  start();
  OpenCall running(*stub_, text_request("x"));
  engine_.wait_for_request();
  std::thread drain([this] { server_->drain(absl::ZeroDuration()); });
  const Outcome outcome = running.read_all();
  EXPECT_EQ(outcome.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("server.drain_timeout"));
  drain.join();
  engine_.wait_until_idle();
}

TEST_F(ServiceTest, never_says_ok_to_a_client_whose_output_it_dropped) {
  start();
  OpenCall slow(*stub_, text_request("x"));
  const RequestId id = engine_.wait_for_request();
  const std::string piece(10'000, 'a');
  for (int i = 0; i < 600; ++i) engine_.emit(id, piece);
  engine_.finish(id, FinishReason::kLength);
  engine_.wait_until_idle();
  std::thread drain([this] { server_->drain(absl::ZeroDuration()); });
  while (!serving_has_stopped()) absl::SleepFor(absl::Milliseconds(1));
  const Outcome outcome = slow.read_all();
  EXPECT_EQ(outcome.status.ok(), outcome.finished.has_value());
  drain.join();
}

TEST_F(ServiceTest, tells_the_client_when_the_engine_stops_by_itself) {
  start();
  OpenCall running(*stub_, text_request("x"));
  engine_.finish(engine_.wait_for_request(), FinishReason::kCancelled);
  EXPECT_EQ(running.read_all().status.error_code(), grpc::UNAVAILABLE);
}

}  // namespace
}  // namespace dhs
