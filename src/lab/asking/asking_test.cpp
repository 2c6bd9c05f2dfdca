#include "lab/asking/asking.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "net/http/server.hpp"

namespace tutti::asking {
namespace {

TEST(Report, CountsWhatWasGoodAndWhatWasNot) {
  std::vector<Sample> samples;
  for (int nth = 1; nth <= 100; ++nth)
    samples.push_back({"", nth * 10ms, nth * 10ms + 9 * 20ms, 20ms + nth * 1ms, 5, 10});
  samples.push_back({.problem = "HTTP 429"});
  samples.push_back({.problem = "HTTP 429"});
  const Report report = summarize(samples, 10s, {.first_token = 500ms, .next_token = 30ms});
  EXPECT_EQ(report.answered, 100U);
  EXPECT_EQ(report.problems.at("HTTP 429"), 2U);
  EXPECT_DOUBLE_EQ(report.requests_per_second, 10);
  EXPECT_DOUBLE_EQ(report.output_tokens_per_second, 100);
  EXPECT_DOUBLE_EQ(report.prompt_tokens_per_second, 50);
  EXPECT_DOUBLE_EQ(report.good_per_second, 5);
  EXPECT_NEAR(report.good_share, 50.0 / 102, 1e-9);
  EXPECT_EQ(report.first_token.middle, 500ms);
  EXPECT_EQ(report.first_token.late, 990ms);
  EXPECT_EQ(report.first_token.latest, 1000ms);
  EXPECT_EQ(report.next_token.middle, 20ms);
  EXPECT_EQ(report.pause.latest, 120ms);
}

TEST(Report, OfNothingIsNothing) {
  const Report report = summarize({}, 0s, {});
  EXPECT_EQ(report.answered, 0U);
  EXPECT_EQ(report.first_token.late, 0s);
}

class Arrivals : public testing::Test {
 protected:
  Arrivals() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-asking-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~Arrivals() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& text) const {
    std::ofstream(folder_ + "/trace.csv") << text;
    return folder_ + "/trace.csv";
  }

