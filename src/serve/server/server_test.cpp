#include "serve/server/server.hpp"

#include <cmath>
#include <filesystem>
#include <numeric>

#include "serve/batch/choose.hpp"
#include "serve/lora/made_adapter_test.hpp"
#include "serve/server/serving_test.hpp"

namespace tutti::serve {
namespace {

const std::string endless = R"("max_tokens":4000,"ignore_eos":true,"temperature":0)";

TEST_F(Serving, ACompletionIsTheSameWhicheverWayItIsAsked) {
  serve();
  const std::string fields = R"("prompt":"Once","max_tokens":12,"temperature":0,"ignore_eos":true)";
  const auto whole = post("/v1/completions", "{" + fields + "}");
  ASSERT_EQ(texts(whole).size(), 1U);
  const std::string text = texts(whole)[0];
  EXPECT_EQ(texts(post("/openai/v1/completions", "{" + fields + "}"))[0], text);
  EXPECT_EQ(texts(post("/v1/completions", "{" + fields + R"(,"echo":true,"model":"tiny"})"))[0],
            "Once" + text);
  const auto same = post("/v1/completions",
                         R"({"prompt":[79,110,99,101],"max_tokens":12,"temperature":0,"ignore_eos":true})");
  EXPECT_EQ(texts(same)[0], text) << "the tokens of \"Once\"";
  const auto two =
      post("/v1/completions",
           R"({"prompt":["Once","Twice"],"max_tokens":12,"temperature":0,"ignore_eos":true,"n":2})");
  ASSERT_EQ(texts(two).size(), 4U);
  EXPECT_EQ(texts(two)[0], text);
  EXPECT_EQ(texts(two)[1], text);
  EXPECT_EQ(texts(two)[2], texts(two)[3]);
  const json::Value usage = *parsed(whole.body).find("usage");
  EXPECT_EQ(*usage.find("prompt_tokens"), 4);
  EXPECT_EQ(*usage.find("completion_tokens"), 12);

  std::string streamed;
  bool saw_usage = false;
  auto own = client();
  const auto done = own.events(
      "POST", "/v1/completions", "{" + fields + R"(,"stream":true,"stream_options":{"include_usage":true}})",
      [&](std::string_view, std::string_view data) {
        if (data == "[DONE]") return true;
        const json::Value root = parsed(std::string(data));
        for (const json::Value& choice : *root.find("choices")->list())
          streamed += *choice.find("text")->text();
        saw_usage = saw_usage || root.find("usage") != nullptr;
        return true;
      },
      [] { return true; });
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_EQ(streamed, text);
  EXPECT_TRUE(saw_usage);
}

TEST_F(Serving, AConversationIsAnsweredWholeAndAsAStream) {
  serve();
  const std::string fields =
      R"("messages":[{"role":"user","content":"hello"}],"max_tokens":10,"temperature":0,"ignore_eos":true,
         "logprobs":true,"top_logprobs":2)";
  const auto whole = post("/v1/chat/completions", "{" + fields + "}");
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::Value root = parsed(whole.body);
  const json::Value choice = (*root.find("choices")->list())[0];
  const std::string text = *choice.find("message")->find("content")->text();
  EXPECT_EQ(choice.find("logprobs")->find("content")->list()->size(), 10U);
  EXPECT_EQ((*choice.find("logprobs")->find("content")->list())[0].find("top_logprobs")->list()->size(), 2U);
  EXPECT_EQ(*choice.find("finish_reason"), "length");

