// Several engines behind one address, as a user meets it: `tutti gateway`.
#include <signal.h>

#include <filesystem>
#include <map>
#include <memory>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "learn/tokenizer/tokenizer.hpp"
#include "net/http/client.hpp"
#include "serve/cpu/tiny_folder_test.hpp"
#include "support/process.hpp"

namespace tutti {
namespace {

using Json = nlohmann::json;
using support::eventually;
using support::has;
using support::read_text;
using support::run;

class GatewayProgram : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  // Its URL without /v1, when it has said so.
  std::string start(const std::string& name, const std::vector<std::string>& words) {
    std::vector<std::string> all{support::tutti_program};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"--listen", "127.0.0.1:0", "--json"});
    programs_[name] = std::make_unique<support::Process>(all, file(name));
    EXPECT_TRUE(eventually([&] { return has(read_text(file(name)), "\n"); }))
        << read_text(file(name + ".err"));
    const Json told = Json::parse(support::lines_of(read_text(file(name))).front(), nullptr, false);
    const std::string url = told.value("url", "");
    return url.substr(0, url.rfind("/v1"));
  }
  std::string start_engine(const std::string& name) {
    return start(name, {"engine", tiny_.path(), "--name", "tiny", "--device", "cpu", "--cache", "32MiB",
                        "--threads", "1"});
  }
  std::string start_gateway(const std::vector<std::string>& engines, std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), "gateway");
    for (const std::string& engine : engines) flags.insert(flags.end(), {"--backend", engine});
    return start("gateway", flags);
  }
  bool said(const std::string& words) {
    return eventually([&] { return has(read_text(file("gateway.err")), words); });
  }
  static std::string curl(const std::vector<std::string>& words) {
    std::vector<std::string> all{"curl", "-sS", "--max-time", "60"};
    all.insert(all.end(), words.begin(), words.end());
    const auto done = run(all);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.out;
  }
  // The text of a stream, and how many events it had; `heard` runs behind each.
  static std::string text_of(const std::string& url, const Json& body,
                             const std::function<void(int)>& heard = nullptr) {
    auto target = net::parse_target(url.substr(std::string("http://").size()));
    EXPECT_TRUE(target) << url;
    net::Client client(*target, "");
    std::string text;
    int events = 0;
    const auto done = client.events(
        "POST", "/v1/completions", body.dump(),
        [&](std::string_view, std::string_view data) {
          if (data == "[DONE]") return true;
          const Json chunk = Json::parse(data, nullptr, false);
          EXPECT_FALSE(chunk.contains("error")) << data;
          if (chunk.contains("choices") && !chunk["choices"].empty())
            text += chunk["choices"][0].value("text", "");
          if (heard) heard(++events);
          return true;
        },
        [] { return true; });
    EXPECT_TRUE(done) << (done ? "" : done.error().text());
    return text;
  }

  support::TempFolder folder_;
  // Seconds of answering, for those who end it in the middle.
  static constexpr std::int64_t context = 32'768;
  serve::cpu::TinyFolder tiny_{256, context, tokenizer::Tokenizer::bytes().json()};
  std::map<std::string, std::unique_ptr<support::Process>> programs_;
};

