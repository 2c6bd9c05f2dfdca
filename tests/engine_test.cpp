// A model that answers, as a user meets it: `tutti engine`, curl, `tutti chat` and `tutti generate`.
#include <fcntl.h>
#include <netinet/in.h>
#include <pty.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "learn/tokenizer/tokenizer.hpp"
#include "serve/cpu/tiny_folder_test.hpp"
#include "serve/load/load.hpp"
#include "serve/lora/made_adapter_test.hpp"
#include "serve/remote/remote.hpp"
#include "support/process.hpp"

namespace tutti {
namespace {

using Json = nlohmann::json;
using support::has;
using support::read_text;
using support::run;

std::uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(socket, any, size), 0);
  EXPECT_EQ(::getsockname(socket, any, &size), 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

class EngineProgram : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  const std::string& model() const { return tiny_.path(); }

  // Its address, when it answers.
  void start(std::vector<std::string> flags = {}) {
    std::vector<std::string> words{support::tutti_program,
                                   "engine",
                                   model(),
                                   "--listen",
                                   "127.0.0.1:0",
                                   "--name",
                                   "tiny",
                                   "--json",
                                   "--device",
                                   "cpu",
                                   "--cache",
                                   "32MiB",
                                   "--threads",
                                   "1"};
    words.insert(words.end(), flags.begin(), flags.end());
    engine_ = std::make_unique<support::Process>(words, file("engine"));
    ASSERT_TRUE(support::eventually([&] { return has(read_text(file("engine")), "\n"); }))
        << read_text(file("engine.err"));
    const Json told = Json::parse(support::lines_of(read_text(file("engine"))).front(), nullptr, false);
    url_ = told.value("url", "");
    ASSERT_TRUE(url_.starts_with("http://127.0.0.1:")) << told;
    EXPECT_EQ(told.value("model", ""), "tiny");
  }

  std::string curl(const std::vector<std::string>& words) const {
    std::vector<std::string> all{"curl", "-sS", "--max-time", "60"};
    all.insert(all.end(), words.begin(), words.end());
    const auto done = run(all);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.out;
  }
  Json post(const std::string& path, const Json& body) const {
    const std::string text = curl({url_ + path, "-H", "Content-Type: application/json", "-d", body.dump()});
    const Json answer = Json::parse(text, nullptr, false);
    EXPECT_TRUE(answer.is_object()) << text;
    return answer;
  }

  support::TempFolder folder_;
  // Seconds of answering, for those who stop it; and no token that would end it before.
  static constexpr std::int64_t context = 32'768;
  serve::cpu::TinyFolder tiny_{256, context, tokenizer::Tokenizer::bytes().json()};
  std::unique_ptr<support::Process> engine_;
  std::string url_;
};

TEST_F(EngineProgram, AnswersCurlAndDrainsWhenAsked) {
  start();
  EXPECT_EQ(Json::parse(curl({url_ + "/models"}))["data"][0]["id"], "tiny");
  const Json body{{"prompt", "Once"}, {"max_tokens", 8}, {"temperature", 0}, {"ignore_eos", true}};
  const Json whole = post("/completions", body);
  ASSERT_TRUE(whole.contains("choices")) << whole;
  EXPECT_EQ(whole["usage"]["completion_tokens"], 8);
  const std::string stream =
      curl({"-N", url_ + "/chat/completions", "-d",
            R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":4})"});
  EXPECT_TRUE(stream.starts_with("data: {")) << stream;
  EXPECT_TRUE(has(stream, "data: [DONE]")) << stream;
  EXPECT_TRUE(has(curl({"-i", url_ + "/completions", "-d", "{"}), "HTTP/1.1 400"));
  engine_->signal(SIGTERM);
  EXPECT_EQ(engine_->wait(), 0) << read_text(file("engine.err"));
}

TEST_F(EngineProgram, ASecondSignalEndsItAtOnceAndItsExitCodeSaysSo) {
  start({"--drain-time", "1h"});
  const Json body{
      {"prompt", "Once"}, {"n", 4}, {"max_tokens", 30'000}, {"ignore_eos", true}, {"stream", true}};
  support::Process asking(
      {"curl", "-sSN", url_ + "/completions", "-H", "Content-Type: application/json", "-d", body.dump()},
      file("answer"));
  ASSERT_TRUE(support::eventually([&] { return has(read_text(file("answer")), "data: {"); }))
      << read_text(file("answer")) << read_text(file("answer.err"));
  const std::string health = url_.substr(0, url_.rfind("/v1")) + "/health";
  engine_->signal(SIGTERM);
  ASSERT_TRUE(support::eventually([&] { return has(curl({"-i", health}), "HTTP/1.1 503"); }));
  engine_->signal(SIGINT);
  EXPECT_EQ(engine_->wait(), 130) << read_text(file("engine.err"));
  EXPECT_TRUE(has(read_text(file("engine.err")), "ended before all requests were answered"));
  EXPECT_NE(asking.wait(), 0) << "its answer was cut";
}

TEST_F(EngineProgram, ATerminalThatIsClosedDrainsIt) {
  start();
  engine_->signal(SIGHUP);
  EXPECT_EQ(engine_->wait(), 0) << read_text(file("engine.err"));
}

// As in `tutti engine MODEL | head -1`.
TEST_F(EngineProgram, WhoeverReadsWhatItSaysMayGo) {
  const std::string pipe = file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  engine_ = std::make_unique<support::Process>(
      std::vector<std::string>{support::tutti_program, "engine", model(), "--listen", address, "--device",
                               "cpu", "--cache", "32MiB", "--threads", "1"},
      pipe);
  ASSERT_TRUE(support::eventually([&] { return std::filesystem::exists(pipe + ".err"); }));
  ::close(reader);
  const std::vector<std::string> ask{"curl",       "-sS", "--fail",
                                     "--max-time", "60",  "http://" + address + "/health"};
  EXPECT_TRUE(support::eventually([&] { return run(ask).exit_code == 0; })) << read_text(pipe + ".err");
  engine_->signal(SIGTERM);
  EXPECT_EQ(engine_->wait(), 1);
  EXPECT_TRUE(has(read_text(pipe + ".err"), "standard output : ")) << read_text(pipe + ".err");
}

TEST_F(EngineProgram, GenerateWritesWhatTheEngineAnswers) {
  start();
  const Json answer = post("/completions", {{"prompt", "Once upon"}, {"max_tokens", 40}, {"temperature", 0}});
  const auto generated = run({support::tutti_program, "generate", model(), "--device", "cpu", "--prompt",
                              "Once upon", "--tokens", "40", "--temperature", "0", "--json"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  const Json told = Json::parse(generated.out, nullptr, false);
  ASSERT_TRUE(told.is_object()) << generated.out;
  EXPECT_EQ(told["text"], answer["choices"][0]["text"]);
  EXPECT_EQ(told["completion_tokens"], answer["usage"]["completion_tokens"]);
}

TEST_F(EngineProgram, AnAdapterAnswersWhoNamesIt) {
  const auto source = serve::open_source(model());
  ASSERT_TRUE(source) << source.error().text();
  const serve::lora::MadeAdapter made(source->shape, {});
  const std::string flag = "polite=" + made.path();
  start({"--adapter", flag, "--adapter", "other=" + made.path()});
  EXPECT_EQ(Json::parse(curl({url_ + "/models"}))["data"][1]["parent"], "tiny");
  Json body{{"prompt", "Once upon"}, {"max_tokens", 20}, {"temperature", 0}};
  const Json plain = post("/completions", body);
  body["model"] = "polite";
  const Json adapted = post("/completions", body);
  EXPECT_EQ(adapted["model"], "polite");
  EXPECT_NE(adapted["choices"][0]["text"], plain["choices"][0]["text"]);
  body["model"] = "impolite";
  EXPECT_EQ(post("/completions", body)["error"]["code"], "model_not_found");
  const std::vector<std::string> generate{support::tutti_program,
                                          "generate",
                                          model(),
                                          "--device",
                                          "cpu",
                                          "--prompt",
                                          "Once upon",
                                          "--tokens",
                                          "20",
                                          "--temperature",
                                          "0",
                                          "--json",
                                          "--adapter",
                                          flag};
  const auto generated = run(generate);
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_EQ(Json::parse(generated.out, nullptr, false)["text"], adapted["choices"][0]["text"]);

  made.write("adapter_config.json", R"({"peft_type":"LORA","r":4,"lora_alpha":8,"use_dora":true})");
  const auto refused = run(generate);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has(refused.err, "use_dora")) << refused.err;
  EXPECT_EQ(run({support::tutti_program, "generate", model(), "--adapter", "polite"}).exit_code, 2);
}

TEST_F(EngineProgram, WithAKeyOnlyWhoHasItIsAnswered) {
  support::write_text(file("key"), "0123456789abcdef0123456789abcdef\n");
  ASSERT_EQ(::chmod(file("key").c_str(), 0600), 0);
  start({"--key-file", file("key")});
  EXPECT_TRUE(has(curl({"-i", url_ + "/models"}), "HTTP/1.1 401"));
  EXPECT_TRUE(
      has(curl({url_ + "/models", "-H", "Authorization: Bearer 0123456789abcdef0123456789abcdef"}), "tiny"));
  const std::string script =
      "printf 'hello\\n' | '" + support::tutti_program + "' chat '" + url_ + "' --tokens 4";
  EXPECT_EQ(run({"sh", "-c", script}).exit_code, 1) << "it has no key";
  EXPECT_EQ(run({"sh", "-c", script + " --key-file '" + file("key") + "'"}).exit_code, 0);
}

TEST_F(EngineProgram, RefusesWhatIsWrong) {
  const auto refused = [&](std::vector<std::string> words, const std::string& part, int exit_code = 2) {
    words.insert(words.begin(), {support::tutti_program, "engine"});
    const auto done = run(words);
    EXPECT_EQ(done.exit_code, exit_code) << done.err;
    EXPECT_TRUE(has(done.err, part)) << done.err;
  };
  refused({}, "missing MODEL");
  refused({"/nowhere", "--listen", "127.0.0.1:0"}, "there is no such folder");
  refused({folder_.path(), "--listen", "127.0.0.1:0"}, "it is no model");
  refused({model(), "--listen", "0.0.0.0:0"}, "--key-file");
  refused({model(), "--listen", "nowhere"}, "--listen");
  refused({model(), "--listen", "127.0.0.1:0", "--device", "abacus"}, "is no device");
  refused({model(), "--listen", "127.0.0.1:0", "--device", "cpu", "--weights", "f3"}, "f3");
  refused({model(), "--listen", "127.0.0.1:0", "--tls-key", file("k")},
          "a certificate and its key go together");
  refused({model(), "--listen", "127.0.0.1:0", "--device", "cpu", "--cache", "1K"}, "--cache");
  refused({model(), "--listen", "127.0.0.1:0", "--device", "cpu", "--cache", "0"},
          "leave it out for a share of what is free");
  refused({model(), "--listen", "127.0.0.1:0", "--key-file", ""}, "--key-file");
  refused({model(), "--listen", "127.0.0.1:0", "--tls-certificate", "", "--tls-key", ""},
          "--tls-certificate");
  for (const char* const flag : {"--context", "--sequences", "--threads", "--requests", "--connections",
                                 "--tensor-parallel", "--max-batch", "--instances"})
    refused({model(), "--listen", "127.0.0.1:0", flag, "0"}, flag);
  refused({model(), "--listen", "127.0.0.1:0", "--context", "1"}, "--context");
  refused({model(), "--listen", "127.0.0.1:0", "--device", "cpu", "--pooling", "cls"}, "--pooling");
  refused({file("m.gguf"), "--listen", "127.0.0.1:0", "--device", "cpu"}, "llama.cpp");
  support::write_text(file("key"), "0123456789abcdef\n");
  ASSERT_EQ(::chmod(file("key").c_str(), 0644), 0);
  refused({model(), "--key-file", file("key")}, "others can read this key");
  // What a folder from anywhere claims is looked at before anything is reserved.
  tiny_.write("config.json", R"({"model_type":"llama","vocab_size":9999999999})");
  refused({model(), "--listen", "127.0.0.1:0", "--device", "cpu"}, "the model's configuration");
}

TEST_F(EngineProgram, WithTooFewFilesItSaysSoAndWithFewItServes) {
  const auto with_files = [&](int files, std::vector<std::string> words) {
    words.insert(words.begin(), {"sh", "-c", "ulimit -n $0 && exec \"$@\"", std::to_string(files)});
    return words;
  };
  const std::vector<std::string> words{support::tutti_program,
                                       "engine",
                                       model(),
                                       "--listen",
                                       "127.0.0.1:0",
                                       "--device",
                                       "cpu",
                                       "--cache",
                                       "32MiB",
                                       "--json",
                                       "--threads",
                                       "1"};
  for (int files = 6; files <= 26; files += 2) {
    const auto done = run(with_files(files, words));
    EXPECT_EQ(done.exit_code, 1) << files << ": " << done.err;
    EXPECT_TRUE(has(done.err, "ulimit -n")) << files << ": " << done.err;
  }
  const support::Process engine(with_files(32, words), file("few"));
  ASSERT_TRUE(support::eventually([&] { return has(read_text(file("few")), "\n"); }))
      << read_text(file("few.err"));
  const Json told = Json::parse(support::lines_of(read_text(file("few"))).front(), nullptr, false);
  EXPECT_TRUE(has(curl({told.value("url", "") + "/completions", "-d", R"({"prompt":"a","max_tokens":2})"}),
                  "\"finish_reason\""));
}

// What a newcomer meets first.
TEST_F(EngineProgram, SaysWhatToDoInstead) {
  start({"--context", "99999"});
  EXPECT_TRUE(has(read_text(file("engine.err")), "is cut to the 32768 tokens"))
      << read_text(file("engine.err"));
  const std::string address = url_.substr(7, url_.rfind('/') - 7);
  const auto said = [&](std::vector<std::string> words) {
    words.insert(words.begin(), support::tutti_program);
    return run(words).err;
  };
  EXPECT_TRUE(has(said({"chat", address}), "http://" + address)) << said({"chat", address});
  EXPECT_TRUE(has(said({"chat", "http://127.0.0.1:1"}), "`tutti engine MODEL` starts a server"));
  const std::string taken = said({"engine", model(), "--listen", address, "--device", "cpu"});
  EXPECT_TRUE(has(taken, "another program may listen there") && !has(taken, "controller")) << taken;
}

TEST_F(EngineProgram, ABenchmarkWithoutSizesFitsAShortContext) {
  start({"--context", "64"});
  const auto done = run(
      {support::tutti_program, "bench", "serve", url_, "--requests", "2", "--concurrency", "1", "--json"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(Json::parse(done.out, nullptr, false).value("answered", 0), 2) << done.out;
  const auto wrong = run({support::tutti_program, "bench", "serve", url_, "--prompt-tokens", "100"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(has(wrong.err, "--prompt-tokens")) << wrong.err;
}

TEST_F(EngineProgram, ABenchmarkAsksAsATraceDoesOrAtARate) {
  start();
  const auto bench = [&](std::vector<std::string> flags) {
    std::vector<std::string> words{support::tutti_program, "bench", "serve", url_, "--json"};
    words.insert(words.end(), flags.begin(), flags.end());
    return run(words);
  };
  const auto told = [&](std::vector<std::string> flags) {
    const auto done = bench(std::move(flags));
    EXPECT_EQ(done.exit_code, 0) << done.err;
    Json report = Json::parse(done.out, nullptr, false);
    EXPECT_TRUE(report.is_object()) << done.out;
    return report.is_object() ? report : Json::object();
  };
  const auto tokens = [](const Json& report, const char* of) {
    return std::lround(report.value(of, 0.0) * report.value("seconds", 0.0));
  };
  // Out of order, and the last one larger than the context that it is cut to.
  support::write_text(file("trace.csv"),
                      "arrival_s,input_tokens,output_tokens\n1000.4,40,7\n1000,5,3\n1000.2,9000,9000\n");
  const Json replayed = told({"--trace", file("trace.csv"), "--context", "64", "--speed", "2"});
  EXPECT_EQ(replayed.value("answered", 0), 3) << replayed;
  EXPECT_EQ(tokens(replayed, "output_tokens_per_second"), 7 + 3 + 32) << replayed;
  EXPECT_EQ(tokens(replayed, "prompt_tokens_per_second"), 40 + 5 + 32) << replayed;
  EXPECT_GE(replayed.value("seconds", 0.0), 0.2) << "the last one comes then";
  const Json some = told({"--trace", file("trace.csv"), "--context", "64", "--requests", "2"});
  EXPECT_EQ(some.value("answered", 0), 2) << some;
  const Json even = told({"--rate", "50", "--requests", "4", "--prompt-tokens", "6", "--output-tokens", "5",
                          "--concurrency", "4"});
  EXPECT_EQ(even.value("answered", 0), 4) << even;
  EXPECT_EQ(tokens(even, "output_tokens_per_second"), 4 * 5) << even;

  const auto refused = [&](std::vector<std::string> flags, const std::string& why) {
    const auto done = bench(std::move(flags));
    EXPECT_EQ(done.exit_code, 2) << done.err;
    EXPECT_TRUE(has(done.err, why)) << done.err;
  };
  refused({"--trace", file("trace.csv"), "--rate", "1"}, "--trace and --rate exclude each other");
  refused({"--trace", file("trace.csv"), "--speed", "0"}, "--speed is above 0");
  support::write_text(file("odd.csv"), "arrival_s,input_tokens,output_tokens\n1,many,3\n");
  refused({"--trace", file("odd.csv")}, "'many' is no input_tokens");
  support::write_text(file("other.csv"), "arrival_s,tokens\n1,2\n");
  refused({"--trace", file("other.csv")}, "has no column input_tokens");
}

TEST_F(EngineProgram, AChatWhoseContextIsFullSaysHowToGoOn) {
  start({"--context", "96"});
  const auto done = run({"sh", "-c",
                         "printf 'hello\\n" + std::string(40, 'a') + "\\n' | '" + support::tutti_program +
                             "' chat '" + url_ + "' --tokens 8"});
  EXPECT_TRUE(has(done.err, "/clear forgets what was said")) << done.err << done.out;
}

TEST_F(EngineProgram, ChatsWithAModelOfItsOwnAndEndsIt) {
  const auto talk = [&](const std::string& lines) {
    return run({"sh", "-c",
                "printf '" + lines + "' | '" + support::tutti_program + "' chat '" + model() +
                    "' --device cpu --tokens 20 --temperature 0 --cache 32MiB --threads 1"});
  };
  const auto talked = talk("hello\\n/nothing\\n");
  EXPECT_EQ(talked.exit_code, 0) << talked.err;
  EXPECT_TRUE(has(talked.err, "there is no /nothing")) << talked.err;
  EXPECT_FALSE(talked.out.empty());
  const std::string brief = talk("/system be brief\\nhello\\n").out;
  EXPECT_NE(brief, talked.out) << "the model was told";
  EXPECT_EQ(talk("/system be brief\\n/system\\nhello\\n").out, talked.out) << "and it was taken back";
  EXPECT_EQ(talk("hello\\n/clear\\nhello\\n").out, talked.out + talked.out) << "nothing is left of it";
  EXPECT_NE(talk("hello\\nhello\\n").out, talked.out + talked.out);
}

// Ctrl-C while an answer comes stops it and not the conversation; Ctrl-D leaves.
TEST_F(EngineProgram, ChatStopsAnAnswerAtCtrlC) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::execl(support::tutti_program.c_str(), "tutti", "chat", model().c_str(), "--device", "cpu", "--threads",
            "1", "--cache", "32MiB", nullptr);
    ::_exit(127);
  }
  std::string seen;
  const auto read_until = [&](const std::function<bool()>& enough) {
    char buffer[4096];
    for (ssize_t got = 0; !enough() && (got = ::read(terminal, buffer, sizeof buffer)) > 0;)
      seen.append(buffer, static_cast<std::size_t>(got));
  };
  const auto type = [&](const std::string& text) {
    EXPECT_EQ(::write(terminal, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  read_until([&] { return seen.ends_with("> "); });
  type("hello\n");
  const std::size_t asked = seen.size();
  read_until([&] { return seen.size() > asked + 20; });
  type("\x03");
  read_until([&] { return seen.ends_with("\n> "); });
  EXPECT_LT(seen.size() - asked, static_cast<std::size_t>(context / 2)) << "it was stopped";
  type("/help\n");
  read_until([&] { return has(seen, "Ctrl-D         leaves") && seen.ends_with("> "); });
  type("\x04");
  read_until([] { return false; });
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ::close(terminal);
}

TEST_F(EngineProgram, AModelInTheWorkerComputesTheSameBits) {
  if (!TUTTI_HAS_WORKER) GTEST_SKIP() << "libtorch was not found, so tutti-worker is not built";
  const serve::LoadOptions options{.threads = 1, .cache_bytes = 32 << 20, .step_rows_max = 2};
  const auto source = serve::open_source(model());
  ASSERT_TRUE(source) << source.error().text();
  auto here = serve::make_model(*source, options);
  ASSERT_TRUE(here) << here.error().text();
  const std::string worker = TUTTI_BUILD_DIR "/bin/tutti-worker";
  auto there = serve::remote::open_model({worker, "model", model(), serve::write_options(options)});
  ASSERT_TRUE(there) << there.error().text();
  EXPECT_EQ((*there)->limits().blocks, (*here)->limits().blocks);
  EXPECT_EQ((*there)->describe(), (*here)->describe());
  const std::vector<serve::Token> tokens{1, 2, 3, 4, 5};
  const std::vector<serve::BlockId> blocks{0};
  const serve::Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = 1};
  const serve::Choice choice{.temperature = 0.9F, .uniform = 0.37, .logprobs = 3};
  for (serve::Model* const each : {here->get(), there->get()}) ASSERT_TRUE(each->step({&chunk, 1}));
  const auto chosen_here = (*here)->choose({&choice, 1});
  const auto chosen_there = (*there)->choose({&choice, 1});
  ASSERT_TRUE(chosen_here && chosen_there) << chosen_there.error().text();
  EXPECT_EQ(chosen_here->front().token, chosen_there->front().token);
  EXPECT_EQ(*(*here)->logits(0), *(*there)->logits(0));
  // What the worker cannot load, it tells.
  const auto none = serve::remote::open_model({worker, "model", "/nowhere", serve::write_options(options)});
  ASSERT_FALSE(none);
  EXPECT_TRUE(has(none.error().text(), "there is no such folder")) << none.error().text();
}

// The worker of a GPU, on a CPU: a script beside a tutti of its own, which tells its number.
TEST_F(EngineProgram, AWorkerThatIsKilledIsStartedAgain) {
  if (!TUTTI_HAS_WORKER) GTEST_SKIP() << "libtorch was not found, so tutti-worker is not built";
  namespace fs = std::filesystem;
  fs::copy_file(support::tutti_program, file("tutti"));
  support::write_text(file("tutti-worker"),
                      "#!/bin/sh\necho $$ > '" + file("number.new") + "'\nmv '" + file("number.new") + "' '" +
                          file("number") +
                          "'\nexec '" TUTTI_BUILD_DIR
                          "/bin/tutti-worker' \"$1\" \"$2\" \"$(printf %s \"$3\" | sed s/cuda/cpu/)\"\n");
  fs::permissions(file("tutti-worker"), fs::perms::owner_all);
  engine_ = std::make_unique<support::Process>(
      std::vector<std::string>{file("tutti"), "engine", model(), "--listen", "127.0.0.1:0", "--name", "tiny",
                               "--json", "--device", "cuda", "--cache", "32MiB", "--context", "256",
                               "--threads", "1"},
      file("engine"));
  ASSERT_TRUE(support::eventually([&] { return has(read_text(file("engine")), "\n"); }))
      << read_text(file("engine.err"));
  url_ = Json::parse(support::lines_of(read_text(file("engine"))).front(), nullptr, false).value("url", "");
  const std::string health = url_.substr(0, url_.size() - 3) + "/health";
  const Json body{{"prompt", "Once"}, {"max_tokens", 8}, {"temperature", 0}, {"ignore_eos", true}};
  const Json before = post("/completions", body);
  ASSERT_TRUE(before.contains("choices")) << before;

  const std::string number = read_text(file("number"));
  ASSERT_GT(std::stoi(number), 1);
  ASSERT_EQ(::kill(std::stoi(number), SIGKILL), 0);
  ASSERT_TRUE(support::eventually([&] { return read_text(file("number")) != number; }))
      << "another one is started";
  ASSERT_TRUE(support::eventually([&] {
    return has(curl({"-i", health}), "HTTP/1.1 200");
  })) << read_text(file("engine.err"));
  EXPECT_EQ(post("/completions", body)["choices"], before["choices"]);
  EXPECT_TRUE(has(read_text(file("engine.err")), "the model is there again"))
      << read_text(file("engine.err"));
  engine_->signal(SIGTERM);
  EXPECT_EQ(engine_->wait(), 0) << read_text(file("engine.err"));
}

}  // namespace
}  // namespace tutti
