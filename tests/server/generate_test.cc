#include <absl/time/clock.h>
#include <gmock/gmock.h>

#include "server_fixture.h"

namespace dhs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GenerateTest : public ServerTest {};

TEST_F(GenerateTest, passes_a_request_to_the_engine_as_it_was_asked) {
  start();
  wire::GenerateRequest request = text_request("ab");
  wire::Sampling& sampling = *request.mutable_sampling();
  sampling.set_temperature(0);
  sampling.set_top_p(0.5f);
  sampling.set_top_k(7);
  sampling.set_min_p(0.25f);
  sampling.set_repetition_penalty(1.5f);
  sampling.set_presence_penalty(-0.5f);
  sampling.set_frequency_penalty(2.0f);
  wire::LogitBias& bias = *sampling.add_logit_bias();
  bias.set_token_id(66);
  bias.set_bias(-100);
  sampling.set_seed(0xffffffffffffffffull);
  sampling.set_max_tokens(9);
  sampling.set_min_tokens(2);
  sampling.add_stop_token_ids(65);
  sampling.set_ignore_eos(true);
  request.mutable_output()->set_top_logprobs(2);
  request.set_priority(-3);
  request.mutable_prefix_cache()->set_salt("tenant");
  request.mutable_prefix_cache()->set_bypass(true);
  OpenCall call(*stub_, request);
  const RequestId id = engine_.wait_for_request();
  const GenerateRequest got = engine_.request(id);
  EXPECT_THAT(got.prompt, ElementsAre('a', 'b'));
  EXPECT_EQ(got.sampling.temperature, 0.0f);
  EXPECT_EQ(got.sampling.top_p, 0.5f);
  EXPECT_EQ(got.sampling.top_k, 7);
  EXPECT_EQ(got.sampling.min_p, 0.25f);
  EXPECT_EQ(got.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(got.sampling.presence_penalty, -0.5f);
  EXPECT_EQ(got.sampling.frequency_penalty, 2.0f);
  ASSERT_EQ(got.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(got.sampling.logit_bias[0].token, 66);
  EXPECT_EQ(got.sampling.logit_bias[0].bias, -100.0f);
  EXPECT_EQ(got.sampling.seed, 0xffffffffffffffffull);
  EXPECT_TRUE(got.sampling.is_repeatable);
  EXPECT_EQ(got.sampling.max_tokens, 9);
  EXPECT_EQ(got.sampling.min_tokens, 2);
  EXPECT_THAT(got.sampling.stop_token_ids, ElementsAre(65));
  EXPECT_TRUE(got.sampling.ignore_eos);
  EXPECT_TRUE(got.sampling.logprobs);
  EXPECT_EQ(got.sampling.num_top_logprobs, 2);
  EXPECT_EQ(got.deadline, absl::InfiniteFuture());
  EXPECT_EQ(got.priority, -3);
  EXPECT_EQ(got.cache_salt, "tenant");
  EXPECT_TRUE(got.bypass_prefix_cache);
}

TEST_F(GenerateTest, takes_unset_scalars_as_the_contract_says) {
  start();
  OpenCall call(*stub_, text_request("ab"));
  const GenerateRequest got = engine_.request(engine_.wait_for_request());
  EXPECT_EQ(got.sampling.temperature, 1.0f);
  EXPECT_EQ(got.sampling.top_p, 1.0f);
  EXPECT_EQ(got.sampling.top_k, 0);
  EXPECT_EQ(got.sampling.min_p, 0.0f);
  EXPECT_EQ(got.sampling.repetition_penalty, 1.0f);
  EXPECT_EQ(got.sampling.presence_penalty, 0.0f);
  EXPECT_EQ(got.sampling.frequency_penalty, 0.0f);
  EXPECT_TRUE(got.sampling.logit_bias.empty());
  EXPECT_FALSE(got.sampling.seed);
  EXPECT_FALSE(got.sampling.is_repeatable);
  EXPECT_EQ(got.sampling.max_tokens, 98);  // the rest of a context of 100
  EXPECT_EQ(got.sampling.min_tokens, 0);
  EXPECT_FALSE(got.sampling.logprobs);
}

TEST_F(GenerateTest, leaves_out_of_unset_max_tokens_what_memory_can_never_hold) {
  engine_.set_longest_request(40);
  start();
  OpenCall call(*stub_, text_request("ab"));
  EXPECT_EQ(engine_.request(engine_.wait_for_request()).sampling.max_tokens, 38);
}

TEST_F(GenerateTest, streams_accepted_then_chunks_then_finished) {
  start();
  wire::GenerateRequest request = text_request("hello");
  request.set_request_id("mine");
  OpenCall call(*stub_, request);
  const RequestId id = engine_.wait_for_request();
  wire::GenerateResponse response;
  // Known before the first token is.
  ASSERT_TRUE(call.reader->Read(&response));
  EXPECT_EQ(response.accepted().prompt_tokens(), 5u);
  EXPECT_EQ(response.request_id(), "mine");
  engine_.emit(id, "ab");
  ASSERT_TRUE(call.reader->Read(&response));
  EXPECT_EQ(response.chunk().text(), "ab");
  EXPECT_THAT(response.chunk().token_ids(), ElementsAre('a', 'b'));
  EXPECT_EQ(response.chunk().logprobs_size(), 0);
  engine_.emit(id, "c");
  ASSERT_TRUE(call.reader->Read(&response));
  EXPECT_EQ(response.chunk().text(), "c");
  engine_.finish(id, {.reason = FinishReason::kLength,
                      .stop_token = {},
                      .error = {},
                      .usage = {.prompt_tokens = 5,
                                .completion_tokens = 3,
                                .cached_prompt_tokens = 4,
                                .rows_selected = 70,
                                .rows_fetched = 6}});
  ASSERT_TRUE(call.reader->Read(&response));
  const wire::Finished& finished = response.finished();
  EXPECT_EQ(finished.reason(), wire::FINISH_REASON_LENGTH);
  EXPECT_EQ(finished.stop_case(), wire::Finished::STOP_NOT_SET);
  EXPECT_EQ(finished.usage().prompt_tokens(), 5u);
  EXPECT_EQ(finished.usage().completion_tokens(), 3u);
  EXPECT_EQ(finished.usage().cached_prompt_tokens(), 4u);
  EXPECT_EQ(finished.usage().rows_selected(), 70u);
  EXPECT_EQ(finished.usage().rows_fetched(), 6u);
  EXPECT_GT(finished.usage().time_to_first_token_s(), 0.0);
  EXPECT_TRUE(finished.usage().has_time_per_output_token_s());
  EXPECT_EQ(response.request_id(), "mine");
  EXPECT_FALSE(call.reader->Read(&response));
  EXPECT_TRUE(call.reader->Finish().ok());
}

TEST_F(GenerateTest, leaves_times_unset_that_were_not_measured) {
  start();
  answer_with("");
  Outcome outcome = generate(text_request("a"));
  ASSERT_TRUE(outcome.finished);
  EXPECT_FALSE(outcome.finished->usage().has_time_to_first_token_s());
  answer_with("x");
  outcome = generate(text_request("a"));
  ASSERT_TRUE(outcome.finished);
  EXPECT_TRUE(outcome.finished->usage().has_time_to_first_token_s());
  EXPECT_FALSE(outcome.finished->usage().has_time_per_output_token_s());
}

TEST_F(GenerateTest, never_cuts_a_character_between_messages) {
  start();
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
  OpenCall call(*stub_, text_request("x"));
  const RequestId id = engine_.wait_for_request();
  for (const char byte : text) {
    engine_.emit(id, std::string(1, byte));
    engine_.flush();
  }
  engine_.finish(id, FinishReason::kStop);
  // A message with half a character would not parse, and end the call.
  const Outcome outcome = call.read_all();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(outcome.text, text);
  EXPECT_EQ(outcome.tokens, text);
}

TEST_F(GenerateTest, stops_at_a_stop_string_across_token_borders) {
  start();
  wire::GenerateRequest request = text_request("x");
  request.mutable_sampling()->add_stop("nothing");
  request.mutable_sampling()->add_stop("</end>");
  OpenCall call(*stub_, request);
  const RequestId id = engine_.wait_for_request();
  engine_.emit(id, "text </");
  engine_.emit(id, "en");
  engine_.emit(id, "d> dropped");
  const Outcome outcome = call.read_all();  // the server has the engine end the request
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(outcome.text, "text ");
  EXPECT_EQ(outcome.tokens, "text ");
  ASSERT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finished->reason(), wire::FINISH_REASON_STOP);
  EXPECT_EQ(outcome.finished->stop_string(), "</end>");
  EXPECT_EQ(outcome.finished->usage().completion_tokens(), 5u);
  EXPECT_FALSE(engine_.is_running(id));
}

// Accepted drafts come together: what is behind the stop string is as if it had not been drawn.
TEST_F(GenerateTest, drops_what_came_with_the_stop_string_in_one_step) {
  start();
  wire::GenerateRequest request = text_request("x");
  request.mutable_sampling()->add_stop("END");
  for (const size_t step : {1, 3, 9}) {
    engine_.on_submit([step](FakeEngine& engine, RequestId id) {
      const std::string text = "abENDcd..";
      for (size_t at = 0; at < text.size(); at += step) engine.emit(id, text.substr(at, step));
      engine.finish(id, FinishReason::kStop);
    });
    const Outcome outcome = generate(request);
    EXPECT_EQ(outcome.text + "|" + outcome.tokens, "ab|ab");
    ASSERT_TRUE(outcome.finished);
    EXPECT_EQ(outcome.finished->stop_string(), "END");
    EXPECT_EQ(outcome.finished->usage().completion_tokens(), 2u);
  }
}

TEST_F(GenerateTest, includes_the_stop_string_when_asked) {
  start();
  wire::GenerateRequest request = text_request("x");
  request.mutable_sampling()->add_stop("END");
  request.mutable_output()->set_include_stop_str_in_output(true);
  answer_with("abENDcd", FinishReason::kLength);
  const Outcome outcome = generate(request);
  EXPECT_EQ(outcome.text, "abEND");
  EXPECT_EQ(outcome.tokens, "abEND");
  // The engine ended it for another reason meanwhile; the match came first.
  EXPECT_EQ(outcome.finished->reason(), wire::FINISH_REASON_STOP);
}

TEST_F(GenerateTest, gives_out_what_it_held_back_when_no_stop_string_came) {
  start();
  wire::GenerateRequest request = text_request("x");
  request.mutable_sampling()->add_stop("END");
  answer_with("abEN");
  const Outcome outcome = generate(request);
  EXPECT_EQ(outcome.text, "abEN");
  EXPECT_EQ(outcome.tokens, "abEN");
  EXPECT_EQ(outcome.finished->stop_case(), wire::Finished::STOP_NOT_SET);
}

TEST_F(GenerateTest, reports_the_stop_token_and_hides_special_tokens_in_text_only) {
  start();
  TokenOutput end;
  end.token = 256;
  engine_.on_submit([end](FakeEngine& engine, RequestId id) {
    engine.emit(id, "hi");
    engine.emit(id, {end});
    engine.finish(id, {.reason = FinishReason::kStop, .stop_token = 256, .error = {}, .usage = {}});
  });
  Outcome outcome = generate(text_request("x"));
  EXPECT_EQ(outcome.text, "hi");
  EXPECT_EQ(outcome.num_tokens, 3);
  EXPECT_EQ(outcome.finished->stop_token_id(), 256u);
  wire::GenerateRequest request = text_request("x");
  request.mutable_output()->set_skip_special_tokens(false);
  outcome = generate(request);
  EXPECT_EQ(outcome.text, "hi<|end|>");
}

TEST_F(GenerateTest, sends_logprobs_beside_the_tokens_when_asked) {
  start();
  engine_.on_submit([](FakeEngine& engine, RequestId id) {
    TokenOutput token;
    token.token = 'a';
    token.logprob = -1.5f;
    token.top = {{'b', -0.25f}, {'a', -1.5f}};
    engine.emit(id, {token});
    engine.finish(id, FinishReason::kLength);
  });
  ClientRequest request;
  request.prompt = "x";
  request.top_logprobs = 2;
  const auto output = client_->generate(request, {});
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->reason, FinishReason::kLength);
  ASSERT_EQ(output->tokens.size(), 1u);
  EXPECT_EQ(output->tokens[0].logprob, -1.5f);
  ASSERT_EQ(output->tokens[0].top.size(), 2u);
  EXPECT_EQ(output->tokens[0].top[0].token, 'b');
  EXPECT_EQ(output->tokens[0].top[0].logprob, -0.25f);
}

