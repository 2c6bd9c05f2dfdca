// Requests for many vectors, over HTTP: they come in turns, and keep nobody out.
#include "serve/api/ask.hpp"
#include "serve/server/serving_test.hpp"

namespace tutti::serve {
namespace {

// Texts that differ, each some tokens long; every seventh is the same.
std::string inputs(std::size_t count, const std::string& begin = "text ") {
  std::string list = "[";
  for (std::size_t nth = 0; nth < count; ++nth)
    list += (nth == 0 ? "\"" : ",\"") + begin + std::to_string(nth % 7) + "\"";
  return list + "]";
}

TEST_F(Serving, ThousandsOfInputsAreAnsweredInOrderWithFewPlaces) {
  auto few = settings();
  few.batch.requests_max = 5;
  serve(few);
  const auto answer = post("/v1/embeddings", "{\"input\":" + inputs(api::inputs_max) + "}");
  ASSERT_EQ(answer.status, 200) << answer.body.substr(0, 500);
  const json::Value root = parsed(answer.body);
  const json::Array& data = *root.find("data")->list();
  ASSERT_EQ(data.size(), api::inputs_max);
  EXPECT_EQ(*root.find("usage")->find("prompt_tokens"), 6 * 2048);
  const json::Value alone = parsed(post("/v1/embeddings", R"({"input":"text 3"})").body);
  EXPECT_EQ(*data[3].find("embedding"), *(*alone.find("data")->list())[0].find("embedding"));
  for (std::size_t nth = 0; nth < data.size(); ++nth) {
    EXPECT_EQ(*data[nth].find("index"), nth);
    EXPECT_EQ(*data[nth].find("embedding"), *data[nth % 7].find("embedding")) << nth;
  }
  EXPECT_FALSE(*data[0].find("embedding") == *data[1].find("embedding"));
  EXPECT_EQ(post("/v1/embeddings", "{\"input\":" + inputs(api::inputs_max + 1) + "}").status, 400);
  EXPECT_TRUE(is_idle());
}

TEST_F(Serving, OthersGetInBetweenThousandsOfInputs) {
  auto few = settings();
  few.batch.requests_max = 8;
  serve(few);
  const RawClient many(server->port(), 0, "127.0.0.2");
  many.post("/v1/embeddings", "{\"input\":" + inputs(api::inputs_max, std::string(400, 'a')) + "}");
  wait_until([&] { return server->counts().batch.finished > 0; });
  for (int nth = 0; nth < 3; ++nth) {
    const auto between = post("/v1/completions", R"({"prompt":"b","max_tokens":2})");
    EXPECT_EQ(between.status, 200) << between.body;
    EXPECT_EQ(post("/v1/embeddings", "{\"input\":" + inputs(20) + "}").status, 200);
  }
  EXPECT_FALSE(many.has_answer());
  const BatchCounts counts = server->counts().batch;
  EXPECT_LE(counts.requests, 6) << "an address has three quarters of the places";
}

TEST_F(Serving, WhoLeavesThousandsOfInputsFreesAllOfThem) {
  serve();
  {
    const RawClient many(server->port());
    many.post("/v1/embeddings", "{\"input\":" + inputs(api::inputs_max, std::string(400, 'a')) + "}");
    wait_until([&] { return server->counts().batch.finished > 0; });
  }
  wait_until([&] { return is_idle(); });
  EXPECT_EQ(post("/v1/embeddings", R"({"input":"after"})").status, 200);
  EXPECT_LT(server->counts().batch.finished, 1'000) << "nobody wanted the rest";
}

TEST_F(Serving, WhereNoneOfManyInputsFindsAPlaceThatIsSaid) {
  auto few = settings();
  few.batch.requests_max = 1;
  serve(few);
  const RawClient first(server->port());
  first.post("/v1/completions",
             R"({"prompt":"a","stream":true,"max_tokens":4000,"ignore_eos":true,"temperature":0})");
  first.read_until("data: ");
  const auto refused = post("/v1/embeddings", "{\"input\":" + inputs(3) + "}");
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.retry_after_seconds, 1);
}

// One input that cannot be computed is the answer, and the others are computed no further.
TEST_F(Serving, ManyInputsEndWithTheModelThatComputesThem) {
  listen(settings());
  auto loaded = load(folder->path(),
                     {.threads = 1, .cache_bytes = 16 << 20, .step_tokens_max = 256, .step_rows_max = 8});
  ASSERT_TRUE(loaded) << loaded.error().text();
  const auto is_dead = std::make_shared<std::atomic<bool>>(false);
  loaded->model = std::make_unique<Mortal>(std::move(loaded->model), is_dead);
  server->start(std::move(*loaded));
  const RawClient many(server->port());
  many.post("/v1/embeddings", "{\"input\":" + inputs(api::inputs_max, std::string(400, 'a')) + "}");
  wait_until([&] { return server->counts().batch.finished > 0; });
  *is_dead = true;
  const std::string told = many.read_until("}}");
  EXPECT_TRUE(told.starts_with("HTTP/1.1 503")) << told;
  thread.join();
}

TEST_F(Serving, APromptThatDoesNotFitIsToldByItsCode) {
  serve(settings(), 64);
  const std::string text(100, 'a');
  const std::string far(10'000, 'a');  // longer than any that fits, whatever its tokens are
  for (const std::string& prompt : {text, far}) {
    const auto expect_code = [&](const std::string& path, const std::string& body, const std::string& param) {
      const auto refused = post(path, body);
      EXPECT_EQ(refused.status, 400) << refused.body;
      const json::Value root = parsed(refused.body);
      const json::Value& error = *root.find("error");
      EXPECT_EQ(*error.find("code"), "context_length_exceeded") << refused.body;
      EXPECT_EQ(*error.find("type"), "invalid_request_error");
      EXPECT_EQ(*error.find("param"), param);
    };
    expect_code("/v1/completions", R"({"prompt":")" + prompt + "\"}", "prompt");
    expect_code("/v1/completions", R"({"stream":true,"prompt":")" + prompt + "\"}", "prompt");
    expect_code("/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + prompt + "\"}]}",
                "messages");
    expect_code("/v1/embeddings", R"({"input":["a",")" + prompt + "\"]}", "input");
  }
  const auto greedy = post("/v1/completions", R"({"prompt":"a","max_tokens":100})");
  EXPECT_NE(greedy.body.find("context_length_exceeded"), std::string::npos) << greedy.body;
  const auto wrong = post("/v1/completions", R"({"prompt":"a","temperature":9})");
  EXPECT_NE(wrong.body.find("\"code\":null"), std::string::npos) << wrong.body;
  const auto unknown = post("/v1/completions", R"({"model":"none","prompt":")" + text + "\"}");
  EXPECT_EQ(unknown.status, 404) << unknown.body;
}

}  // namespace
}  // namespace tutti::serve