 private:
  std::string folder_;
};

TEST_F(Arrivals, OfATraceBeginAtZeroAndFit) {
  const auto read = read_arrivals(file("arrival_s,input_tokens,output_tokens\n3,100,10\n1,5000,900\n2,0,0\n"),
                                  {.speed = 2, .context = 1000});
  ASSERT_TRUE(read) << read.error().text();
  ASSERT_EQ(read->size(), 3U);
  EXPECT_EQ((*read)[0].at, 0s);
  EXPECT_EQ((*read)[0].output_tokens, 500);
  EXPECT_EQ((*read)[0].prompt_tokens, 500);
  EXPECT_EQ((*read)[1].at, 500ms);
  EXPECT_EQ((*read)[1].prompt_tokens, 1) << "an empty prompt is none";
  EXPECT_EQ((*read)[2].at, 1s);
}

TEST_F(Arrivals, OfATraceThatIsNoneAreRefused) {
  EXPECT_FALSE(read_arrivals(file("a,b\n1,2\n"), {}));
  EXPECT_FALSE(read_arrivals(file("arrival_s,input_tokens,output_tokens\n"), {}));
  EXPECT_FALSE(read_arrivals(file("arrival_s,input_tokens,output_tokens\n1,x,3\n"), {}));
  EXPECT_FALSE(read_arrivals(file("arrival_s,input_tokens,output_tokens\n1,99999999,3\n"), {}));
}

TEST_F(Arrivals, AtARateHaveThatRate) {
  Prng random(3);
  const auto made = even_arrivals(10'000, {.prompt_tokens = 1, .output_tokens = 1}, 100, random);
  EXPECT_NEAR(in_seconds(made.back().at), 100, 5);
  EXPECT_EQ(even_arrivals(5, {}, 0, random).back().at, 0s);
}

// Each thread takes room for its stack, and there is none.
TEST(Asking, WithoutThreadsForAllNobodyIsAskedAndItSaysSo) {
  Prng random(1);
  const Plan plan{.target = {.host = "127.0.0.1", .port = 1, .who = "server"},
                  .arrivals = even_arrivals(1'000, {.prompt_tokens = 1, .output_tokens = 1}, 0, random),
                  .concurrency = 1'000};
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit few = before;
  few.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{256} << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &few), 0);
  const auto asked = ask_all(plan, [](std::size_t) { return true; });
  setrlimit(RLIMIT_AS, &before);
  ASSERT_FALSE(asked);
  EXPECT_NE(asked.error().text().find(" of 1000 threads: "), std::string::npos) << asked.error().text();
}

// A server that answers every third request with 429.
TEST(Asking, HearsAnswersAndProblems) {
  net::Loop loop;
  std::atomic<int> count = 0;
  auto server = net::Server::listen(loop, {}, [&](std::shared_ptr<net::Exchange> exchange) {
    if (exchange->request().path == "/v1/models")
      return exchange->answer({.body = R"({"data":[{"id":"m","max_model_len":64}]})"});
    if (++count % 3 == 0)
      return exchange->answer({.status = 429, .body = R"({"error":{"message":"too many"}})"});
    auto stream = exchange->stream(nullptr);
    stream->write("data: {\"choices\":[{\"text\":\"a\"}]}\n\n");
    stream->write("data: {\"choices\":[{\"text\":\"b\"}]}\n\n");
    stream->write("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n");
    stream->write("data: [DONE]\n\n");
    stream->close();
  });
  ASSERT_TRUE(server) << server.error().text();
  std::thread thread([&] { loop.run(); });
  const net::Target target{.host = "127.0.0.1", .port = (*server)->port(), .who = "server"};
  const auto model = find_model(target, "");
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_EQ(model->name, "m");
  EXPECT_EQ(model->context, 64);
  Prng random(1);
  Plan plan{.target = target,
            .model = model->name,
            .arrivals = even_arrivals(30, {.prompt_tokens = 7, .output_tokens = 2}, 0, random),
            .concurrency = 4};
  const Asked asked = ask_all(plan, [](std::size_t) { return true; }).value();
  const Report report = summarize(asked.samples, asked.took, {});
  EXPECT_EQ(report.answered, 20U);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_EQ(report.problems.begin()->first, "HTTP 429: too many");
  EXPECT_EQ(report.problems.begin()->second, 10U);
  for (const Sample& sample : asked.samples) {
    if (!sample.problem.empty()) continue;
    EXPECT_EQ(sample.prompt_tokens, 7);
    EXPECT_EQ(sample.output_tokens, 2);
    EXPECT_GT(sample.first_token, 0s);
    EXPECT_GT(sample.pause, 0s);
    EXPECT_GE(sample.whole, sample.first_token + sample.pause);
  }
  // A person stops it: what was not asked is left out.
  plan.is_timed = true;
  plan.arrivals = even_arrivals(10, {.prompt_tokens = 7, .output_tokens = 2}, 0.001, random);
  const Asked stopped = ask_all(plan, [](std::size_t done) { return done < 1; }).value();
  EXPECT_LT(stopped.samples.size(), 10U);
  loop.stop();
  thread.join();
}

// As other servers write their events, below a path of their own; the model is one that they may not list.
TEST(Asking, HearsServersOfAnyKind) {
  net::Loop loop;
  std::string body;
  auto server = net::Server::listen(loop, {}, [&](std::shared_ptr<net::Exchange> exchange) {
    if (exchange->request().path == "/proxy/v1/models")
      return exchange->answer(
          {.body = R"({"data": [{"id": "m"}, {"id": 5}, {"id": "n", "max_model_len": 64}]})"});
    if (exchange->request().path != "/proxy/v1/completions") return exchange->answer({.status = 404});
    body = exchange->request().body;
    auto stream = exchange->stream(nullptr);
    stream->write(": nobody reads this\r\n\r\ndata:{\"choices\": [{\"text\": \"a\"}]}\r\n\r\n");
    stream->write("data: {\"choices\": [{\"text\": \"b\"}], \"error\": null, \"usage\": ");
    stream->write("{\"prompt_tokens\": 7, \"completion_tokens\": 2}}\r");
    stream->write("\n\r\ndata:[DONE]\n\n");
    stream->close();
  });
  ASSERT_TRUE(server) << server.error().text();
  std::thread thread([&] { loop.run(); });
  const net::Target target{
      .host = "127.0.0.1", .port = (*server)->port(), .who = "server", .prefix = "/proxy"};
  EXPECT_EQ(find_model(target, "")->name, "m");
  EXPECT_EQ(find_model(target, "", "n")->context, 64);
  EXPECT_EQ(find_model(target, "", "hidden")->name, "hidden");
  Prng random(1);
  const Plan plan{.target = target,
                  .model = "n",
                  .arrivals = even_arrivals(1, {.prompt_tokens = 7, .output_tokens = 2}, 0, random)};
  const Sample sample = ask_all(plan, [](std::size_t) { return true; })->samples.at(0);
  EXPECT_EQ(sample.problem, "");
  EXPECT_EQ(sample.output_tokens, 2);
  EXPECT_EQ(sample.prompt_tokens, 7);
  EXPECT_GT(sample.first_token, 0s);
  loop.stop();
  thread.join();
  EXPECT_NE(body.find("\"model\":\"n\""), std::string::npos) << body;
}

// However much of it there is, no model is looked for in it.
TEST(Asking, AListOfModelsThatDoesNotEndIsGivenUp) {
  net::Loop loop;
  std::shared_ptr<net::Stream> stream;
  const std::function<void()> go_on = [&] { stream->write(std::string(1 << 20, ' '), go_on); };
  auto server = net::Server::listen(loop, {}, [&](const std::shared_ptr<net::Exchange>& exchange) {
    stream = exchange->stream([] {});
    go_on();
  });
  ASSERT_TRUE(server) << server.error().text();
  std::thread thread([&] { loop.run(); });
  const auto found = find_model({.host = "127.0.0.1", .port = (*server)->port(), .who = "server"}, "");
  loop.stop();
  thread.join();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message(), "its answer is longer than 4 MiB");
}

// Streams that end as they should, and have nothing in them that a client could read.
TEST(Asking, AnAnswerWithoutTokensIsAProblem) {
  const std::vector<std::string> nothing{"",
                                         "data: {\"choices\":[{\"text\":\"\"}]}\n\n",
                                         "data: {\"choices\":[{\"text\":5}]}\n\n",
                                         "data: {\"choices\":[],\"usage\":{\"completion_tokens\":0}}\n\n",
                                         "data: {\"choices\":[],\"usage\":{\"completion_tokens\":\"2\"}}\n\n",
                                         "event: nothing\n\n"};
  const std::string counted = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":2}}\n\n";
  const std::string readable = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
  std::string says;
  net::Loop loop;
  auto server = net::Server::listen(loop, {}, [&](std::shared_ptr<net::Exchange> exchange) {
    auto stream = exchange->stream(nullptr);
    stream->write(says + "data: [DONE]\n\n");
    stream->close();
  });
  ASSERT_TRUE(server) << server.error().text();
  std::thread thread([&] { loop.run(); });
  Prng random(1);
  const Plan plan{.target = {.host = "127.0.0.1", .port = (*server)->port(), .who = "server"},
                  .model = "m",
                  .arrivals = even_arrivals(1, {.prompt_tokens = 1, .output_tokens = 1}, 0, random)};
  const auto heard = [&](const std::string& events) {
    says = events;
    return ask_all(plan, [](std::size_t) { return true; })->samples.at(0);
  };
  for (const std::string& events : nothing)
    EXPECT_EQ(heard(events).problem, "the answer has no tokens") << events;
  EXPECT_EQ(heard(readable).problem, "");
  const Sample unreadable = heard(counted);
  EXPECT_EQ(unreadable.problem, "");
  EXPECT_EQ(unreadable.first_token, unreadable.whole) << "nobody saw it earlier";
  loop.stop();
  thread.join();
}

// A server that says this much of each answer, and then ends it or says nothing more.
class HalfServer {
 public:
  HalfServer() {
    auto server = net::Server::listen(loop_, {}, [this](const std::shared_ptr<net::Exchange>& exchange) {
      auto stream = exchange->stream(nullptr);
      stream->write(says_);
      if (ends_) {
        stream->close();
      } else {
        held_.push_back(std::move(stream));
      }
      asked_ = true;
    });
    EXPECT_TRUE(server) << server.error().text();
    server_ = std::move(*server);
    thread_ = std::thread([this] { loop_.run(); });
  }
  HalfServer(const HalfServer&) = delete;
  HalfServer& operator=(const HalfServer&) = delete;
  ~HalfServer() {
    loop_.stop();
    thread_.join();
  }