TEST_F(GatewayProgram, EnginesThatAreKilledCostNoAnswerAndNoWordOfAStream) {
  std::map<std::string, std::string> engines;
  for (const char* const name : {"a", "b", "c"}) engines[name] = start_engine(name);
  const std::string url = start_gateway({engines["a"], engines["b"], engines["c"]});
  for (const auto& [name, address] : engines)
    ASSERT_TRUE(said(address.substr(std::string("http://").size()) + " answers: tiny"));
  EXPECT_EQ(Json::parse(curl({url + "/v1/models"}))["data"].size(), 1U);
  const Json body{{"model", "tiny"}, {"prompt", "Once"},   {"max_tokens", 20'000}, {"temperature", 1},
                  {"seed", 11},      {"ignore_eos", true}, {"stream", true}};
  const std::string expected = text_of(engines["c"], body);
  const auto is_busy = [&](const std::string& name) {
    return has(curl({engines[name] + "/metrics"}), "tutti_engine_requests_unfinished 1");
  };
  std::string killed;
  const std::string text = text_of(url, body, [&](int events) {
    if (events != 5) return;
    for (const char* const name : {"a", "b", "c"}) {
      if (!killed.empty() || !is_busy(name)) continue;
      killed = name;
      programs_[name]->signal(SIGKILL);
      programs_[name]->wait();
    }
  });
  ASSERT_FALSE(killed.empty());
  EXPECT_EQ(text, expected);
  EXPECT_TRUE(has(curl({url + "/metrics"}), "tutti_gateway_streams_continued_total 1"));
  EXPECT_TRUE(said(engines[killed].substr(std::string("http://").size()) + " cannot be asked: "));
  // Another one is killed, and nobody who asks meanwhile hears of it.
  const char* const next = killed == "a" ? "b" : "a";
  programs_[next]->signal(SIGKILL);
  for (int times = 0; times < 10; ++times) {
    const Json answer =
        Json::parse(curl({url + "/v1/completions", "-d", R"({"prompt":"x","max_tokens":2})"}));
    EXPECT_TRUE(answer.contains("choices")) << answer;
  }
  programs_["gateway"]->signal(SIGTERM);
  EXPECT_EQ(programs_["gateway"]->wait(), 0) << read_text(file("gateway.err"));
}

TEST_F(GatewayProgram, SaysWhatIsWrong) {
  const auto refused = [](const std::vector<std::string>& words) {
    std::vector<std::string> all{support::tutti_program, "gateway"};
    all.insert(all.end(), words.begin(), words.end());
    const auto done = run(all);
    EXPECT_EQ(done.exit_code, 2) << done.out << done.err;
    return done.err;
  };
  const auto nobody = run({support::tutti_program, "gateway"}, {.env = {{"TUTTI_HOME", file("home")}}});
  EXPECT_EQ(nobody.exit_code, 2) << nobody.err;
  EXPECT_TRUE(has(nobody.err, "--backend http://HOST:PORT names an engine")) << nobody.err;
  EXPECT_TRUE(has(refused({"--home", file("home")}), "there is nobody to ask"));
  EXPECT_TRUE(has(refused({"--home", file("home"), "--backend", "http://127.0.0.1:1"}), "--home"));
  EXPECT_TRUE(has(refused({"--backend", "127.0.0.1"}), "--backend"));
  EXPECT_TRUE(has(refused({"--backend", "http://127.0.0.1:1", "--listen", "0.0.0.0:0"}), "--key-file"));
  EXPECT_TRUE(
      has(refused({"--backend", "http://127.0.0.1:1", "--bakend-key-file", "x"}), "--backend-key-file"));
  support::write_text(file("key"), "a-key-of-sixteen-letters\n");
  std::filesystem::permissions(file("key"), std::filesystem::perms::owner_read);
  EXPECT_TRUE(
      has(refused({"--backend", "http://192.0.2.1:80", "--backend-key-file", file("key")}), "in the clear"));
}

TEST_F(GatewayProgram, KeysOfAFileMayAskAndNobodyElse) {
  const std::string engine = start_engine("a");
  support::write_text(
      file("keys"),
      "# SHA-256 of key-of-ada-0123456789\n"
      "{\"name\":\"ada\",\"sha256\":\"0000000000000000000000000000000000000000000000000000000000"
      "000000\"}\n");
  std::filesystem::permissions(file("keys"), std::filesystem::perms(0644));
  const auto open = run({support::tutti_program, "gateway", "--backend", engine, "--keys", file("keys")});
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_TRUE(has(open.err, "chmod 600")) << open.err;
  const auto hash = run({"bash", "-c", "printf %s key-of-ada-0123456789 | sha256sum | cut -c1-64"});
  support::write_text(file("keys"), "{\"name\":\"ada\",\"sha256\":\"" + hash.out.substr(0, 64) + "\"}\n");
  std::filesystem::permissions(file("keys"), std::filesystem::perms(0600));
  const std::string url = start_gateway({engine}, {"--keys", file("keys")});
  ASSERT_TRUE(said("answers: tiny"));
  const std::vector<std::string> asks{url + "/v1/completions", "-d", R"({"prompt":"x","max_tokens":2})"};
  EXPECT_TRUE(has(curl(asks), "key is missing or wrong"));
  auto with_key = asks;
  with_key.insert(with_key.end(), {"-H", "Authorization: Bearer key-of-ada-0123456789"});
  EXPECT_TRUE(has(curl(with_key), "\"choices\""));
  const std::string logs = read_text(file("gateway")) + read_text(file("gateway.err"));
  EXPECT_FALSE(has(logs, "key-of-ada")) << logs;
}

TEST_F(GatewayProgram, AReplicaSaysWhetherItCanBeAsked) {
  const std::string key(64, 'a');
  std::filesystem::create_directory(file("secrets"));
  support::write_text(file("secrets/engine.key"), key);
  std::filesystem::permissions(file("secrets/engine.key"), std::filesystem::perms(0400));
  support::Process replica({support::tutti_program, "engine", tiny_.path(), "--name", "tiny", "--device",
                            "cpu", "--cache", "32MiB", "--threads", "1", "--replica"},
                           file("replica"),
                           {{"MASTER_ADDR", "127.0.0.1"},
                            {"TUTTI_PROGRESS_FILE", file("progress")},
                            {"TUTTI_SECRETS", file("secrets")}});
  ASSERT_TRUE(eventually([&] { return has(read_text(file("progress")), "\n"); }))
      << read_text(file("replica.err"));
  const std::string word = read_text(file("progress"));
  ASSERT_TRUE(word.starts_with("ready ")) << word;
  const std::string url = "http://127.0.0.1:" + word.substr(6, word.size() - 7);
  EXPECT_TRUE(has(curl({url + "/health"}), "\"cache_used\":"));
  EXPECT_TRUE(has(curl({url + "/v1/completions", "-d", "{}"}), "key is missing or wrong"));
  const std::string header = "Authorization: Bearer " + key;
  EXPECT_TRUE(has(curl({url + "/v1/completions", "-H", header, "-d", R"({"prompt":"x","max_tokens":2})"}),
                  "\"choices\""));
  // It drains while it has something to do, and is nobody's choice from then on.
  const support::Process reader({"curl", "-sN", url + "/v1/completions", "-H", header, "-d",
                                 R"({"prompt":"x","max_tokens":30000,"ignore_eos":true,"stream":true})"},
                                file("stream"));
  ASSERT_TRUE(eventually([&] { return has(read_text(file("stream")), "data: "); }));
  replica.signal(SIGTERM);
  EXPECT_TRUE(eventually([&] { return read_text(file("progress")).starts_with("not ready: "); }))
      << read_text(file("progress"));
}

// A cluster with a gateway of its own, and a service of it.
class ServicesOfACluster : public GatewayProgram {
 protected:
  void SetUp() override {
    const auto up = tutti({"up", "--gpus", "1"});
    ASSERT_EQ(up.exit_code, 0) << up.err;
    url_ = "http://" + support::lines_of(read_text(file("home/processes/gateway.address"))).front();
  }
  void TearDown() override {
    EXPECT_EQ(tutti({"down"}).exit_code, 0);
    for (const pid_t pid : support::processes_naming(folder_.path())) {
      ADD_FAILURE() << "process " << pid << " outlived `tutti down`";
      ::kill(pid, SIGKILL);
    }
  }
  support::Finished tutti(std::vector<std::string> words) const {
    words.insert(words.begin(), support::tutti_program);
    return run(words, {.env = {{"TUTTI_HOME", file("home")}}});
  }
  void serve(const std::string& replicas) const {
    const auto served = tutti({"serve", tiny_.path(), "--name", "tiny", "--replicas", replicas, "--engine",
                               "device=cpu", "--engine", "cache=32MiB", "--engine", "threads=1"});
    ASSERT_EQ(served.exit_code, 0) << served.out << served.err;
  }
  // The engine that has something to do, by where it says that it is ready.
  pid_t busy_engine() const {
    for (const pid_t pid : support::processes_naming("--replica")) {
      for (const std::string& entry : support::environment_of(pid)) {
        const std::string mark = "TUTTI_PROGRESS_FILE=" + file("home");
        if (!entry.starts_with(mark)) continue;
        const std::string word = read_text(entry.substr(entry.find('=') + 1));
        if (!word.starts_with("ready ")) continue;
        const std::string health =
            curl({"http://127.0.0.1:" + word.substr(6, word.find('\n') - 6) + "/health"});
        if (Json::parse(health, nullptr, false).value("running", 0) > 0) return pid;
      }
    }
    return -1;
  }
  std::string url_;
};

TEST_F(ServicesOfACluster, OneThatSleepsWakesForWhoAsks) {
  serve("0:1");
  const Json answer =
      Json::parse(curl({url_ + "/v1/completions", "-d", R"({"model":"tiny","prompt":"x","max_tokens":2})"}),
                  nullptr, false);
  EXPECT_TRUE(answer.contains("choices")) << answer;
  EXPECT_TRUE(has(curl({"-i", url_ + "/v1/completions", "-d", R"({"model":"none","prompt":"x"})"}), " 404 "));
}

TEST_F(ServicesOfACluster, AKilledReplicaCostsNoWordOfAStream) {
  serve("2:2");
  ASSERT_TRUE(eventually([&] {
    const std::string metrics = curl({url_ + "/metrics"});
    const auto first = metrics.find("backend_ready{");
    return first != std::string::npos && metrics.find("backend_ready{", first + 1) != std::string::npos &&
           !has(metrics.substr(0, metrics.find("backend_requests")), "\"} 0\n");
  })) << curl({url_ + "/metrics"});
  const Json body{{"model", "tiny"}, {"prompt", "Once"},   {"max_tokens", 20'000}, {"temperature", 1},
                  {"seed", 11},      {"ignore_eos", true}, {"stream", true}};
  const std::string expected = text_of(url_, body);
  pid_t killed = -1;
  const std::string text = text_of(url_, body, [&](int events) {
    if (events != 5) return;
    killed = busy_engine();
    if (killed > 0) ::kill(killed, SIGKILL);
  });
  ASSERT_GT(killed, 0);
  EXPECT_EQ(text, expected);
  EXPECT_TRUE(has(curl({url_ + "/metrics"}), "tutti_gateway_streams_continued_total 1"));
}

TEST_F(GatewayProgram, WhoIsNoReplicaIsToldSo) {
  const auto refused = [&](const std::vector<std::string>& flags, const std::string& progress) {
    std::vector<std::string> words{support::tutti_program, "engine", tiny_.path(), "--replica"};
    words.insert(words.end(), flags.begin(), flags.end());
    const auto done = run(words, {.env = {{"TUTTI_PROGRESS_FILE", progress}, {"MASTER_ADDR", "127.0.0.1"}}});
    EXPECT_EQ(done.exit_code, 2) << done.err;
    return done.err;
  };
  EXPECT_TRUE(has(refused({}, ""), "TUTTI_PROGRESS_FILE is not set"));
  EXPECT_TRUE(has(refused({"--listen", "127.0.0.1:1"}, file("progress")), "--listen"));
}

TEST_F(GatewayProgram, APortThatIsTakenIsNamed) {
  const std::string url = start_gateway({"http://127.0.0.1:1"});
  const std::string port = url.substr(url.rfind(':') + 1);
  const auto done = run({support::tutti_program, "gateway", "--backend", "http://127.0.0.1:1", "--listen",
                         "127.0.0.1:" + port});
  EXPECT_NE(done.exit_code, 0);
  EXPECT_TRUE(has(done.err, port)) << done.err;
  EXPECT_TRUE(said("127.0.0.1:1 cannot be asked: "));
  EXPECT_TRUE(has(curl({"-i", url + "/health"}), "503"));
}

}  // namespace
}  // namespace tutti
