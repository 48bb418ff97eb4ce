#include <limits>

#include "server_fixture.h"

namespace dhs {
namespace {

struct Mistake {
  std::string message;  // exact
  std::function<void(wire::GenerateRequest&)> make;
};

class LimitsTest : public ServerTest {
 protected:
  LimitsTest() {
    limits_.max_prompt_tokens = 40;
    limits_.max_prompt_bytes = 50;
    limits_.max_stop_strings = 2;
    limits_.max_stop_string_bytes = 4;
    limits_.max_stop_token_ids = 2;
    limits_.max_logprobs = 3;
    engine_.set_max_context(30);
  }

  void expect_refused(const Mistake& mistake) {
    wire::GenerateRequest request = text_request("hello");
    mistake.make(request);
    const Outcome outcome = generate(request);
    EXPECT_EQ(outcome.status.error_code(), grpc::INVALID_ARGUMENT) << mistake.message;
    EXPECT_EQ(outcome.status.error_message(), mistake.message);
  }
};

TEST_F(LimitsTest, name_the_prompt_that_cannot_be_served) {
  start();
  const std::vector<Mistake> mistakes = {
      {"prompt: missing; set text or token_ids", [](auto& r) { r.clear_prompt(); }},
      {"prompt: 0 tokens, at least 1 is needed; send some text",
       [](auto& r) { r.mutable_text()->set_text(""); }},
      {"prompt: 0 tokens, at least 1 is needed; send some text",
       [](auto& r) { r.mutable_token_ids(); }},
      {"prompt: 51 bytes of text, the limit is 50 (limits.max_prompt); shorten the prompt or "
       "raise the limit",
       [](auto& r) { r.mutable_text()->set_text(std::string(51, 'a')); }},
      {"prompt: 41 tokens, the limit is 40 (limits.max_prompt_tokens); shorten the prompt or raise "
       "the limit",
       [](auto& r) { r.mutable_text()->set_text(std::string(41, 'a')); }},
      {"prompt: 30 tokens, the limit is 29 (a context of 30 less one generated token); shorten it",
       [](auto& r) { r.mutable_text()->set_text(std::string(30, 'a')); }},
      {"token_ids[1]: 257, the limit is 256 (the last token of the vocabulary)",
       [](auto& r) {
         r.mutable_token_ids()->add_ids(256);
         r.mutable_token_ids()->add_ids(257);
       }},
      {"token_ids[0]: 4294967295, the limit is 256 (the last token of the vocabulary)",
       [](auto& r) { r.mutable_token_ids()->add_ids(0xffffffffu); }},
      {"request_id: 257 bytes, the limit is 256; shorten it",
       [](auto& r) { r.set_request_id(std::string(257, 'x')); }},
  };
  for (const Mistake& mistake : mistakes) expect_refused(mistake);
  EXPECT_EQ(engine_.num_submitted(), 0u);
}

TEST_F(LimitsTest, name_the_stop_that_cannot_be_served) {
  start();
  const std::vector<Mistake> mistakes = {
      {"stop: 3 stop strings, the limit is 2 (limits.max_stop_strings); send fewer",
       [](auto& r) {
         for (int i = 0; i < 3; ++i) r.mutable_sampling()->add_stop(std::string(1, 'x'));
       }},
      {"stop[1]: 5 bytes, the limit is 4 (limits.max_stop_string); shorten it",
       [](auto& r) {
         r.mutable_sampling()->add_stop("fits");
         r.mutable_sampling()->add_stop("fives");
       }},
      {"stop[0]: 0 bytes, at least 1 is needed; leave empty stop strings out",
       [](auto& r) { r.mutable_sampling()->add_stop(std::string()); }},
      {"stop_token_ids[0]: 257, the limit is 256 (the last token of the vocabulary)",
       [](auto& r) { r.mutable_sampling()->add_stop_token_ids(257); }},
      {"sampling.stop_token_ids is 3 ids; allowed: at most 2 (limits.max_stop_token_ids)",
       [](auto& r) {
         for (int i = 0; i < 3; ++i) r.mutable_sampling()->add_stop_token_ids(1);
       }},
  };
  for (const Mistake& mistake : mistakes) expect_refused(mistake);
  EXPECT_EQ(engine_.num_submitted(), 0u);
}

TEST_F(LimitsTest, name_the_sampling_that_cannot_be_served) {
  start();
  const std::vector<Mistake> mistakes = {
      {"max_tokens: 26, the limit is 25 (a context of 30 less a prompt of 5); ask for less or "
       "shorten the prompt",
       [](auto& r) { r.mutable_sampling()->set_max_tokens(26); }},
      {"max_tokens: 4294967295, the limit is 2147483647; ask for less",
       [](auto& r) { r.mutable_sampling()->set_max_tokens(0xffffffffu); }},
      {"sampling.max_tokens is 0; allowed: 1 or more",
       [](auto& r) { r.mutable_sampling()->set_max_tokens(0); }},
      {"min_tokens: 26, the limit is 25 (what fits into the context after the prompt); ask for "
       "less",
       [](auto& r) { r.mutable_sampling()->set_min_tokens(26); }},
      {"sampling.min_tokens is 3; allowed: 0 to max_tokens (2)",
       [](auto& r) {
         r.mutable_sampling()->set_min_tokens(3);
         r.mutable_sampling()->set_max_tokens(2);
       }},
      {"sampling.temperature is nan; allowed: 0 (greedy) to 100",
       [](auto& r) {
         r.mutable_sampling()->set_temperature(std::numeric_limits<float>::quiet_NaN());
       }},
      {"sampling.temperature is inf; allowed: 0 (greedy) to 100",
       [](auto& r) {
         r.mutable_sampling()->set_temperature(std::numeric_limits<float>::infinity());
       }},
      {"sampling.temperature is -1; allowed: 0 (greedy) to 100",
       [](auto& r) { r.mutable_sampling()->set_temperature(-1); }},
      {"sampling.top_p is 0; allowed: above 0, at most 1",
       [](auto& r) { r.mutable_sampling()->set_top_p(0); }},
      {"sampling.min_p is 1.5; allowed: 0 to 1",
       [](auto& r) { r.mutable_sampling()->set_min_p(1.5f); }},
      {"sampling.repetition_penalty is 0; allowed: above 0, at most 10 (1: off)",
       [](auto& r) { r.mutable_sampling()->set_repetition_penalty(0); }},
      {"sampling.presence_penalty is 2.5; allowed: -2 to 2",
       [](auto& r) { r.mutable_sampling()->set_presence_penalty(2.5f); }},
      {"sampling.frequency_penalty is -3; allowed: -2 to 2",
       [](auto& r) { r.mutable_sampling()->set_frequency_penalty(-3); }},
      {"logit_bias[0]: token 4294967295, the limit is 256 (the last token of the vocabulary)",
       [](auto& r) { r.mutable_sampling()->add_logit_bias()->set_token_id(0xffffffffu); }},
      {"sampling.logit_bias is 101 for token 0; allowed: -100 to 100",
       [](auto& r) { r.mutable_sampling()->add_logit_bias()->set_bias(101); }},
      {"top_k: 2147483648, the limit is 2147483647; ask for less",
       [](auto& r) { r.mutable_sampling()->set_top_k(0x80000000u); }},
      {"prefix_cache.salt: 257 bytes, the limit is 256; use a digest of it",
       [](auto& r) { r.mutable_prefix_cache()->set_salt(std::string(257, 's')); }},
      {"sampling.top_logprobs is 4; allowed: 0 to 3 (limits.max_logprobs)",
       [](auto& r) { r.mutable_output()->set_top_logprobs(4); }},
  };
  for (const Mistake& mistake : mistakes) expect_refused(mistake);
  EXPECT_EQ(engine_.num_submitted(), 0u);
}

TEST_F(LimitsTest, let_a_request_at_every_limit_pass) {
  start();
  answer_with("ok");
  wire::GenerateRequest request = text_request(std::string(29, 'a'));
  request.set_request_id(std::string(256, 'x'));
  request.mutable_sampling()->add_stop("four");
  request.mutable_sampling()->add_stop(std::string(1, 'f'));
  request.mutable_sampling()->add_stop_token_ids(256);
  request.mutable_sampling()->add_stop_token_ids(0);
  request.mutable_sampling()->set_max_tokens(1);
  request.mutable_sampling()->set_min_tokens(1);
  request.mutable_output()->set_top_logprobs(3);
  const Outcome outcome = generate(request);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(outcome.text, "ok");
}

TEST_F(LimitsTest, refuse_a_message_that_is_too_large) {
  limits_.max_message_bytes = 1000;
  start();
  const Outcome outcome = generate(text_request(std::string(1000, 'a')));
  EXPECT_EQ(outcome.status.error_code(), grpc::RESOURCE_EXHAUSTED);
  answer_with("still here");
  EXPECT_EQ(generate(text_request("a")).text, "still here");
}

TEST_F(LimitsTest, apply_to_tokenize_and_detokenize) {
  start();
  EXPECT_EQ(client_->tokenize(std::string(51, 'a'), absl::Seconds(60)).status().message(),
            "prompt: 51 bytes of text, the limit is 50 (limits.max_prompt); shorten the "
            "prompt or raise the limit");
  EXPECT_EQ(client_->detokenize({257}, absl::Seconds(60)).status().message(),
            "token_ids[0]: 257, the limit is 256 (the last token of the vocabulary)");
  const std::vector<uint32_t> many(41, 'a');
  EXPECT_EQ(client_->detokenize(many, absl::Seconds(60)).status().message(),
            "token_ids: 41 ids, the limit is 40 (limits.max_prompt_tokens); send fewer");
}

// What is no message at all, or has text that is not UTF-8, is the client's mistake too.
TEST_F(LimitsTest, refuse_bytes_that_are_no_request) {
  start();
  for (const std::string& text : {std::string("\xff"), std::string("a\xc3")}) {
    ClientRequest request;
    request.prompt = text;
    const auto output = client_->generate(request, {});
    EXPECT_EQ(output.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(output.status().message()),
                ::testing::HasSubstr("that are not a dhisparse.v1.GenerateRequest"));
    EXPECT_EQ(client_->tokenize(text, absl::Seconds(60)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace dhs
