// Any TorchScript model, as a user meets it: `tutti engine MODEL.pt`, curl, and PyTorch as the judge.
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/process.hpp"

namespace tutti {
namespace {

using Json = nlohmann::json;
using support::has;
using support::read_text;
using support::run;

// A small network, what it makes of two rows, weights without a program, and one that dies when it is told
// to.
const char* const maker = R"(
import sys, torch
folder = sys.argv[1]
torch.manual_seed(1)
mlp = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
torch.jit.script(mlp).save(folder + '/mlp.pt')
rows = torch.tensor([[1., 2., 3.], [-4., 5., .5]])
print(mlp(rows).flatten().tolist())
class Picky(torch.nn.Module):
    def forward(self, x):
        if bool((x > 100).any()):
            raise ValueError("nobody may")
        return x * 2
torch.jit.script(Picky()).save(folder + '/picky.pt')
torch.save(mlp.state_dict(), folder + '/weights.pt')
)";

class ScriptProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (!TUTTI_HAS_WORKER) GTEST_SKIP() << "libtorch was not found, so tutti-worker is not built";
    support::write_text(file("make.py"), maker);
    const auto made = run({"/usr/bin/python3", file("make.py"), folder_.path()});
    if (has(made.err, "No module named 'torch'")) GTEST_SKIP() << "python3-torch is not installed";
    ASSERT_EQ(made.exit_code, 0) << made.err;
    expected_ = Json::parse(made.out).get<std::vector<float>>();
    support::write_text(file("mlp.json"),
                        R"({"inputs":[{"name":"x","datatype":"FP32","shape":[-1,3]}],
                            "outputs":[{"name":"y","datatype":"FP32","shape":[-1,2]}]})");
  }

  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  void start(const std::vector<std::string>& flags = {}, const std::string& name = "mlp") {
    std::vector<std::string> words{support::tutti_program, "engine", file(name + ".pt"), "--listen",
                                   "127.0.0.1:0",          "--json", "--device",         "cpu"};
    words.insert(words.end(), flags.begin(), flags.end());
    engine_ = std::make_unique<support::Process>(words, file("engine"));
    ASSERT_TRUE(support::eventually([&] { return has(read_text(file("engine")), "\n"); }))
        << read_text(file("engine.err"));
    const Json told = Json::parse(support::lines_of(read_text(file("engine"))).front(), nullptr, false);
    url_ = told.value("url", "");
    ASSERT_TRUE(url_.starts_with("http://127.0.0.1:") && url_.ends_with("/v2")) << told;
    EXPECT_EQ(told.value("model", ""), name);
  }

  std::string curl(std::vector<std::string> words) const {
    words.insert(words.begin(), {"curl", "-sS", "--max-time", "60"});
    const auto done = run(words);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.out;
  }
  std::string infer(const std::string& body) const { return curl({url_ + "/models/mlp/infer", "-d", body}); }

  void expect_numbers(const Json& data) const {
    ASSERT_EQ(data.size(), expected_.size()) << data;
    for (std::size_t at = 0; at < expected_.size(); ++at)
      EXPECT_NEAR(data[at].get<float>(), expected_[at], 1e-5) << data;
  }

  support::TempFolder folder_;
  std::vector<float> expected_;
  std::unique_ptr<support::Process> engine_;
  std::string url_;
};

const char* const two_rows =
    R"({"id":"42","inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[[1,2,3],[-4,5,0.5]]}]})";

TEST_F(ScriptProgram, AnswersWhatPytorchComputesAndDrains) {
  start({"--max-batch", "8", "--max-delay", "1ms", "--instances", "2"});
  EXPECT_EQ(Json::parse(curl({url_}))["name"], "tutti");
  const Json card = Json::parse(curl({url_ + "/models/mlp"}));
  EXPECT_EQ(card["inputs"][0]["shape"], Json::parse("[-1,3]"));
  EXPECT_EQ(card["outputs"][0]["name"], "y");
  EXPECT_TRUE(has(curl({"-i", url_ + "/health/ready"}), "HTTP/1.1 200"));
  const Json answer = Json::parse(infer(two_rows));
  EXPECT_EQ(answer["id"], "42");
  ASSERT_TRUE(answer.contains("outputs")) << answer;
  EXPECT_EQ(answer["outputs"][0]["shape"], Json::parse("[2,2]"));
  expect_numbers(answer["outputs"][0]["data"]);
  // The same as bytes, there and back.
  const std::string json =
      R"({"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","parameters":{"binary_data_size":24}}],)"
      R"("outputs":[{"name":"y","parameters":{"binary_data":true}}]})";
  const float rows[] = {1, 2, 3, -4, 5, 0.5F};
  support::write_text(file("body"), json + std::string(reinterpret_cast<const char*>(rows), sizeof rows));
  const std::string bytes = curl({url_ + "/models/mlp/infer", "-H",
                                  "Inference-Header-Content-Length: " + std::to_string(json.size()),
                                  "--data-binary", "@" + file("body")});
  ASSERT_GE(bytes.size(), 16U);
  std::vector<float> numbers(4);
  std::memcpy(numbers.data(), bytes.data() + bytes.size() - 16, 16);
  expect_numbers(numbers);
  EXPECT_TRUE(has(infer(R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]})"),
                  "must have [-1,3]"));
  engine_->signal(SIGTERM);
  EXPECT_EQ(engine_->wait(), 0) << read_text(file("engine.err"));
}

