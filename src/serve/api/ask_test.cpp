#include "serve/api/ask.hpp"

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "base/prng.hpp"

namespace tutti::serve::api {
namespace {

Result<Ask> completion(const std::string& fields) {
  return read_ask(Kind::completion, R"({"prompt":"a")" + (fields.empty() ? "" : "," + fields) + "}");
}
Result<Ask> chat(const std::string& fields) {
  return read_ask(Kind::chat, R"({"messages":[{"role":"user","content":"a"}])" +
                                  (fields.empty() ? "" : "," + fields) + "}");
}
// The field that is wrong.
std::string wrong(const Result<Ask>& ask) { return ask ? "nothing" : ask.error().context(); }

TEST(Ask, DefaultsAreThoseOfOpenai) {
  const auto ask = completion("");
  ASSERT_TRUE(ask) << ask.error().text();
  EXPECT_EQ(ask->tokens_max, 16);
  EXPECT_EQ(ask->answers, 1);
  EXPECT_EQ(ask->sampling.temperature, 1);
  EXPECT_EQ(ask->sampling.top_p, 1);
  EXPECT_EQ(ask->sampling.logprobs, -1);
  EXPECT_FALSE(ask->seed);
  EXPECT_FALSE(ask->streams);
  const auto talk = chat("");
  ASSERT_TRUE(talk) << talk.error().text();
  EXPECT_FALSE(talk->tokens_max) << "as many as the context leaves";
}

TEST(Ask, ReadsEveryField) {
  const auto ask = completion(
      R"("model":"m","max_tokens":7,"n":3,"temperature":0.5,"top_p":0.9,"min_p":0.1,"top_k":5,"seed":-1,
         "presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"logit_bias":{"5":-100,"7":1.5},
         "logprobs":2,"stop":["x","yz"],"stop_token_ids":[1,2],"ignore_eos":true,"stream":true,
         "stream_options":{"include_usage":true},"user":"somebody","whatever":{"else":1})");
  ASSERT_TRUE(ask) << ask.error().text();
  EXPECT_EQ(ask->model, "m");
  EXPECT_EQ(ask->tokens_max, 7);
  EXPECT_EQ(ask->answers, 3);
  EXPECT_FLOAT_EQ(ask->sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(ask->sampling.top_p, 0.9F);
  EXPECT_FLOAT_EQ(ask->sampling.min_p, 0.1F);
  EXPECT_EQ(ask->sampling.top_k, 5);
  EXPECT_EQ(ask->seed, std::uint64_t(-1));
  EXPECT_FLOAT_EQ(ask->sampling.repetition_penalty, 1.5F);
  ASSERT_EQ(ask->sampling.biases.size(), 2U);
  EXPECT_EQ(ask->sampling.biases[0], (std::pair<Token, float>(5, -100.0F)));
  EXPECT_EQ(ask->sampling.logprobs, 2);
  EXPECT_EQ(ask->stop_texts, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(ask->stop_ids, (std::vector<Token>{1, 2}));
  EXPECT_TRUE(ask->ignores_end && ask->streams && ask->usage_in_stream);
}

TEST(Ask, PromptsAreTextsOrTokensOrSeveral) {
  const auto count = [](const std::string& prompt) {
    const auto ask = read_ask(Kind::completion, "{\"prompt\":" + prompt + "}");
    return ask ? static_cast<int>(ask->prompts.size()) : -1;
  };
  EXPECT_EQ(count(R"("a")"), 1);
  EXPECT_EQ(count(R"("")"), 1);
  EXPECT_EQ(count("[1,2,3]"), 1);
  EXPECT_EQ(count(R"(["a","b"])"), 2);
  EXPECT_EQ(count(R"([[1,2],[3],"c"])"), 3);
  for (const char* prompt :
       {"[]", "null", "7", "{}", "[1,\"a\"]", "[-1]", "[1.5]", "[99999999999]", "[{}]", "[[\"a\"]]"})
    EXPECT_EQ(count(prompt), -1) << prompt;
  std::string many = "[\"a\"";
  for (std::size_t nth = 0; nth < prompts_max; ++nth) many += ",\"a\"";
  EXPECT_EQ(count(many + "]"), -1);
  EXPECT_TRUE(read_ask(Kind::embedding, "{\"input\":" + many + "]}"));
  for (std::size_t nth = prompts_max; nth < inputs_max; ++nth) many += ",\"a\"";
  const auto refused = read_ask(Kind::embedding, "{\"input\":" + many + "]}");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text(), "input : must have at most 2048 inputs");
}

TEST(Ask, EachFieldHasItsBounds) {
  const std::pair<const char*, const char*> wrongs[] = {
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":2.1)", "temperature"},
      {R"("temperature":"1")", "temperature"},
      {R"("temperature":1e300)", "temperature"},
      {R"("top_p":1.1)", "top_p"},
      {R"("min_p":-1)", "min_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("n":0)", "n"},
      {R"("n":129)", "n"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":99999999999999999999)", "max_tokens"},
      {R"("presence_penalty":3)", "presence_penalty"},
      {R"("frequency_penalty":-3)", "frequency_penalty"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("seed":1.5)", "seed"},
      {R"("seed":"1")", "seed"},
      {R"("logit_bias":[])", "logit_bias"},
      {R"("logit_bias":{"a":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias"},
      {R"("logit_bias":{"-1":1})", "logit_bias"},
      {R"("logprobs":21)", "logprobs"},
      {R"("stop":7)", "stop"},
      {R"("max_tokens":-2)", "max_tokens"},
      {R"("max_tokens":4.5)", "max_tokens"},
      {R"("seed":1e300)", "seed"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])", "stop"},
      {R"("stop_token_ids":["a"])", "stop_token_ids"},
      {R"("stream":1)", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":7)", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":7})", "stream_options"},
      {R"("suffix":"x")", "suffix"},
      {R"("best_of":2)", "best_of"},
      {R"("response_format":{"type":"xml"})", "response_format"},
      {R"("response_format":7)", "response_format"},
      {R"("response_format":{"type":"json_schema"})", "response_format"},
      {R"("regex":7)", "regex"},
      {R"("regex":"a","response_format":{"type":"json_object"})", "regex"},
      {R"("min_tokens":4)", "min_tokens"},
      {R"("guided_json":{"type":"object"})", "guided_json"},
      {R"("guided_regex":"a+")", "guided_regex"},
      {R"("guided_choice":["a","b"])", "guided_choice"},
      {R"("guided_grammar":"root ::= x")", "guided_grammar"},
      {R"("structured_outputs":{"regex":"a"})", "structured_outputs"},
      {R"("use_beam_search":true)", "use_beam_search"},
      {R"("truncate_prompt_tokens":9)", "truncate_prompt_tokens"},
      {R"("bad_words":["a"])", "bad_words"},
      {R"("allowed_token_ids":[1])", "allowed_token_ids"},
      {R"("include_stop_str_in_output":true)", "include_stop_str_in_output"},
      {R"("skip_special_tokens":false)", "skip_special_tokens"},
      {R"("prompt_logprobs":1)", "prompt_logprobs"},
      {R"("response_format":{"type":"json_object","schema":7})", "response_format"},
      {R"("grammar":"root ::= x")", "grammar"},
      {R"("json_schema":{"type":"object"})", "json_schema"},
      {R"("add_special_tokens":false)", "add_special_tokens"},
      {R"("web_search_options":{})", "web_search_options"},
      {R"("typical_p":0.9)", "typical_p"},
      {R"("tfs_z":0.9)", "tfs_z"},
      {R"("top_a":0.1)", "top_a"},
      {R"("mirostat":2)", "mirostat"},
      {R"("dynatemp_range":0.5)", "dynatemp_range"},
      {R"("xtc_probability":0.5)", "xtc_probability"},
      {R"("dry_multiplier":0.8)", "dry_multiplier"},
      {R"("length_penalty":2)", "length_penalty"},
      {R"("repeat_penalty":1.1)", "repeat_penalty"},
      {R"("stop_sequences":["x"])", "stop_sequences"},
      {R"("max_new_tokens":7)", "max_new_tokens"},
      {R"("n_predict":7)", "n_predict"},
      {R"("max_completion_tokens":0)", "max_completion_tokens"},
      {R"("model":7)", "model"}};
  for (const auto& [fields, name] : wrongs) EXPECT_EQ(wrong(completion(fields)), name) << fields;
  const std::pair<const char*, const char*> wrong_talks[] = {
      {R"("logprobs":1)", "logprobs"},
      {R"("top_logprobs":2)", "top_logprobs"},
      {R"("tools":{})", "tools"},
      {R"("tools":[{}])", "tools"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("functions":[{}])", "functions"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("min_tokens":4)", "min_tokens"},
      {R"("guided_json":{"type":"object"})", "guided_json"},
      {R"("truncate_prompt_tokens":9)", "truncate_prompt_tokens"},
      {R"("add_special_tokens":true)", "add_special_tokens"},
      {R"("web_search_options":{})", "web_search_options"},
      {R"("grammar":"root ::= x")", "grammar"},
      {R"("echo":true)", "echo"},
      {R"("best_of":2)", "best_of"},
      {R"("modalities":["text","audio"])", "modalities"},
      {R"("chat_template":"{{ x }}")", "chat_template"},
      {R"("documents":[{"text":"x"}])", "documents"},
      {R"("add_generation_prompt":1)", "add_generation_prompt"},
      {R"("add_generation_prompt":true,"continue_final_message":true)", "add_generation_prompt"},
      {R"("max_completion_tokens":0)", "max_completion_tokens"}};
  for (const auto& [fields, name] : wrong_talks) EXPECT_EQ(wrong(chat(fields)), name) << fields;
  EXPECT_EQ(wrong(read_ask(Kind::chat, "{}")), "messages");
  EXPECT_EQ(wrong(read_ask(Kind::chat, R"({"messages":[]})")), "messages");
  EXPECT_EQ(wrong(read_ask(Kind::completion, "{}")), "prompt");
}

TEST(Ask, AnAnswerMayBeResumed) {
  const std::string own = R"("stream":true,"tutti_resume":{"id":"cmpl-1","created":1795000000,"tokens":)";
  const auto ask = completion(own + "[17,204,305]}");
  ASSERT_TRUE(ask) << ask.error().text();
  EXPECT_EQ(ask->resume->id, "cmpl-1");
  EXPECT_EQ(ask->resume->created_seconds, 1795000000);
  EXPECT_EQ(ask->resume->tokens, (std::vector<Token>{17, 204, 305}));
  EXPECT_TRUE(chat(own + "[]}")->resume->tokens.empty());
  EXPECT_TRUE(read_ask(Kind::completion, R"({"prompt":["a"],)" + own + "[1]}}"));
  EXPECT_FALSE(completion(R"("stream":true,"tutti_resume":null)")->resume);
  EXPECT_FALSE(completion("")->resume);
  const std::string longest(resumed_id_bytes_max, 'x');
  const auto named = [](const std::string& id) {
    return completion(R"("stream":true,"tutti_resume":{"id":")" + id + R"(","created":1,"tokens":[]})");
  };
  EXPECT_TRUE(named(longest));
  EXPECT_TRUE(named("a b~"));
  for (const std::string& id : {std::string(), longest + "x", std::string(R"(a\"b)"), std::string("a'b"),
                                std::string(R"(a\\b)"), std::string(R"(a\nb)"), std::string("\xC3\xA9")})
    EXPECT_EQ(wrong(named(id)), "tutti_resume") << id;
  for (const char* given :
       {R"(7)", R"([])", R"({})", R"({"created":1,"tokens":[]})", R"({"id":7,"created":1,"tokens":[]})",
        R"({"id":"a","tokens":[]})", R"({"id":"a","created":-1,"tokens":[]})",
        R"({"id":"a","created":1.5,"tokens":[]})", R"({"id":"a","created":1e300,"tokens":[]})",
        R"({"id":"a","created":1})", R"({"id":"a","created":1,"tokens":7})",
        R"({"id":"a","created":1,"tokens":["a"]})", R"({"id":"a","created":1,"tokens":[-1]})",
        R"({"id":"a","created":1,"tokens":[99999999999]})"}) {
    const std::string fields = R"("stream":true,"tutti_resume":)" + std::string(given);
    EXPECT_EQ(wrong(completion(fields)), "tutti_resume") << given;
    EXPECT_EQ(wrong(chat(fields)), "tutti_resume") << given;
  }
  const std::string sound = R"("tutti_resume":{"id":"a","created":1,"tokens":[]})";
  EXPECT_EQ(wrong(completion(sound)), "tutti_resume") << "it does not stream";
  EXPECT_EQ(wrong(completion(R"("stream":true,"n":2,)" + sound)), "tutti_resume");
  EXPECT_EQ(wrong(completion(R"("stream":true,"echo":true,)" + sound)), "tutti_resume");
  EXPECT_EQ(wrong(read_ask(Kind::completion, R"({"prompt":["a","b"],"stream":true,)" + sound + "}")),
            "tutti_resume");
  EXPECT_EQ(wrong(read_ask(Kind::embedding, R"({"input":"a",)" + sound + "}")), "tutti_resume");
}

TEST(Ask, EmbeddingsHaveInputsAndAFormat) {
  const auto read = [](const std::string& body) { return read_ask(Kind::embedding, body); };
  EXPECT_EQ(read(R"({"input":["a",[1,2]],"encoding_format":"base64"})")->prompts.size(), 2U);
  EXPECT_TRUE(read(R"({"input":"a","encoding_format":"base64"})")->in_base64);
  EXPECT_FALSE(read(R"({"input":"a"})")->in_base64);
  EXPECT_EQ(wrong(read("{}")), "input");
  EXPECT_EQ(wrong(read(R"({"input":[]})")), "input");
  EXPECT_EQ(wrong(read(R"({"input":"a","encoding_format":"hex"})")), "encoding_format");
  EXPECT_EQ(wrong(read(R"({"input":"a","dimensions":8})")), "dimensions");
  EXPECT_EQ(wrong(read(R"({"input":"a","truncate_prompt_tokens":8})")), "truncate_prompt_tokens");
}

TEST(Ask, WhatIsNullWasNotAskedFor) {
  const auto ask = chat(
      R"("temperature":null,"stop":null,"tools":null,"logit_bias":null,"response_format":null,"n":null,"seed":null)");
  EXPECT_TRUE(ask) << ask.error().text();
}

TEST(Ask, WhatWouldChangeNothingIsPassedOver) {
  const std::string same =
      R"("min_tokens":0,"use_beam_search":false,"bad_words":[],"best_of":2,"n":2,"skip_special_tokens":true)";
  EXPECT_TRUE(completion(same + R"(,"user":"u","store":true)"));
  EXPECT_TRUE(chat(same + R"(,"echo":false,"modalities":["text"],"documents":[],"metadata":{})"));
  const std::string neutral =
      R"("typical_p":1.0,"tfs_z":1,"top_a":0.0,"mirostat":0,"dynatemp_range":0,"xtc_probability":0,)"
      R"("dry_multiplier":0.0,"length_penalty":1.0,"repeat_penalty":1,"stop_sequences":[],"grammar":null,"n_predict":null)";
  EXPECT_TRUE(completion(neutral + R"(,"add_special_tokens":true)"));
  EXPECT_TRUE(chat(neutral + R"(,"add_special_tokens":false)"));
}

TEST(Ask, WhatClientsLeaveEmptyIsNotAsked) {
  const std::string empty =
      R"("stop":["",""],"guided_choice":[],"grammar":"","guided_regex":"","n_predict":-1,"json_schema":"")";
  const auto ask = completion(empty + R"(,"logprobs":false)");
  ASSERT_TRUE(ask) << ask.error().text();
  EXPECT_TRUE(ask->stop_texts.empty());
  EXPECT_EQ(ask->sampling.logprobs, -1);
  EXPECT_TRUE(chat(empty + R"(,"functions":[],"function_call":"none","logprobs":false)"));
}

TEST(Ask, AWholeNumberMayBeWrittenWithAPoint) {
  const auto ask = completion(R"("max_tokens":4.0,"n":2.0,"seed":7.0)");
  ASSERT_TRUE(ask) << ask.error().text();
  EXPECT_EQ(ask->tokens_max, 4);
  EXPECT_EQ(ask->answers, 2);
  EXPECT_EQ(ask->seed, 7U);
}

TEST(Ask, MinusOneIsNoBound) {
  for (const auto* field : {"max_tokens", "max_completion_tokens"}) {
    const std::string fields = "\"" + std::string(field) + "\":-1";
    ASSERT_TRUE(completion(fields)) << completion(fields).error().text();
    EXPECT_FALSE(completion(fields)->tokens_max);
    EXPECT_FALSE(chat(fields)->tokens_max);
  }
}

TEST(Ask, AnObjectMayComeWithItsSchema) {
  const auto ask = chat(R"("response_format":{"type":"json_object","schema":{"type":"object"}})");
  ASSERT_TRUE(ask) << ask.error().text();
  EXPECT_EQ(ask->form, (Form{Form::Kind::schema, R"({"type":"object"})"}));
  const auto any = chat(R"("response_format":{"type":"json_object","schema":null})");
  ASSERT_TRUE(any) << any.error().text();
  EXPECT_EQ(any->form.kind, Form::Kind::any_object);
}

TEST(Ask, WhereTheAnswerBeginsCanBeChosen) {
  EXPECT_TRUE(chat("")->generation_prompt);
  EXPECT_FALSE(chat(R"("add_generation_prompt":false)")->generation_prompt);
  EXPECT_FALSE(chat(R"("continue_final_message":true)")->generation_prompt);
  EXPECT_FALSE(chat(R"("continue_final_message":true,"add_generation_prompt":false)")->generation_prompt);
}

TEST(Ask, BothKindsKnowBothNamesOfTheirLength) {
  EXPECT_EQ(completion(R"("max_completion_tokens":7)")->tokens_max, 7);
  EXPECT_EQ(chat(R"("max_completion_tokens":7)")->tokens_max, 7);
  EXPECT_EQ(completion("")->tokens_max, completion_tokens_default);
}

TEST(Ask, NearlyZeroIsZero) {
  EXPECT_EQ(completion(R"("temperature":0.000001)")->sampling.temperature, 0);
  EXPECT_GT(completion(R"("top_p":0)")->sampling.top_p, 0);
  EXPECT_EQ(completion(R"("top_k":-1)")->sampling.top_k, 0);
}

TEST(Ask, ASchemaKeepsTheOrderOfItsKeys) {
  const auto ask = chat(
      R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"z":{"type":"string"},"a":{"enum":[1,null,"\n"]}}}}})");
  ASSERT_TRUE(ask) << ask.error().text();
  EXPECT_EQ(ask->form.kind, Form::Kind::schema);
  EXPECT_EQ(ask->form.text,
            R"({"type":"object","properties":{"z":{"type":"string"},"a":{"enum":[1,null,"\n"]}}})");
}