TEST_F(GenerateTest, passes_on_the_penalties_and_biases_of_the_client) {
  start();
  SamplingParams got;
  engine_.on_submit([&](FakeEngine& engine, RequestId id) {
    got = engine.request(id).sampling;
    engine.finish(id, FinishReason::kLength);
  });
  ClientRequest request;
  request.prompt = "x";
  request.repetition_penalty = 1.5f;
  request.presence_penalty = -1.0f;
  request.frequency_penalty = 0.5f;
  request.logit_bias = {{66, -100.0f}, {65, 2.0f}};
  ASSERT_TRUE(client_->generate(request, {}).ok());
  EXPECT_EQ(got.repetition_penalty, 1.5f);
  EXPECT_EQ(got.presence_penalty, -1.0f);
  EXPECT_EQ(got.frequency_penalty, 0.5f);
  ASSERT_EQ(got.logit_bias.size(), 2u);
  EXPECT_EQ(got.logit_bias[1].token, 65);
  EXPECT_EQ(got.logit_bias[1].bias, 2.0f);
}

TEST_F(GenerateTest, reads_special_tokens_in_text_unless_told_not_to) {
  start();
  answer_with("");
  wire::GenerateRequest request = text_request("<|end|>");
  OpenCall with(*stub_, request);
  EXPECT_TRUE(with.read_all().status.ok());
  EXPECT_EQ(*client_->tokenize("<|end|>", absl::Seconds(60)), std::vector<TokenId>{256});
  request.mutable_text()->set_parse_special_tokens(false);
  engine_.on_submit({});
  OpenCall without(*stub_, request);
  EXPECT_EQ(engine_.request(engine_.wait_for_request(2)).prompt.size(), 7u);
}