  Plan plan() const {
    Prng random(1);
    return {.target = {.host = "127.0.0.1", .port = server_->port(), .who = "server"},
            .model = "m",
            .arrivals = even_arrivals(1, {.prompt_tokens = 1, .output_tokens = 1}, 0, random)};
  }
  Sample heard(const std::string& events, bool ends = true, Duration patience = 0s) {
    says_ = events;
    ends_ = ends;
    Plan plan = this->plan();
    plan.patience = patience;
    return ask_all(plan, [](std::size_t) { return true; })->samples.at(0);
  }
  bool was_asked() const { return asked_; }
  void hold(const std::string& events) {
    says_ = events;
    ends_ = false;
    asked_ = false;
  }

 private:
  net::Loop loop_;
  std::string says_;
  bool ends_ = true;
  std::atomic<bool> asked_ = false;
  std::vector<std::shared_ptr<net::Stream>> held_;
  std::unique_ptr<net::Server> server_;
  std::thread thread_;
};

TEST(Asking, AnAnswerThatIsNotWholeIsAProblemOfItsOwnKind) {
  const std::string piece = "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n";
  const std::string last = "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n";
  HalfServer server;
  EXPECT_EQ(server.heard(piece).problem, "the answer was cut off");
  EXPECT_EQ(server.heard("").problem, "there was no answer");
  EXPECT_EQ(server.heard(piece, false, 1ms).problem, "the answer was cut off: nothing has come for 1ms");
  EXPECT_EQ(server.heard("", false, 1ms).problem, "nothing has come for 1ms");
  EXPECT_EQ(server.heard(piece + "data: <html>\n\n").problem, "it sent what is no part of an answer");
  EXPECT_EQ(server.heard(piece + "data: {\"error\": {\n\n").problem, "it sent what is no part of an answer");
  EXPECT_EQ(server.heard(piece + "data: {\"error\":{\"message\":\"no memory\"}}\n\n").problem, "no memory");
  const Sample whole = server.heard(piece + last);
  EXPECT_EQ(whole.problem, "") << "it has said why it ends";
  EXPECT_GE(whole.whole, whole.first_token);
  EXPECT_EQ(server.heard(piece + last, false, 1ms).problem, "") << "what is missing are numbers";
}

TEST(Asking, WhatAPersonStopsHasNotFailed) {
  HalfServer server;
  server.hold("data: {\"choices\":[{\"text\":\"a\"}]}\n\n");
  const auto asked = ask_all(server.plan(), [&](std::size_t) { return !server.was_asked(); });
  ASSERT_TRUE(asked) << asked.error().text();
  EXPECT_TRUE(asked->samples.empty());
}

}  // namespace
}  // namespace tutti::asking