TEST(Ask, ChoosingNoToolsIsHavingNone) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_FALSE(chat(tools)->tools.is_null());
  EXPECT_TRUE(chat(tools + R"(,"tool_choice":"none")")->tools.is_null());
}

TEST(Ask, BodiesThatAreNoObjectsAreRefused) {
  for (const char* body : {"", "[]", "7", "null", "{", "{\"prompt\":\"a\"} x",
                           "{\"prompt\":\"a\",\"prompt\":\"b\"}", "\xff\xfe"})
    EXPECT_FALSE(read_ask(Kind::completion, body)) << body;
}

// A field of every kind with a value of every kind: an answer always, a crash never.
TEST(Ask, MoreValuesThanARequestCanNeedAreRefusedBeforeTheyAreKept) {
  const auto list = [](std::size_t values) {
    std::string text = "[1";
    for (std::size_t nth = 2; nth < values; ++nth) text += ",1";
    return text + "]";  // is a value, too
  };
  const std::string most = list(prompt_values_max - 1);
  EXPECT_TRUE(read_ask(Kind::completion, R"({"prompt":)" + most + "}"));
  EXPECT_TRUE(read_ask(Kind::embedding, R"({"input":)" + most + "}"));
  for (const Kind kind : {Kind::completion, Kind::chat, Kind::embedding}) {
    const bool is_chat = kind == Kind::chat;
    const auto refused =
        read_ask(kind, R"({"a":)" + list(is_chat ? conversation_values_max : prompt_values_max) + "}");
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().text().find("more values than are taken"), std::string::npos)
        << refused.error().text();
    EXPECT_EQ(refused.error().code(), ErrorCode::invalid);
    EXPECT_NE(refused.error().remedy(), "");
  }
  const auto broken = read_ask(Kind::completion, R"({"prompt":")" + std::string(prompt_values_max, 'a'));
  ASSERT_FALSE(broken);
  EXPECT_TRUE(broken.error().message().starts_with("the body is no JSON")) << broken.error().text();
  EXPECT_EQ(broken.error().remedy(), "") << "the number of its values was not the problem";
  const std::string text(conversation_values_max, 'a');
  EXPECT_TRUE(read_ask(Kind::chat, R"({"messages":[{"role":"user","content":")" + text + R"("}]})"))
      << "a long text is one value";
}

