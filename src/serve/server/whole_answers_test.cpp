// Answers that come at once, over HTTP: those that would be too large, and those that are only large.
#include "serve/server/serving_test.hpp"

namespace tutti::serve {
namespace {

TEST_F(Serving, MoreLogprobsThanAWholeAnswerHasAreRefusedBeforeTheyAreComputed) {
  serve();
  const std::string many = R"({"prompt":"a","n":128,"max_tokens":1000,"logprobs":20,"ignore_eos":true)";
  const auto refused = post("/v1/completions", many + "}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("stream it, or ask for fewer"), std::string::npos) << refused.body;
  EXPECT_NE(refused.body.find("\"param\":\"logprobs\""), std::string::npos) << refused.body;
  EXPECT_EQ(server->counts().batch.generated_tokens, 0);
  const auto talk = post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"a"}],"n":128,"max_tokens":1000,"logprobs":true,"top_logprobs":20})");
  EXPECT_EQ(talk.status, 400) << talk.body;
  const RawClient streams(server->port());
  streams.post("/v1/completions", many + R"(,"stream":true})");
  EXPECT_TRUE(streams.read_until("data: ").starts_with("HTTP/1.1 200"));
}

TEST_F(Serving, ALargeAnswerIsWholeThoughItIsWrittenBesideTheLoop) {
  serve();
  const auto answer = post(
      "/v1/completions", R"({"prompt":"a","n":8,"max_tokens":200,"logprobs":20,"ignore_eos":true,"seed":1})");
  ASSERT_EQ(answer.status, 200) << answer.body.substr(0, 500);
  EXPECT_GT(answer.body.size(), std::size_t{1} << 18);
  const json::Value root = parsed(answer.body);
  const json::Array& choices = *root.find("choices")->list();
  ASSERT_EQ(choices.size(), 8U);
  for (const json::Value& choice : choices)
    EXPECT_EQ(choice.find("logprobs")->find("tokens")->list()->size(), 200U);
  EXPECT_NE(get("/metrics").body.find("tutti_engine_responses_total{status=\"200\"} 1\n"), std::string::npos);
}

}  // namespace
}  // namespace tutti::serve