  std::string streamed;
  std::string roles;
  std::string reason;
  std::size_t logprobs = 0;
  auto own = client();
  const auto done = own.events(
      "POST", "/v1/chat/completions", "{" + fields + R"(,"stream":true})",
      [&](std::string_view, std::string_view data) {
        if (data == "[DONE]") return true;
        const json::Value part = (*parsed(std::string(data)).find("choices")->list())[0];
        const json::Value& delta = *part.find("delta");
        if (delta.find("role") != nullptr) roles += *delta.find("role")->text();
        if (delta.find("content") != nullptr) streamed += *delta.find("content")->text();
        if (!part.find("finish_reason")->is_null()) reason += *part.find("finish_reason")->text();
        if (!part.find("logprobs")->is_null())
          logprobs += part.find("logprobs")->find("content")->list()->size();
        return true;
      },
      [] { return true; });
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(roles, "assistant");
  EXPECT_EQ(reason, "length");
  EXPECT_EQ(logprobs, 10U);
}

TEST_F(Serving, FormsHold) {
  serve();
  const auto json_text = texts(post(
      "/v1/completions",
      R"({"prompt":"x","max_tokens":200,"seed":3,"response_format":{"type":"json_schema","json_schema":{"schema":
         {"type":"object","properties":{"b":{"enum":["yes","no"]},"a":{"type":"boolean"}},"required":["b","a"]}}}})"));
  ASSERT_EQ(json_text.size(), 1U);
  const json::Value value = parsed(json_text[0]);
  ASSERT_NE(value.find("a"), nullptr);
  EXPECT_TRUE(value.find("a")->boolean());
  EXPECT_LT(json_text[0].find("\"b\""), json_text[0].find("\"a\"")) << "in the order of the schema";
  for (int seed = 0; seed < 3; ++seed) {
    const auto word = texts(
        post("/v1/completions", R"({"prompt":"x","max_tokens":20,"regex":"(red|blue)-[0-9]{3}","seed":)" +
                                    std::to_string(seed) + "}"));
    ASSERT_EQ(word.size(), 1U);
    EXPECT_TRUE(word[0].starts_with("red-") || word[0].starts_with("blue-")) << word[0];
    EXPECT_EQ(word[0].size(), word[0].find('-') + 4) << word[0];
  }
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x","regex":"(unclosed"})").status, 400);
  EXPECT_EQ(
      post("/v1/completions",
           R"({"prompt":"x","response_format":{"type":"json_schema","json_schema":{"schema":{"not":{}}}}})")
          .status,
      400);
}

TEST_F(Serving, SeedsAndBiasesAndStopsAreObeyed) {
  serve();
  const auto seeded = [&](int seed) {
    return texts(post("/v1/completions", R"({"prompt":"a","max_tokens":30,"ignore_eos":true,"seed":)" +
                                             std::to_string(seed) + "}"))[0];
  };
  EXPECT_EQ(seeded(5), seeded(5));
  EXPECT_NE(seeded(5), seeded(6));
  const auto biased = texts(
      post("/v1/completions", R"({"prompt":"a","max_tokens":5,"temperature":0,"logit_bias":{"122":100}})"));
  EXPECT_EQ(biased[0], "zzzzz");
  const auto stopped =
      post("/v1/completions",
           R"({"prompt":"a","max_tokens":5,"temperature":0,"logit_bias":{"122":100},"stop":"zz"})");
  EXPECT_EQ(texts(stopped)[0], "");
  EXPECT_NE(stopped.body.find("\"finish_reason\":\"stop\""), std::string::npos);
}

