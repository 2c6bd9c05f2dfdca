#include "serve/server/prepare.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "learn/tokenizer/tokenizer.hpp"
#include "serve/cpu/tiny_folder_test.hpp"

namespace tutti::serve {
namespace {

// A model without a template of its own, whose text ends by a token of its own.
class PreparationTest : public testing::Test {
 protected:
  static constexpr std::int64_t context = 64;

  PreparationTest() {
    folder_.write("generation_config.json", R"({"eos_token_id":[3,4]})");
    auto read = load(folder_.path(), {.threads = 1, .cache_bytes = 16 << 20, .name = "tiny"});
    EXPECT_TRUE(read) << read.error().text();
    loaded_ = std::make_unique<Loaded>(std::move(*read));
    preparation_ = std::make_unique<Preparation>(*loaded_, loaded_->model->limits());
  }
  Result<Prepared> prepare(api::Kind kind, const std::string& body) {
    return preparation_->prepare(kind, body, {});
  }

  const cpu::TinyFolder folder_{257, context, tokenizer::Tokenizer::bytes().json()};
  std::unique_ptr<Loaded> loaded_;
  std::unique_ptr<Preparation> preparation_;
};

std::string listed(std::size_t count, const std::string& each) {
  std::string list = "[" + each;
  for (std::size_t nth = 1; nth < count; ++nth) list += "," + each;
  return list + "]";
}

// It is spoken to in ChatML, which has no place for them.
TEST_F(PreparationTest, ToolsThatTheTemplateWouldLeaveOutAreRefused) {
  const auto refused = [&](const std::string& body) {
    const auto talk = prepare(api::Kind::chat, body);
    return talk ? "nothing" : std::string(talk.error().context());
  };
  const std::string hello = R"({"messages":[{"role":"user","content":"a"}])";
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(refused(hello + tools + "}"), "tools");
  EXPECT_EQ(refused(hello + tools + R"(,"tool_choice":"none"})"), "nothing");
  EXPECT_EQ(refused(hello + R"(,"tools":[]})"), "nothing");
  const auto called = [&](const std::string& calls) {
    return refused(R"({"messages":[{"role":"assistant","content":"a","tool_calls":)" + calls + "}]}");
  };
  EXPECT_EQ(called(R"([{"type":"function","function":{"name":"f","arguments":"{}"}}])"), "messages");
  EXPECT_EQ(called("[]"), "nothing");
  EXPECT_EQ(called("null"), "nothing");
}

TEST_F(PreparationTest, TheModelsOwnEndsComeBesideAllThatIsAskedFor) {
  const std::string fields = R"("stop_token_ids":)" + listed(stop_ids_max, "9") + R"(,"stop":)" +
                             listed(stop_texts_max, R"("x")") + "}";
  const auto text = prepare(api::Kind::completion, R"({"prompt":"a",)" + fields);
  ASSERT_TRUE(text) << text.error().text();
  const std::vector<Token>& ids = text->request.stop_ids;
  EXPECT_EQ(ids.size(), stop_ids_max + 2);
  EXPECT_NE(std::find(ids.begin(), ids.end(), 4), ids.end());
  const auto talk = prepare(api::Kind::chat, R"({"messages":[{"role":"user","content":"a"}],)" + fields);
  ASSERT_TRUE(talk) << talk.error().text();
  EXPECT_EQ(talk->request.stop_texts.size(), stop_texts_max + 1);
  EXPECT_EQ(talk->request.stop_texts.back(), "<|im_end|>");
}

TEST_F(PreparationTest, WhatATemplateRefusesIsInTheMessages) {
  const std::string body = R"({"messages":[{"role":"user","content":"a"}]})";
  loaded_->chat = chat::ChatTemplate::parse("{{ raise_exception('roles must alternate') }}");
  ASSERT_TRUE(loaded_->chat) << loaded_->chat.error().text();
  const auto refused = prepare(api::Kind::chat, body);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().context(), "messages");
  EXPECT_NE(refused.error().message().find("roles must alternate"), std::string::npos)
      << refused.error().text();
  loaded_->chat = chat::ChatTemplate::parse("{% if %}");
  ASSERT_FALSE(loaded_->chat);
  const auto unread = prepare(api::Kind::chat, body);
  ASSERT_FALSE(unread);
  EXPECT_EQ(unread.error().context(), "messages");
  EXPECT_NE(unread.error().remedy().find("/v1/completions"), std::string::npos);
}

// An answer that another engine has begun goes on behind the prompt that it has begun behind: also on the
// next day, where the template tells the date.
TEST(Preparation, AConversationThatIsResumedHasTheTimeOfItsBeginning) {
  const cpu::TinyFolder folder(257, 64, tokenizer::Tokenizer::bytes().json());
  folder.write("chat_template.jinja", "{{ strftime_now('%Y-%m-%d') }}");
  auto loaded = load(folder.path(), {.threads = 1, .cache_bytes = 16 << 20, .name = "tiny"});
  ASSERT_TRUE(loaded) << loaded.error().text();
  Preparation preparation(*loaded, loaded->model->limits());
  const auto prepare = [&](std::int64_t seconds, const std::string& fields) {
    auto prepared = preparation.prepare(
        api::Kind::chat, R"({"messages":[{"role":"user","content":"a"}],"stream":true)" + fields + "}",
        {.now = Instant(std::chrono::seconds(seconds))});
    EXPECT_TRUE(prepared) << prepared.error().text();
    return prepared ? std::move(*prepared) : Prepared();
  };
  constexpr std::int64_t day = 86'400;
  const Prepared first = prepare(1'795'000'000, "");
  const Prepared next =
      prepare(1'795'000'000 + day, R"(,"tutti_resume":{"id":"a","created":)" +
                                       std::to_string(first.created_seconds) + R"(,"tokens":[7,8]})");
  const Prepared other = prepare(1'795'000'000 + day, "");
  EXPECT_EQ(first.created_seconds, 1'795'000'000);
  EXPECT_EQ(next.created_seconds, first.created_seconds);
  EXPECT_EQ(next.request_of(0).prompt, first.request_of(0).prompt);
  EXPECT_NE(other.request_of(0).prompt, first.request_of(0).prompt);
  EXPECT_EQ(next.request_of(0).resumed, (std::vector<Token>{7, 8}));
}

TEST_F(PreparationTest, APromptWithoutAnAnswerMayFillTheContext) {
  const std::string full = listed(context, "9");
  EXPECT_TRUE(prepare(api::Kind::embedding, R"({"input":)" + full + "}"));
  EXPECT_TRUE(prepare(api::Kind::completion, R"({"echo":true,"max_tokens":0,"prompt":)" + full + "}"));
  const auto answered = prepare(api::Kind::completion, R"({"max_tokens":1,"prompt":)" + full + "}");
  ASSERT_TRUE(answered);
  EXPECT_TRUE(answered->beyond_context);
  const auto longer = prepare(api::Kind::embedding, R"({"input":)" + listed(context + 1, "9") + "}");
  ASSERT_TRUE(longer);
  ASSERT_TRUE(longer->beyond_context);
  EXPECT_EQ(longer->beyond_context->context(), "input");
  EXPECT_FALSE(longer->beyond_context->remedy().empty());
}

// As many as there may be of a small model; of a large one their numbers would be too much at once.
TEST_F(PreparationTest, VectorsOfAllInputsAreBounded) {
  const auto ask = [&](std::size_t count, const std::string& fields = "") {
    return prepare(api::Kind::embedding, R"({"input":)" + listed(count, R"("a")") + fields + "}");
  };
  EXPECT_TRUE(ask(api::inputs_max));
  loaded_->source.shape.hidden = 8192;
  const auto refused = ask(api::inputs_max);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid);
  EXPECT_EQ(refused.error().context(), "input");
  EXPECT_NE(refused.error().remedy().find("base64"), std::string::npos) << refused.error().remedy();
  EXPECT_TRUE(ask(1'000));
  EXPECT_TRUE(ask(api::inputs_max, R"(,"encoding_format":"base64")"));
}

// Each of the answers says its prompt: a small body must not become gigabytes.
TEST_F(PreparationTest, EchoesOfAllAnswersAreBounded) {
  Limits large = loaded_->model->limits();
  large.context = 200'000;
  large.blocks = 1 << 20;
  preparation_ = std::make_unique<Preparation>(*loaded_, large);
  const std::string text(150'000, 'a');
  const auto ask = [&](int answers, const std::string& fields) {
    return prepare(api::Kind::completion,
                   R"({"prompt":")" + text + R"(","n":)" + std::to_string(answers) + "," + fields + "}");
  };
  EXPECT_TRUE(ask(128, R"("echo":false)"));
  EXPECT_TRUE(ask(100, R"("echo":true)"));
  EXPECT_TRUE(ask(27, R"("echo":true,"stream":true)"));
  for (const auto& refused : {ask(128, R"("echo":true)"), ask(28, R"("echo":true,"stream":true)")}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::invalid);
    EXPECT_EQ(refused.error().context(), "prompt");
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// In a process of its own: from here on there is no memory to speak of beyond what it has.
void take_memory_away() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  const rlim_t bytes = pages * 4096 + (4U << 20U);
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

TEST(Preparation, WhereThereIsNoMemoryTheRequestFailsAndNothingElse) {
  const cpu::TinyFolder folder(257, 4096, tokenizer::Tokenizer::bytes().json());
  auto loaded = load(folder.path(), {.threads = 1, .cache_bytes = 16 << 20, .name = "tiny"});
  ASSERT_TRUE(loaded) << loaded.error().text();
  Preparation preparation(*loaded, loaded->model->limits());
  const auto body = [](std::size_t bytes) {
    return R"({"messages":[{"role":"user","content":")" + std::string(bytes, 'a') + R"("}]})";
  };
  const std::string large = body(std::size_t{24} << 20U);
  const std::string small = body(10);
  const Preparation::Facts facts{};
  EXPECT_EXIT(
      {
        take_memory_away();
        const auto refused = preparation.prepare(api::Kind::chat, large, facts);
        const bool is_told = !refused && refused.error().code() == ErrorCode::failed;
        if (is_told) std::cerr << refused.error().text() << '\n';
        std::_Exit(is_told && preparation.prepare(api::Kind::chat, small, facts) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "no memory for the request");
}

#endif

}  // namespace
}  // namespace tutti::serve
