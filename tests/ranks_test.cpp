// A model that several processes compute together, as a user meets it: `--tensor-parallel`.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "learn/tokenizer/tokenizer.hpp"
#include "serve/cpu/tiny_folder_test.hpp"
#include "serve/load/source.hpp"
#include "serve/lora/made_adapter_test.hpp"
#include "support/process.hpp"

namespace tutti {
namespace {

using Json = nlohmann::json;
using support::has;
using support::read_text;
using support::run;

class Ranks : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  const std::string& model() const { return tiny_.path(); }

  model::Shape shape() const {
    const auto source = serve::open_source(model());
    EXPECT_TRUE(source) << source.error().text();
    return source ? source->shape : model::Shape{};
  }

  std::vector<std::string> words(const std::string& command, const std::string& ranks) const {
    return {support::tutti_program,
            command,
            model(),
            "--json",
            "--device",
            "cpu",
            "--cache",
            "32MiB",
            "--threads",
            "1",
            "--tensor-parallel",
            ranks};
  }

  // Answers when it returns.
  void start(const std::string& ranks, const std::vector<std::string>& more = {}) {
    auto all = words("engine", ranks);
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), {"--listen", "127.0.0.1:0", "--name", "tiny"});
    engine_ = std::make_unique<support::Process>(all, file("engine"));
    ASSERT_TRUE(support::eventually([&] { return has(read_text(file("engine")), "\n"); }))
        << read_text(file("engine.err"));
    const Json told = Json::parse(support::lines_of(read_text(file("engine"))).front(), nullptr, false);
    url_ = told.value("url", "");
    EXPECT_TRUE(told.value("memory", "").starts_with(ranks + " ranks, each cpu")) << told;
  }

  std::string post(const Json& body) const {
    const auto done =
        run({"curl", "-sS", "--max-time", "100", "-N", url_ + "/completions", "-d", body.dump()});
    return done.out + done.err;
  }

  // Processes of this model but the engine itself; `which`: part of their options.
  std::vector<pid_t> ranks(const std::string& which = "") const {
    std::vector<pid_t> found;
    for (const pid_t pid : support::processes_naming(model())) {
      if (has(read_text("/proc/" + std::to_string(pid) + "/cmdline"), "\"rank\":" + which))
        found.push_back(pid);
    }
    return found;
  }

  // It ends by itself, says once why, and leaves nobody behind.
  void expect_failure_of(const std::string& rank) {
    EXPECT_EQ(engine_->wait(), 1) << read_text(file("engine.err"));
    const std::string said = read_text(file("engine.err"));
    EXPECT_TRUE(has(said, rank)) << said;
    const std::string own = "tutti: " + model() + " : ";  // ranks may have a word of their own
    EXPECT_NE(said.find(own), std::string::npos) << said;
    EXPECT_EQ(said.find(own), said.rfind(own)) << said;
    EXPECT_TRUE(ranks().empty());
  }

  // A long answer is under way, a rank is sent the signal, perhaps the engine another one, and what the
  // client then hears is returned.
  std::string signalled_while_answering(const std::string& rank, int number, int of_engine = 0) {
    const Json body{{"prompt", "Once"}, {"max_tokens", 30'000}, {"temperature", 0}, {"stream", true}};
    support::Process client(
        {"curl", "-sS", "-N", "--max-time", "100", url_ + "/completions", "-d", body.dump()}, file("client"));
    EXPECT_TRUE(support::eventually([&] { return has(read_text(file("client")), "data: {"); }));
    const auto found = ranks(rank);
    EXPECT_EQ(found.size(), 1U);
    if (found.size() == 1) ::kill(found.front(), number);
    if (of_engine != 0) engine_->signal(of_engine);
    client.wait();
    return read_text(file("client"));
  }

  support::TempFolder folder_;
  static constexpr std::int64_t context = 32'768;
  serve::cpu::TinyFolder tiny_{256, context, tokenizer::Tokenizer::bytes().json()};
  std::unique_ptr<support::Process> engine_;
  std::string url_;
};

TEST_F(Ranks, WriteWhatOneProcessWrites) {
  std::vector<std::string> texts;
  for (const char* const count : {"1", "2", "4"}) {
    auto all = words("generate", count);
    all.insert(all.end(), {"--prompt", "Once upon", "--tokens", "60", "--temperature", "0"});
    const auto done = run(all);
    ASSERT_EQ(done.exit_code, 0) << done.err;
    texts.push_back(Json::parse(done.out, nullptr, false).value("text", ""));
    EXPECT_FALSE(texts.back().empty()) << done.out;
    EXPECT_TRUE(ranks().empty()) << "they end with it";
  }
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[2], texts[0]);
}

TEST_F(Ranks, WithAnAdapterWriteWhatOneProcessWrites) {
  const serve::lora::MadeAdapter made(shape(), {});
  std::vector<std::string> texts;
  for (const char* const count : {"1", "2", "4"}) {
    auto all = words("generate", count);
    all.insert(all.end(), {"--prompt", "Once upon", "--tokens", "60", "--temperature", "0", "--adapter",
                           "polite=" + made.path()});
    const auto done = run(all);
    ASSERT_EQ(done.exit_code, 0) << done.err;
    texts.push_back(Json::parse(done.out, nullptr, false).value("text", ""));
    EXPECT_FALSE(texts.back().empty()) << done.out;
  }
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[2], texts[0]);
  auto plain = words("generate", "1");
  plain.insert(plain.end(), {"--prompt", "Once upon", "--tokens", "60", "--temperature", "0"});
  EXPECT_NE(Json::parse(run(plain).out, nullptr, false).value("text", ""), texts[0]);
}