TEST_F(Serving, WhatIsNoNumberIsAnErrorAndNotAnAnswer) {
  lora::MadeAdapter made(open_source(folder->path())->shape, {.seed = 1});
  for (auto& tensor : made.tensors) {
    for (float& number : tensor.values) number *= 1e25F;
  }
  made.write_tensors();
  listen(settings());
  load_model(0, folder->path(), {{"wild", made.path()}});
  const std::string model = R"("model":"wild")";
  const std::string prompt = "{" + model + R"(,"prompt":"Once","max_tokens":4)";
  const std::vector<std::pair<std::string, std::string>> asked{
      {"/v1/completions", prompt + R"(,"temperature":0})"},
      {"/v1/completions", prompt + R"(,"temperature":1,"logprobs":2})"},
      {"/v1/completions", prompt + R"(,"echo":true,"logprobs":1})"},
      {"/v1/completions", prompt + R"(,"regex":"yes|no"})"},
      {"/v1/chat/completions", "{" + model + R"(,"messages":[{"role":"user","content":"Once"}]})"},
      {"/v1/embeddings", "{" + model + R"(,"input":"Once"})"}};
  for (const auto& [path, body] : asked) {
    const auto answer = post(path, body);
    EXPECT_EQ(answer.status, 500) << body << answer.body;
    EXPECT_NE(answer.body.find("no number"), std::string::npos) << answer.body;
    EXPECT_EQ(answer.body.find("choices"), std::string::npos) << answer.body;
  }
  const RawClient raw(server->port());
  raw.post("/v1/completions", prompt + R"(,"stream":true})");
  const std::string streamed = raw.read_until("no number");
  EXPECT_NE(streamed.find("\"error\""), std::string::npos) << streamed;
  EXPECT_EQ(texts(post("/v1/completions", R"({"prompt":"Once","max_tokens":4})")).size(), 1U)
      << "the model itself is sound";
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(Serving, AnAdapterIsChosenByTheNameOfTheModel) {
  const model::Shape shape = open_source(folder->path())->shape;
  const lora::MadeAdapter one(shape, {.seed = 1});
  const lora::MadeAdapter two(shape, {.rank = 9, .seed = 2, .targets = {"q_proj", "o_proj"}});
  // Longer than two blocks, so that there is something to be found again.
  const std::string prompt(40, 'a');
  const auto ask = [&](const std::string& model) {
    return post("/v1/completions", R"({"prompt":")" + prompt + R"(","max_tokens":12,"temperature":0,)" +
                                       R"("ignore_eos":true,"model":")" + model + "\"}");
  };
  const auto cached = [&](const net::Response& answer) {
    const json::Value root = parsed(answer.body);
    return *root.find("usage")->find("prompt_tokens_details")->find("cached_tokens");
  };
  listen(settings());
  load_model(0, folder->path(), {{"one", one.path()}, {"b/two", two.path()}});
  const auto plain = ask("tiny");
  const auto first = ask("one");
  const auto second = ask("b/two");
  EXPECT_NE(texts(plain), texts(first));
  EXPECT_NE(texts(plain), texts(second));
  EXPECT_NE(texts(first), texts(second));
  EXPECT_EQ(texts(ask("")), texts(plain)) << "who names nothing means the model itself";
  EXPECT_EQ(*parsed(first.body).find("model"), "one");
  EXPECT_EQ(*parsed(second.body).find("model"), "b/two");
  // Keys and values of one adapter are not another's.
  EXPECT_EQ(cached(first), 0);
  EXPECT_EQ(cached(second), 0);
  const auto again = ask("one");
  EXPECT_EQ(cached(again), 32);
  EXPECT_EQ(texts(again), texts(first));

  const json::Value listed = parsed(get("/v1/models").body);
  const json::Array& models = *listed.find("data")->list();
  ASSERT_EQ(models.size(), 3U);
  EXPECT_EQ(*models[0].find("id"), "tiny");
  EXPECT_EQ(models[0].find("parent"), nullptr);
  EXPECT_EQ(*models[2].find("id"), "b/two");
  EXPECT_EQ(*models[2].find("parent"), "tiny");
  EXPECT_EQ(get("/v1/models/b/two").status, 200);
  const auto unknown = ask("three");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("model_not_found"), std::string::npos);
  EXPECT_NE(unknown.body.find("/v1/models lists"), std::string::npos) << unknown.body;
  const auto chat = post("/v1/chat/completions",
                         R"({"model":"one","messages":[{"role":"user","content":"hi"}],"max_tokens":4})");
  EXPECT_EQ(chat.status, 200) << chat.body;

  // All at once, and in another order of adapters, each is what it was.
  TearDown();
  listen(settings());
  load_model(0, folder->path(), {{"b/two", two.path()}, {"one", one.path()}});
  std::vector<std::thread> askers;
  std::vector<std::vector<std::string>> answers(9);
  for (std::size_t at = 0; at < answers.size(); ++at) {
    askers.emplace_back([&, at] {
      answers[at] = texts(ask(at % 3 == 0 ? "tiny" : at % 3 == 1 ? "one" : "b/two"));
    });
  }
  for (std::thread& asker : askers) asker.join();
  for (std::size_t at = 0; at < answers.size(); ++at)
    EXPECT_EQ(answers[at], texts(at % 3 == 0 ? plain : at % 3 == 1 ? first : second)) << at;
}