TEST(Ask, AnyValueInAnyFieldIsTakenOrRefused) {
  const char* fields[] = {"model",
                          "prompt",
                          "messages",
                          "max_tokens",
                          "n",
                          "temperature",
                          "top_p",
                          "min_p",
                          "top_k",
                          "seed",
                          "presence_penalty",
                          "logit_bias",
                          "logprobs",
                          "top_logprobs",
                          "stop",
                          "stop_token_ids",
                          "ignore_eos",
                          "stream",
                          "stream_options",
                          "response_format",
                          "regex",
                          "tools",
                          "tool_choice",
                          "echo",
                          "best_of",
                          "suffix",
                          "chat_template_kwargs",
                          "continue_final_message",
                          "add_generation_prompt",
                          "max_completion_tokens",
                          "modalities",
                          "min_tokens",
                          "bad_words",
                          "documents"};
  const char* values[] = {"null",
                          "true",
                          "-1",
                          "0",
                          "1",
                          "1.5",
                          "1e300",
                          "18446744073709551615",
                          "\"\"",
                          "\"a\"",
                          "[]",
                          "[1]",
                          "[\"a\"]",
                          "[[]]",
                          "[null]",
                          "{}",
                          "{\"a\":1}",
                          "{\"type\":\"json_schema\"}",
                          "[{\"role\":\"user\",\"content\":\"a\"}]"};
  Prng random(7);
  for (int round = 0; round < 20'000; ++round) {
    json::Object object;
    const auto count = random.between(1, 5);
    for (std::int64_t nth = 0; nth < count; ++nth) {
      auto value = json::parse(values[random.below(std::size(values))]);
      ASSERT_TRUE(value);
      object[fields[random.below(std::size(fields))]] = std::move(*value);
    }
    const auto ask = read_ask(random.chance(0.5) ? Kind::chat : Kind::completion, json::write(object));
    EXPECT_TRUE(ask || ask.error().code() == ErrorCode::invalid);
  }
}

}  // namespace
}  // namespace tutti::serve::api