// Ranks share a GPU where there are not enough of them.
TEST_F(Ranks, OnGpusWriteWhatOneProcessWrites) {
  if (!TUTTI_HAS_WORKER) GTEST_SKIP() << "libtorch was not found, so tutti-worker is not built";
  const serve::lora::MadeAdapter made(shape(), {});
  for (const bool is_adapted : {false, true}) {
    std::vector<std::string> texts;
    for (const char* const count : {"1", "2"}) {
      std::vector<std::string> all{support::tutti_program,
                                   "generate",
                                   model(),
                                   "--json",
                                   "--device",
                                   "cuda",
                                   "--weights",
                                   "f32",
                                   "--tensor-parallel",
                                   count,
                                   "--prompt",
                                   "Once upon",
                                   "--tokens",
                                   "60",
                                   "--temperature",
                                   "0"};
      if (is_adapted) all.insert(all.end(), {"--adapter", "polite=" + made.path()});
      const auto done = run(all);
      if (texts.empty() && (has(done.err, "no GPU") || has(done.err, "without CUDA")))
        GTEST_SKIP() << done.err;
      ASSERT_EQ(done.exit_code, 0) << done.err;
      texts.push_back(Json::parse(done.out, nullptr, false).value("text", ""));
      EXPECT_TRUE(ranks().empty()) << "they end with it";
    }
    EXPECT_EQ(texts[1], texts[0]) << (is_adapted ? "with an adapter" : "");
  }
}

TEST_F(Ranks, AnswerOverHttpAndEndWithTheEngine) {
  start("2");
  EXPECT_EQ(ranks().size(), 2U);
  const Json body{{"prompt", "Once"}, {"max_tokens", 8}, {"temperature", 0}, {"ignore_eos", true}};
  const Json answer = Json::parse(post(body), nullptr, false);
  ASSERT_TRUE(answer.is_object() && answer.contains("usage")) << answer;
  EXPECT_EQ(answer["usage"]["completion_tokens"], 8);
  engine_->signal(SIGTERM);
  EXPECT_EQ(engine_->wait(), 0) << read_text(file("engine.err"));
  EXPECT_TRUE(ranks().empty());
}

TEST_F(Ranks, OneThatIsKilledIsNamedAndNoneIsLeft) {
  start("2");
  const std::string heard = signalled_while_answering("1", SIGKILL);
  EXPECT_TRUE(has(heard, "rank 1")) << heard.substr(heard.size() > 2000 ? heard.size() - 2000 : 0);
  EXPECT_TRUE(support::eventually([&] { return ranks().empty(); }));
  expect_failure_of("rank 1");
}

// Nobody asks for anything: whoever looks after the engine finds it ended all the same.
TEST_F(Ranks, OneThatIsKilledWhileNobodyAsksEndsTheEngine) {
  start("2");
  const auto found = ranks("1");
  ASSERT_EQ(found.size(), 1U);
  ::kill(found.front(), SIGKILL);
  expect_failure_of("rank 1");
}

TEST_F(Ranks, OneThatHangsIsNamedAndNoneIsLeft) {
  start("2");
  const std::string heard = signalled_while_answering("0", SIGSTOP);
  EXPECT_TRUE(has(heard, "rank 0")) << heard.substr(heard.size() > 2000 ? heard.size() - 2000 : 0);
  expect_failure_of("rank 0");
}

// Its client is told before the ranks are ended, and both within the time to drain.
TEST_F(Ranks, OneThatHangsDoesNotHoldUpTheEnd) {
  start("2", {"--drain-time", "1s"});
  const std::string heard = signalled_while_answering("1", SIGSTOP, SIGTERM);
  EXPECT_TRUE(has(heard, "this engine is about to stop"))
      << heard.substr(heard.size() > 2000 ? heard.size() - 2000 : 0);
  EXPECT_FALSE(has(heard, "does not answer")) << "the end did not wait for it";
  EXPECT_EQ(engine_->wait(), 0) << read_text(file("engine.err"));
  EXPECT_TRUE(ranks().empty());
}

TEST_F(Ranks, AnEngineThatIsKilledLeavesNoneBehind) {
  start("2");
  engine_->signal(SIGKILL);
  EXPECT_EQ(engine_->wait(), 128 + SIGKILL);
  EXPECT_TRUE(support::eventually([&] { return ranks().empty(); }));
}

TEST_F(Ranks, WhatCannotBeSharedIsRefusedByName) {
  const auto done = run(words("generate", "3"));
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_TRUE(has(done.err, "its 4 heads cannot be shared by 3 ranks")) << done.err;
  EXPECT_EQ(run(words("generate", "0")).exit_code, 2);
  EXPECT_EQ(run({support::tutti_program, "model", model(), "{}"}).exit_code, 2) << "nobody has started it";
  auto little = words("generate", "2");
  little.insert(little.end(), {"--context", "99999", "--weights", "f3"});
  const auto wrong = run(little);
  EXPECT_EQ(wrong.exit_code, 2) << wrong.err;
  EXPECT_TRUE(has(wrong.err, "'f3' is no type of weights")) << "said by a rank: " << wrong.err;
  EXPECT_TRUE(ranks().empty());
}

}  // namespace
}  // namespace tutti
