// What comes with a model's folder, and what is left when it goes.
#include <fstream>

#include "serve/server/serving_test.hpp"

namespace tutti::serve {
namespace {

TEST_F(Serving, ToolsReachTheModelThroughItsTemplate) {
  const cpu::TinyFolder own(257, context, tokenizer::Tokenizer::bytes().json());
  own.write("chat_template.jinja",
            "{% for message in messages %}{{ message.content }}{% endfor %}"
            "{% if tools %}{{ tools[0].function.name }}{% endif %}");
  listen(settings());
  load_model(0, own.path());
  const auto prompt_tokens = [&](const std::string& fields) {
    const auto answer =
        post("/v1/chat/completions",
             R"({"messages":[{"role":"user","content":"12345"}],"max_tokens":1)" + fields + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    const json::Value root = parsed(answer.body);
    return root.find("usage") == nullptr ? json::Value() : *root.find("usage")->find("prompt_tokens");
  };
  const auto tool = [](const std::string& name) {
    return R"(,"tools":[{"type":"function","function":{"name":")" + name + R"(","parameters":{}}}])";
  };
  EXPECT_EQ(prompt_tokens(""), 5);
  EXPECT_EQ(prompt_tokens(tool("look")), 5 + 4);
  EXPECT_EQ(prompt_tokens(tool("look_again")), 5 + 10);
  EXPECT_EQ(prompt_tokens(tool("look") + R"(,"tool_choice":"none")"), 5) << "who wants none has none";
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// Of this process, in memory.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

TEST_F(Serving, AModelThatGoesGivesItsMemoryBack) {
  constexpr std::size_t cache_bytes = std::size_t{128} << 20;
  listen(settings());
  const std::size_t before = resident_bytes();
  auto loaded = load(folder->path(), {.threads = 1, .cache_bytes = cache_bytes, .name = "tiny"});
  ASSERT_TRUE(loaded) << loaded.error().text();
  server->start(std::move(*loaded));
  texts(post("/v1/completions", R"({"prompt":"a","max_tokens":2})"));
  wait_until([&] { return resident_bytes() >= before + cache_bytes / 8 * 7; });
  server->stop();
  thread.join();
  server.reset();
  EXPECT_LT(resident_bytes(), before + cache_bytes / 4);
}

#endif

}  // namespace
}  // namespace tutti::serve