TEST_F(Serving, EmbeddingsAreTheSameForTheSameText) {
  serve();
  const auto answer = post("/v1/embeddings", R"({"input":["one text","another","one text"],"model":"tiny"})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::Value root = parsed(answer.body);
  const json::Array& data = *root.find("data")->list();
  ASSERT_EQ(data.size(), 3U);
  EXPECT_EQ(data[0].find("embedding")->list()->size(), 64U);
  EXPECT_EQ(*data[0].find("embedding"), *data[2].find("embedding"));
  EXPECT_FALSE(*data[0].find("embedding") == *data[1].find("embedding"));
  EXPECT_EQ(*root.find("usage")->find("prompt_tokens"), 8 + 7 + 8);
  EXPECT_EQ(post("/v1/embeddings", R"({"input":7})").status, 400);
}

// A long text comes in parts, beside others, and again when all of it is in the cache; and its embedding is
// what all of it at once gives, row by row.
TEST_F(Serving, AnEmbeddingIsTheMeanWhereTheFolderSaysSo) {
  const cpu::TinyFolder own(257, context, tokenizer::Tokenizer::bytes().json());
  std::filesystem::create_directory(own.path() + "/1_Pooling");
  own.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens":true})");
  listen(settings());
  load_model(0, own.path());
  std::string text;
  for (int at = 0; at < 700; ++at) text += static_cast<char>('a' + at * 7 % 26);
  const auto embedding = [&](const std::string& input, std::size_t nth) {
    const auto answer = post("/v1/embeddings", "{\"input\":" + input + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    std::vector<double> numbers;
    const json::Value root = parsed(answer.body);
    for (const json::Value& number : *(*root.find("data")->list())[nth].find("embedding")->list())
      numbers.push_back(*number.number());
    return numbers;
  };
  const auto first = embedding("\"" + text + "\"", 0);
  EXPECT_EQ(embedding("\"" + text + "\"", 0), first);
  EXPECT_EQ(embedding("[\"beside\",\"" + text + "\",\"and behind\"]", 1), first);

  auto alone = load(own.path(),
                    {.threads = 1, .cache_bytes = 16 << 20, .step_tokens_max = 1024, .step_rows_max = 1024});
  ASSERT_TRUE(alone);
  std::vector<Token> tokens;
  for (const std::uint32_t token : alone->source.tokenizer.encode(text, {.special = true, .frame = true}))
    tokens.push_back(static_cast<Token>(token));
  std::vector<BlockId> blocks(tokens.size() / 16 + 1);
  std::iota(blocks.begin(), blocks.end(), 0);
  const auto rows = static_cast<std::int32_t>(tokens.size());
  const Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = rows};
  ASSERT_TRUE(alone->model->step({&chunk, 1}));
  std::vector<double> mean(first.size());
  for (std::int32_t row = 0; row < rows; ++row) {
    const Choice choice{.row = row, .pooling = Pooling::last};
    const auto chosen = alone->model->choose({&choice, 1});
    ASSERT_TRUE(chosen);
    for (std::size_t at = 0; at < mean.size(); ++at)
      mean[at] += static_cast<double>(chosen->front().hidden[at]);
  }
  double squares = 0;
  for (const double number : mean) squares += number * number;
  for (std::size_t at = 0; at < mean.size(); ++at)
    EXPECT_NEAR(first[at], mean[at] / std::sqrt(squares), 1e-6);
}