// ---- Errors ----

TEST_F(GenerateTest, passes_on_why_the_engine_refuses) {
  start();
  engine_.refuse_with(absl::ResourceExhaustedError("queue: 8 requests, the limit is 8"));
  const Outcome outcome = generate(text_request("x"));
  EXPECT_EQ(outcome.status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(outcome.status.error_message(), "queue: 8 requests, the limit is 8");
  EXPECT_FALSE(outcome.finished);
}

TEST_F(GenerateTest, reports_an_engine_fault_as_internal_and_goes_on) {
  start();
  OpenCall call(*stub_, text_request("x"));
  const RequestId id = engine_.wait_for_request();
  engine_.emit(id, "ab");
  engine_.finish(id, {.reason = FinishReason::kError,
                      .stop_token = {},
                      .error = absl::DataLossError("a block is corrupt"),
                      .usage = {}});
  const Outcome outcome = call.read_all();
  EXPECT_EQ(outcome.text, "ab");
  EXPECT_EQ(outcome.status.error_code(), grpc::INTERNAL);
  EXPECT_EQ(outcome.status.error_message(), "engine fault: a block is corrupt");
  answer_with("fine");
  EXPECT_EQ(generate(text_request("x")).text, "fine");
}

TEST_F(GenerateTest, hands_the_deadline_of_the_call_to_the_engine) {
  start();
  const absl::Time before = absl::Now();
  OpenCall call(*stub_, text_request("x"), absl::Seconds(1000));
  const absl::Time deadline = engine_.request(engine_.wait_for_request()).deadline;
  EXPECT_GT(deadline, before + absl::Seconds(900));
  // gRPC sends a rounded-up timeout.
  EXPECT_LT(deadline, absl::Now() + absl::Seconds(1100));
}

TEST_F(GenerateTest, bounds_the_deadline_by_max_request_time) {
  limits_.max_request_time = absl::Seconds(500);
  start();
  OpenCall call(*stub_, text_request("x"), absl::Seconds(1000));
  EXPECT_LT(engine_.request(engine_.wait_for_request()).deadline, absl::Now() + absl::Seconds(501));
}

TEST_F(GenerateTest, reports_a_passed_deadline) {
  start();
  OpenCall call(*stub_, text_request("x"));
  const RequestId id = engine_.wait_for_request();
  engine_.emit(id, "ab");
  engine_.finish(id, FinishReason::kDeadline);
  const Outcome outcome = call.read_all();
  EXPECT_EQ(outcome.status.error_code(), grpc::DEADLINE_EXCEEDED);
  EXPECT_EQ(outcome.status.error_message(),
            "the deadline passed after 2 tokens; allow more time or ask for fewer tokens");
}

TEST_F(GenerateTest, ends_the_request_when_the_clients_deadline_passes) {
  start();
  OpenCall call(*stub_, text_request("x"), absl::Milliseconds(300));
  const Outcome outcome = call.read_all();
  EXPECT_EQ(outcome.status.error_code(), grpc::DEADLINE_EXCEEDED);
  engine_.wait_until_idle();
}

// ---- Clients that leave or read slowly ----

TEST_F(GenerateTest, ends_the_request_when_the_client_cancels) {
  start();
  OpenCall call(*stub_, text_request("x"));
  const RequestId id = engine_.wait_for_request();
  engine_.emit(id, "ab");
  call.context.TryCancel();
  engine_.wait_until_idle();
  EXPECT_EQ(call.read_all().status.error_code(), grpc::CANCELLED);
}

TEST_F(GenerateTest, ends_the_request_when_the_reader_of_the_text_says_so) {
  start();
  engine_.on_submit([](FakeEngine& engine, RequestId id) { engine.emit(id, "ab"); });
  ClientRequest request;
  request.prompt = "x";
  std::string seen;
  const auto output = client_->generate(request, [&](const std::string& text) {
    seen += text;
    return false;
  });
  EXPECT_EQ(output.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(seen, "ab");
  engine_.wait_until_idle();
}

TEST_F(GenerateTest, ends_all_requests_of_a_connection_that_is_gone) {
  start();
  {
    // A connection of its own, not shared with other channels of the process.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto channel = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(),
                                             arguments);
    const auto stub = wire::Generation::NewStub(channel);
    OpenCall first(*stub, text_request("x"));
    OpenCall second(*stub, text_request("y"));
    engine_.emit(engine_.wait_for_request(2), "ab");
  }
  engine_.wait_until_idle();
}

TEST_F(GenerateTest, joins_what_waits_for_a_slow_reader) {
  start();
  OpenCall call(*stub_, text_request("x"));
  const RequestId id = engine_.wait_for_request();
  const std::string piece(10'000, 'a');
  constexpr int kNumPieces = 600;  // 12 MB, more than the transport takes in
  for (int i = 0; i < kNumPieces; ++i) engine_.emit(id, piece);
  engine_.finish(id, FinishReason::kLength);
  engine_.flush();  // the output thread was not held up although nobody reads
  const Outcome outcome = call.read_all();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(outcome.num_tokens, kNumPieces * 10'000);
  EXPECT_EQ(outcome.text.size(), size_t{kNumPieces} * 10'000);
  EXPECT_LT(outcome.num_chunks, kNumPieces);
}

TEST_F(GenerateTest, ends_the_request_of_a_client_that_reads_too_slowly) {
  start();
  OpenCall call(*stub_, text_request("x"));
  const RequestId id = engine_.wait_for_request();
  const std::string piece(100'000, 'a');
  for (int i = 0; i < 120; ++i) engine_.emit(id, piece);  // 5 bytes a token: 60 MB
  engine_.wait_until_idle();
  const Outcome outcome = call.read_all();
  EXPECT_EQ(outcome.status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("read the stream faster"));
}

TEST_F(GenerateTest, parks_the_request_of_a_client_that_reads_nothing_until_it_reads) {
  limits_.park_after = absl::Milliseconds(50);
  limits_.max_unread_output_bytes = int64_t{1} << 30;
  start();
  OpenCall call(*stub_, text_request("x"));
  const RequestId id = engine_.wait_for_request();
  const std::string piece(100'000, 'a');
  for (int i = 0; i < 100; ++i) engine_.emit(id, piece);  // 50 MB: the transport takes in less
  engine_.flush();
  absl::SleepFor(absl::Milliseconds(200));
  engine_.emit(id, piece);
  EXPECT_THAT(engine_.wait_for_pauses(1), ElementsAre(testing::Pair(id, true)));
  engine_.emit(id, piece);
  engine_.flush();
  engine_.finish(id, FinishReason::kLength);
  EXPECT_TRUE(call.read_all().status.ok());
  EXPECT_THAT(engine_.wait_for_pauses(2),
              ElementsAre(testing::Pair(id, true), testing::Pair(id, false)));
}

TEST_F(GenerateTest, never_parks_the_request_of_a_client_that_reads) {
  limits_.park_after = absl::Milliseconds(1);
  start();
  OpenCall call(*stub_, text_request("x"));
  const RequestId id = engine_.wait_for_request();
  wire::GenerateResponse response;
  ASSERT_TRUE(call.reader->Read(&response));
  for (int i = 0; i < 5; ++i) {
    engine_.emit(id, "a");
    ASSERT_TRUE(call.reader->Read(&response));
    absl::SleepFor(absl::Milliseconds(20));
  }
  engine_.finish(id, FinishReason::kLength);
  EXPECT_TRUE(call.read_all().status.ok());
  EXPECT_TRUE(engine_.wait_for_pauses(0).empty());
}

TEST_F(GenerateTest, keeps_many_streams_apart) {
  start();
  engine_.on_submit([](FakeEngine& engine, RequestId id) {
    const std::string prompt(1, static_cast<char>(engine.request(id).prompt[0]));
    for (int i = 0; i < 20; ++i) engine.emit(id, prompt);
    engine.finish(id, FinishReason::kLength);
  });
  std::vector<std::unique_ptr<OpenCall>> calls;
  for (int i = 0; i < 50; ++i) {
    const std::string prompt(1, static_cast<char>('A' + i));
    calls.push_back(std::make_unique<OpenCall>(*stub_, text_request(prompt)));
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(calls[static_cast<size_t>(i)]->read_all().text,
              std::string(20, static_cast<char>('A' + i)));
  }
}

}  // namespace
}  // namespace dhs