// Nothing is said of this model but its code; what it throws is for whom it is.
TEST_F(ScriptProgram, WhatTheModelThrowsIsTheAnswerOfWhoAsked) {
  start({"--max-batch", "8"}, "picky");
  const auto ask = [&](const std::string& number) {
    return curl({url_ + "/models/picky/infer", "-d",
                 R"({"inputs":[{"name":"x","shape":[1],"datatype":"FP64","data":[)" + number + "]}]}"});
  };
  EXPECT_TRUE(has(ask("21"), R"("datatype":"FP64","shape":[1],"data":[42])")) << ask("21");
  const std::string refused = ask("101");
  EXPECT_TRUE(has(refused, "nobody may") && refused.starts_with("{\"error\":")) << refused;
  EXPECT_TRUE(has(ask("1"), "[2]"));
}

TEST_F(ScriptProgram, AKilledWorkerIsStartedAgainAndMeanwhileItSaysSo) {
  start();
  const auto worker = [&]() -> pid_t {
    for (const pid_t pid : support::processes_naming(file("mlp.pt"))) {
      if (has(read_text("/proc/" + std::to_string(pid) + "/cmdline"), "tutti-worker")) return pid;
    }
    return 0;
  };
  const pid_t first = worker();
  ASSERT_GT(first, 0);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  // A new libtorch takes a moment: until it is there, whoever asks hears why not.
  ASSERT_TRUE(support::eventually([&] {
    const std::string answer = curl({"-i", url_ + "/models/mlp/infer", "-d", two_rows});
    const bool is_told = has(answer, "HTTP/1.1 503") && has(answer, "signal 9") && has(answer, "Retry-After");
    EXPECT_TRUE(is_told || has(answer, "HTTP/1.1 200")) << answer;
    return has(curl({url_.substr(0, url_.size() - 3) + "/metrics"}),
               "tutti_engine_worker_restarts_total 1\n");
  }));
  EXPECT_NE(worker(), first);
  expect_numbers(Json::parse(infer(two_rows))["outputs"][0]["data"]);
}

TEST_F(ScriptProgram, RefusesWhatItCannotServe) {
  const auto refused = [&](std::vector<std::string> words, const std::string& part) {
    words.insert(words.begin(), {support::tutti_program, "engine"});
    words.insert(words.end(), {"--listen", "127.0.0.1:0", "--device", "cpu"});
    const auto done = run(words);
    EXPECT_EQ(done.exit_code, 2) << done.err;
    EXPECT_TRUE(has(done.err, part)) << done.err;
  };
  refused({file("weights.pt")}, "no program");
  const std::string archive = read_text(file("mlp.pt"));
  support::write_text(file("cut.pt"), archive.substr(0, archive.size() / 2));
  refused({file("cut.pt")}, "no whole zip file");
  // All its names are there, and nothing of what they name.
  std::string hollow = archive;
  const std::size_t list = hollow.rfind(std::string("PK\1\2", 4));
  std::fill(hollow.begin() + 64,
            hollow.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(list, 4096)), 'x');
  support::write_text(file("hollow.pt"), hollow);
  refused({file("hollow.pt")}, "");
  refused({file("mlp.pt"), "--weights", "int8"}, "--weights is for language models");
  refused({folder_.path(), "--max-batch", "4"}, "--max-batch is for TorchScript models");
  refused({file("mlp.pt"), "--max-batch", "0"}, "--max-batch");
  refused({file("mlp.pt"), "--max-delay", "1h"}, "--max-delay");
  support::write_text(file("mlp.json"), R"({"inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}]})");
  refused({file("mlp.pt"), "--max-batch", "2"}, "zeros of the shapes that the signature names");
  support::write_text(file("mlp.json"), "{");
  refused({file("mlp.pt")}, "mlp.json");
}

}  // namespace
}  // namespace tutti