// What a prompt's tokens are worth is what all of it at once gives, however many rows a step has, whatever is
// in the cache, whole and as a stream.
TEST_F(Serving, AnEchoHasTheLogprobsOfItsPrompt) {
  serve();
  std::string prompt;
  for (int at = 0; at < 50; ++at) prompt += static_cast<char>('a' + at * 7 % 26);
  const std::string fields = "{\"prompt\":\"" + prompt +
                             R"(","echo":true,"logprobs":2,"temperature":0,"ignore_eos":true,"max_tokens":)";
  post("/v1/completions", fields + "3}");  // now it is in the cache
  const auto whole = post("/v1/completions", fields + R"(3,"n":2})");
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::Value root = parsed(whole.body);
  const json::Array& choices = *root.find("choices")->list();
  ASSERT_EQ(choices.size(), 2U);
  EXPECT_EQ(choices[0].find("text")->text()->substr(0, 50), prompt);
  EXPECT_EQ(*choices[0].find("logprobs"), *choices[1].find("logprobs")) << "both are greedy";
  const json::Value& logprobs = *choices[0].find("logprobs");
  const json::Array& values = *logprobs.find("token_logprobs")->list();
  ASSERT_EQ(values.size(), 53U);
  EXPECT_TRUE(values[0].is_null());
  EXPECT_EQ((*logprobs.find("tokens")->list())[1], json::Value(prompt.substr(1, 1)));
  EXPECT_EQ((*logprobs.find("text_offset")->list())[49], json::Value(49));

  auto alone = load(folder->path(),
                    {.threads = 1, .cache_bytes = 16 << 20, .step_tokens_max = 64, .step_rows_max = 64});
  ASSERT_TRUE(alone);
  const std::vector<Token> tokens(prompt.begin(), prompt.end());
  const std::vector<BlockId> blocks{3, 2, 1, 0};
  const Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = 50};
  ASSERT_TRUE(alone->model->step({&chunk, 1}));
  for (std::int32_t row = 0; row < 49; ++row) {
    const auto logits = alone->model->logits(row);
    ASSERT_TRUE(logits);
    const float expected = (*logits)[static_cast<std::size_t>(prompt[static_cast<std::size_t>(row) + 1])] -
                           likeliest(*logits, 0).log_sum;
    EXPECT_EQ(*values[static_cast<std::size_t>(row) + 1].number(), static_cast<double>(expected));
  }

  std::string streamed;
  json::Array streamed_values;
  auto own = client();
  const auto done = own.events(
      "POST", "/v1/completions", fields + R"(3,"stream":true})",
      [&](std::string_view, std::string_view data) {
        if (data == "[DONE]") return true;
        const json::Value event = parsed(std::string(data));
        for (const json::Value& choice : *event.find("choices")->list()) {
          streamed += *choice.find("text")->text();
          if (choice.find("logprobs")->is_null()) continue;
          for (const json::Value& value : *choice.find("logprobs")->find("token_logprobs")->list())
            streamed_values.push_back(value);
        }
        return true;
      },
      [] { return true; });
  EXPECT_TRUE(done);
  EXPECT_EQ(streamed, *choices[0].find("text")->text());
  EXPECT_EQ(streamed_values, values);

  const auto nothing = post("/v1/completions", fields + "0}");
  EXPECT_EQ(texts(nothing)[0], prompt) << "the prompt alone";
  const json::Value said = parsed(nothing.body);
  EXPECT_EQ((*said.find("choices")->list())[0].find("logprobs")->find("tokens")->list()->size(), 50U);
  EXPECT_EQ(*said.find("usage")->find("completion_tokens"), 0);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x","max_tokens":0})").status, 400)
      << "nothing is no answer";
  std::string many = "[\"" + std::string(1500, 'x') + "\"";
  for (int at = 0; at < 9; ++at) many += ",\"" + std::string(1500, 'x') + "\"";
  const auto refused = post("/v1/completions", "{\"prompt\":" + many + R"(],"echo":true,"logprobs":20})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("\"param\":\"prompt\""), std::string::npos) << refused.body;
}

TEST_F(Serving, WhileItsModelIsStartedAgainItSaysSo) {
  const auto is_dead = std::make_shared<std::atomic<bool>>(false);
  const auto may_open = std::make_shared<std::atomic<bool>>(false);
  const LoadOptions options{
      .threads = 1, .cache_bytes = 16 << 20, .step_tokens_max = 256, .step_rows_max = 8};
  auto loaded = load(folder->path(), options);
  ASSERT_TRUE(loaded);
  loaded->model = std::make_unique<Mortal>(std::move(loaded->model), is_dead);
  loaded->reopen = [=, from = loaded->source]() -> Result<std::unique_ptr<Model>> {
    while (!*may_open) std::this_thread::yield();
    auto inner = make_model(from, options);
    if (!inner) return std::move(inner).error();
    *is_dead = false;
    return std::unique_ptr<Model>(std::make_unique<Mortal>(std::move(*inner), is_dead));
  };
  listen(settings());
  server->start(std::move(*loaded));
  const std::string body = R"({"prompt":"Once","max_tokens":6,"temperature":0,"ignore_eos":true})";
  const std::string before = texts(post("/v1/completions", body))[0];

  // Whoever waits for an answer hears it, and so does whoever comes.
  const RawClient waiting(server->port());
  waiting.post("/v1/completions", R"({"prompt":"x",)" + endless + "}");
  wait_until([&] { return server->counts().batch.running > 0; });
  *is_dead = true;
  const std::string lost = waiting.read_until("Retry-After");
  EXPECT_TRUE(lost.starts_with("HTTP/1.1 503")) << lost;
  wait_until([&] { return server->counts().away; });
  EXPECT_EQ(get("/health").status, 503);
  const RawClient refused(server->port());
  refused.post("/v1/completions", body);
  EXPECT_TRUE(refused.read_until("Retry-After").starts_with("HTTP/1.1 503"));
  EXPECT_NE(get("/metrics").body.find("tutti_engine_away 1"), std::string::npos);

  *may_open = true;
  wait_until([&] { return !server->counts().away; });
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(texts(post("/v1/completions", body))[0], before);
}

