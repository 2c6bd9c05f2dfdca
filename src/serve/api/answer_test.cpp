#include "serve/api/answer.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "base/json/parse.hpp"

namespace tutti::serve::api {
namespace {

std::string_view bytes_of(Token token) {
  static const std::vector<std::string> texts{"a", "\"b", "\xC3", "\xA9"};
  return texts[static_cast<std::size_t>(token)];
}

Voice voice(Kind kind) { return {kind, "id-1", 1700000000, "the model", bytes_of}; }

json::Value parsed(std::string_view text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

// The JSON of an event.
json::Value event(const std::string& text) {
  EXPECT_TRUE(text.starts_with("data: ") && text.ends_with("\n\n")) << text;
  return parsed(std::string_view(text).substr(6, text.size() - 8));
}

TEST(Answer, AWholeConversation) {
  const json::Value root =
      parsed(voice(Kind::chat)
                 .whole({{"one \"quoted\"\n", {}, Finish::stop}, {"two", {}, Finish::length}}, {3, 4, 2}));
  EXPECT_EQ(*root.find("object"), "chat.completion");
  EXPECT_EQ(*root.find("id"), "id-1");
  EXPECT_EQ(*root.find("created"), 1700000000);
  EXPECT_EQ(*root.find("model"), "the model");
  const json::Array& choices = *root.find("choices")->list();
  ASSERT_EQ(choices.size(), 2U);
  EXPECT_EQ(*choices[0].find("message")->find("content"), "one \"quoted\"\n");
  EXPECT_EQ(*choices[0].find("message")->find("role"), "assistant");
  EXPECT_EQ(*choices[0].find("finish_reason"), "stop");
  EXPECT_EQ(*choices[1].find("index"), 1);
  EXPECT_EQ(*choices[1].find("finish_reason"), "length");
  EXPECT_TRUE(choices[1].find("logprobs")->is_null());
  const json::Value& usage = *root.find("usage");
  EXPECT_EQ(*usage.find("prompt_tokens"), 3);
  EXPECT_EQ(*usage.find("completion_tokens"), 4);
  EXPECT_EQ(*usage.find("total_tokens"), 7);
  EXPECT_EQ(*usage.find("prompt_tokens_details")->find("cached_tokens"), 2);
}

TEST(Answer, ChunksOfAConversation) {
  const Voice own = voice(Kind::chat);
  const json::Value first = event(own.first_chunk(2));
  EXPECT_EQ(*first.find("object"), "chat.completion.chunk");
  EXPECT_EQ(*(*first.find("choices")->list())[0].find("index"), 2);
  EXPECT_EQ(*(*first.find("choices")->list())[0].find("delta")->find("role"), "assistant");
  const json::Value next = event(own.chunk(0, "text", {}, false, 0, nullptr));
  const json::Value& choice = (*next.find("choices")->list())[0];
  EXPECT_EQ(*choice.find("delta")->find("content"), "text");
  EXPECT_TRUE(choice.find("finish_reason")->is_null());
  const Finish finish = Finish::length;
  const json::Value last = event(own.chunk(0, "", {}, false, 0, &finish));
  EXPECT_EQ((*last.find("choices")->list())[0].find("delta")->object()->size(), 0U);
  EXPECT_EQ(*(*last.find("choices")->list())[0].find("finish_reason"), "length");
  const json::Value usage = event(own.usage_chunk({1, 2, 0}));
  EXPECT_TRUE(usage.find("choices")->list()->empty());
  EXPECT_EQ(*usage.find("usage")->find("total_tokens"), 3);
}

TEST(Answer, LogprobsShowBytesAndTexts) {
  const std::vector<Chosen> choices{{1, -0.5F, {{1, -0.5F}, {0, -1}}}, {2, -0.25F, {{2, -0.25F}}}};
  const json::Value talk = parsed(voice(Kind::chat).whole({{"x", choices, Finish::stop}}, {}));
  const json::Value* const shown = (*talk.find("choices")->list())[0].find("logprobs");
  const json::Array& content = *shown->find("content")->list();
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(*content[0].find("token"), "\"b");
  EXPECT_EQ(*content[0].find("logprob"), -0.5);
  EXPECT_EQ(*content[1].find("token"), "\xEF\xBF\xBD") << "half a letter";
  EXPECT_EQ(*content[1].find("bytes"), json::Value(json::Array{0xC3}));
  EXPECT_EQ(content[0].find("top_logprobs")->list()->size(), 2U);

  const json::Value text = parsed(voice(Kind::completion).whole({{"x", choices, Finish::stop}}, {}));
  const json::Value* const old = (*text.find("choices")->list())[0].find("logprobs");
  EXPECT_EQ(*old->find("tokens"), json::Value(json::Array{"\"b", "\xEF\xBF\xBD"}));
  EXPECT_EQ(*old->find("token_logprobs"), json::Value(json::Array{-0.5, -0.25}));
  EXPECT_EQ(*old->find("text_offset"), json::Value(json::Array{0, 2}));
  EXPECT_EQ(*(*old->find("top_logprobs")->list())[0].find("a"), -1);
}

TEST(Answer, TheFirstTokenOfAnEchoIsAfterNothing) {
  const std::vector<Chosen> choices{{1, std::numeric_limits<float>::quiet_NaN(), {}},
                                    {2, -0.25F, {{2, -0.25F}}}};
  const json::Value text = parsed(voice(Kind::completion).whole({{"x", choices, Finish::stop}}, {}));
  const json::Value* const shown = (*text.find("choices")->list())[0].find("logprobs");
  EXPECT_EQ(*shown->find("token_logprobs"), json::Value(json::Array{nullptr, -0.25}));
  EXPECT_TRUE((*shown->find("top_logprobs")->list())[0].is_null());
  EXPECT_EQ(*shown->find("text_offset"), json::Value(json::Array{0, 2}));
}

TEST(Answer, LettersCountWhereTheyBegin) {
  EXPECT_EQ(voice(Kind::chat).letters_of({1, 2, 3}), 3U) << "\"b and é in two halves";
}

TEST(Answer, TokensAreListedWhereClientsPassThemOver) {
  EXPECT_EQ(tokens_line(std::vector<Token>{17, 204, 305}), ": tutti 17 204 305\n");
  EXPECT_EQ(tokens_line({}), ": tutti\n");
}

TEST(Answer, ErrorsAreInTheShapeThatClientsKnow) {
  const json::Value root =
      parsed(error_text(400, invalid("must be small").within("n").remedy("take 1"), "code"));
  const json::Value& error = *root.find("error");
  EXPECT_EQ(*error.find("message"), "n: must be small; take 1");
  EXPECT_EQ(*error.find("type"), "invalid_request_error");
  EXPECT_EQ(*error.find("param"), "n");
  EXPECT_EQ(*error.find("code"), "code");
  const json::Value other = event(error_event(503, failed("it stops")));
  EXPECT_EQ(*other.find("error")->find("type"), "overloaded_error");
  EXPECT_TRUE(other.find("error")->find("param")->is_null());
}

TEST(Answer, EmbeddingsHaveLengthOneInEitherForm) {
  Answer answer;
  answer.choices.push_back({.hidden = {3, 0, 4, 0}});
  const Voice own = voice(Kind::embedding);
  const json::Value plain = parsed(own.embeddings({answer, answer}, {7, 2, 0}, false));
  ASSERT_EQ(plain.find("data")->list()->size(), 2U);
  const json::Array& numbers = *(*plain.find("data")->list())[1].find("embedding")->list();
  EXPECT_NEAR(*numbers[0].number(), 0.6, 1e-6);
  EXPECT_NEAR(*numbers[2].number(), 0.8, 1e-6);
  EXPECT_EQ(*plain.find("usage")->find("total_tokens"), 7);
  // With the digits that a float has.
  EXPECT_NE(own.embeddings({answer}, {}, false).find("[0.6,0,0.8,0]"), std::string::npos);
  const json::Value packed = parsed(own.embeddings({answer}, {}, true));
  // 0.6F, 0, 0.8F, 0 in little endian.
  EXPECT_EQ(*(*packed.find("data")->list())[0].find("embedding"), "mpkZPwAAAADNzEw/AAAAAA==");
}

TEST(Answer, ModelsAreListed) {
  const std::vector<ModelCard> cards{{"m", 7, 128}, {"a", 7, 128, "m"}};
  const json::Value root = parsed(models_text(cards));
  EXPECT_EQ(*root.find("object"), "list");
  const json::Array& data = *root.find("data")->list();
  ASSERT_EQ(data.size(), 2U);
  EXPECT_EQ(*data[0].find("id"), "m");
  EXPECT_EQ(data[0].find("parent"), nullptr);
  EXPECT_EQ(*data[1].find("id"), "a");
  EXPECT_EQ(*data[1].find("parent"), "m");
}

}  // namespace
}  // namespace tutti::serve::api