TEST_F(Serving, WithAModelThatNobodyOpensAgainItEndsWhenAllAreTold) {
  const auto is_dead = std::make_shared<std::atomic<bool>>(false);
  auto loaded = load(folder->path(),
                     {.threads = 1, .cache_bytes = 16 << 20, .step_tokens_max = 256, .step_rows_max = 8});
  ASSERT_TRUE(loaded);
  loaded->model = std::make_unique<Mortal>(std::move(loaded->model), is_dead);
  listen(settings());
  server->start(std::move(*loaded));
  const RawClient waiting(server->port());
  waiting.post("/v1/completions", R"({"prompt":"x","stream":true,)" + endless + "}");
  waiting.read_until("data: ");
  *is_dead = true;
  const std::string dead = "this could not be answered: it is dead";
  EXPECT_NE(waiting.read_until(dead).find(dead), std::string::npos);
  thread.join();
  ASSERT_TRUE(server->problem());
  EXPECT_EQ(server->problem()->text(), "it is dead");
}

TEST_F(Serving, PagesAndWhatIsNone) {
  serve();
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_NE(get("/v1/models").body.find("\"id\":\"tiny\""), std::string::npos);
  EXPECT_EQ(get("/v1/models/tiny").status, 200);
  EXPECT_EQ(get("/v1/models/other").status, 404);
  EXPECT_EQ(get("/").status, 404);
  EXPECT_EQ(get("/v1/completions").status, 405);
  EXPECT_EQ(post("/health", "").status, 405);
  const std::string too_long(2 * context, 'a');
  EXPECT_EQ(post("/v1/completions", R"({"model":"other","prompt":")" + too_long + R"("})").status, 404)
      << "whether it would fit is not the question";
  const auto other = post("/v1/completions", R"({"prompt":"a","model":"other"})");
  EXPECT_EQ(other.status, 404);
  EXPECT_NE(other.body.find("model_not_found"), std::string::npos);
  EXPECT_NE(other.body.find("model: there is no model 'other' here; the one that is here is 'tiny'"),
            std::string::npos)
      << other.body;
  EXPECT_EQ(post("/v1/nothing", R"({"prompt":"a"})").status, 404);
  EXPECT_EQ(post("/v1/models", R"({"prompt":"a"})").status, 405);
  const auto long_prompt = post("/v1/completions", R"({"prompt":")" + std::string(5000, 'a') + "\"}");
  EXPECT_EQ(long_prompt.status, 400) << "it does not fit into the context";
  // One that cannot fit whatever its tokens are is not even cut into them: that takes its time.
  const auto hopeless =
      post("/v1/completions", R"({"prompt":")" + std::string(400'000, 'a') + R"(","max_tokens":1})");
  EXPECT_EQ(hopeless.status, 400);
  EXPECT_NE(hopeless.body.find("is longer than any that fits into 4096 tokens"), std::string::npos)
      << hopeless.body;
  EXPECT_NE(hopeless.body.find("\"param\":\"prompt\""), std::string::npos) << hopeless.body;
  EXPECT_NE(long_prompt.body.find("\"param\":\"prompt\""), std::string::npos) << long_prompt.body;
  ASSERT_EQ(texts(post("/v1/completions", R"({"prompt":"abc","max_tokens":2,"ignore_eos":true})")).size(),
            1U);
  const std::string metrics = get("/metrics").body;
  EXPECT_NE(metrics.find("tutti_engine_generated_tokens_total 2\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("tutti_engine_first_token_seconds_count 1\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("tutti_engine_responses_total{status=\"400\"} 2\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("tutti_engine_blocks_used 0\n"), std::string::npos) << metrics;
}

TEST_F(Serving, BeforeTheModelIsThereItSaysSo) {
  listen(settings());
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/v1/models").status, 503);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a"})").status, 503);
  EXPECT_EQ(get("/metrics").status, 200);
  load_model();
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(Serving, WithAKeyOnlyWhoHasItMayAsk) {
  auto with_key = settings();
  with_key.key = "0123456789abcdef";
  serve(with_key);
  EXPECT_EQ(get("/v1/models").status, 401);
  EXPECT_EQ(get("/metrics").status, 401);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a"})").status, 401);
  EXPECT_EQ(client("0123456789abcdeF").request("GET", "/v1/models")->status, 401);
  EXPECT_EQ(client("0123456789abcdef").request("GET", "/v1/models")->status, 200);
  EXPECT_EQ(get("/health").status, 200) << "whoever watches it needs no key";
}

TEST(ServingNobody, WithoutAKeyItListensHereAlone) {
  for (const char* address : {"0.0.0.0", "::", "192.0.2.1"}) {
    ServerSettings open;
    open.address = address;
    const auto refused = Server::listen(open);
    ASSERT_FALSE(refused) << address;
    EXPECT_EQ(refused.error().code(), ErrorCode::invalid);
  }
}

TEST_F(Serving, WhoLeavesAStreamFreesItsBlocks) {
  serve();
  {
    const RawClient leaves(server->port());
    leaves.post("/v1/completions", R"({"prompt":"a","stream":true,)" + endless + "}");
    leaves.read_until("data: ");
    EXPECT_GT(server->counts().batch.blocks_used, 0);
  }
  wait_until([&] { return is_idle(); });
  EXPECT_LT(server->counts().batch.generated_tokens, 4000) << "it was cancelled, not finished";
  EXPECT_NE(get("/metrics").body.find("tutti_engine_cut_off_total 1\n"), std::string::npos);
}

TEST_F(Serving, WhoLeavesBeforeTheAnswerFreesItsBlocks) {
  serve();
  {
    const RawClient leaves(server->port());
    leaves.post("/v1/completions", R"({"prompt":"a",)" + endless + "}");
    wait_until([&] { return server->counts().batch.blocks_used > 0; });
  }
  wait_until([&] { return is_idle(); });
  EXPECT_LT(server->counts().batch.generated_tokens, 4000);
}

TEST_F(Serving, WhoDoesNotReadIsCutOff) {
  serve();
  // Logprobs make each token a few kilobytes, more than the system keeps for a reader with a small window.
  const RawClient silent(server->port(), 4096);
  silent.post(
      "/v1/completions",
      R"({"prompt":"a","stream":true,"n":8,"logprobs":20,"max_tokens":4000,"ignore_eos":true,"seed":1})");
  wait_until([&] { return server->counts().batch.requests > 0; });
  wait_until([&] { return is_idle(); });
  EXPECT_LT(server->counts().batch.generated_tokens, 8 * 4000);
  wait_until(
      [&] { return get("/metrics").body.find("tutti_engine_cut_off_total 1\n") != std::string::npos; });
}

// A form that takes all the work that one may take, and is like no other.
std::string heavy_form(int nth) {
  return R"({"prompt":"a","max_tokens":1,"regex":"(.?){)" + std::to_string(300 + nth) + R"(}x"})";
}

TEST_F(Serving, WhoAsksForNoFormDoesNotWaitBehindForms) {
  serve();
  std::vector<std::unique_ptr<RawClient>> heavy;
  for (int nth = 0; nth < 40; ++nth) {
    heavy.push_back(std::make_unique<RawClient>(server->port()));
    heavy.back()->post("/v1/completions", heavy_form(nth));
  }
  wait_until([&] { return heavy.front()->has_answer(); });
  texts(post("/v1/completions", R"({"prompt":"b","max_tokens":1})"));
  EXPECT_FALSE(heavy.back()->has_answer());
  heavy.clear();  // what nobody waits for any more holds up nobody
  const auto form = post("/v1/completions", R"({"prompt":"b","max_tokens":1,"regex":"[ab]"})");
  EXPECT_EQ(form.status, 200) << form.body;
}

TEST_F(Serving, ASchemaOfManyPatternsIsRefusedAsOne) {
  serve();
  std::string properties;
  for (int nth = 0; nth < 12; ++nth)
    properties += (nth == 0 ? "\"p" : ",\"p") + std::to_string(nth) +
                  R"(":{"type":"string","pattern":"(a?){)" + std::to_string(200 + nth) + R"(}a{200}"})";
  const auto refused = post("/v1/completions", R"({"prompt":"x","response_format":{"type":"json_schema",)"
                                               R"("json_schema":{"name":"x","schema":{"type":"object",)"
                                               R"("properties":{)" +
                                                   properties + "}}}}}");
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_NE(refused.body.find("too much work"), std::string::npos) << refused.body;
}

TEST_F(Serving, TooManyHear429AndWhen) {
  auto few = settings();
  few.batch.requests_max = 1;
  serve(few);
  const RawClient first(server->port());
  first.post("/v1/completions", R"({"prompt":"a","stream":true,)" + endless + "}");
  first.read_until("data: ");
  const RawClient second(server->port());
  second.post("/v1/completions", R"({"prompt":"b"})");
  const std::string refused = second.read_until("}}");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 429")) << refused;
  EXPECT_NE(refused.find("Retry-After: 1"), std::string::npos) << refused;
  EXPECT_NE(refused.find("rate_limit_error"), std::string::npos) << refused;
}

TEST_F(Serving, OneAddressFillsNeitherTheConnectionsNorTheQueue) {
  auto few = settings();
  few.connections_max = 16;
  few.batch.requests_max = 8;
  serve(few);
  const std::string greedy = "127.0.0.2";
  std::vector<std::unique_ptr<RawClient>> streams;
  for (int at = 0; at < 6; ++at) {
    streams.push_back(std::make_unique<RawClient>(server->port(), 0, greedy));
    streams.back()->post("/v1/completions", R"({"prompt":"a","stream":true,)" + endless + "}");
    EXPECT_NE(streams.back()->read_until("data: ").find("data: "), std::string::npos);
  }
  const RawClient seventh(server->port(), 0, greedy);
  seventh.post("/v1/completions", R"({"prompt":"b"})");
  const std::string refused = seventh.read_until("}}");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 429")) << refused;
  EXPECT_NE(refused.find("6 of them from your address"), std::string::npos) << refused;
  const RawClient eighth(server->port(), 0, greedy);
  eighth.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(eighth.read_until("ok").starts_with("HTTP/1.1 200"));
  const RawClient ninth(server->port(), 0, greedy);
  EXPECT_EQ(ninth.read_until("x"), "") << "half of the connections are for others";
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"b","max_tokens":2})").status, 200);
}

TEST_F(Serving, DrainingFinishesWhatRunsAndTakesNothingNew) {
  serve();
  const RawClient first(server->port());
  first.post("/v1/completions", R"({"prompt":"a","stream":true,)" + endless + "}");
  first.read_until("data: ");
  server->drain();
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"b"})").status, 503);
  thread.join();
  const std::string rest = first.read_until("data: [DONE]");
  EXPECT_NE(rest.find("\"finish_reason\":\"length\""), std::string::npos) << "it was finished";
  EXPECT_NE(rest.find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(server->counts().batch.generated_tokens, 4000);
}

TEST_F(Serving, DrainingDoesNotWaitForEver) {
  auto hasty = settings();
  hasty.drain_time_max = 1ms;
  serve(hasty);
  const RawClient first(server->port());
  first.post("/v1/completions", R"({"prompt":"a","stream":true,)" + endless + "}");
  first.read_until("data: ");
  server->drain();
  thread.join();
  const std::string rest = first.read_until("this engine is about to stop");
  EXPECT_NE(rest.find("this engine is about to stop"), std::string::npos);
}

TEST_F(Serving, DrainingDoesNotWaitForThoseWhoAreStillPrepared) {
  auto hasty = settings();
  hasty.drain_time_max = 1ms;
  serve(hasty);
  std::vector<std::unique_ptr<RawClient>> heavy;
  for (int nth = 0; nth < 40; ++nth) {
    heavy.push_back(std::make_unique<RawClient>(server->port()));
    heavy.back()->post("/v1/completions", heavy_form(nth));
  }
  wait_until([&] { return heavy.front()->has_answer(); });
  server->drain();
  thread.join();
  server.reset();  // and with it the connections
  const std::string told = heavy.back()->read_until("");
  EXPECT_TRUE(told.starts_with("HTTP/1.1 503")) << told;
  EXPECT_NE(told.find("this engine is about to stop"), std::string::npos) << told;
}

}  // namespace
}  // namespace tutti::serve
