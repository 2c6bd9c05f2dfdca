#include "cli/follow.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "net/http/server.hpp"

namespace tutti::cli {
namespace {

constexpr Duration patience = 300ms;

std::string job_event(const std::string& fields) {
  return "event: job\ndata: {\"id\":\"1\",\"attempt\":0," + fields + "}\n\n";
}

// A controller that is there for a while and says nothing, goes away, and is back with the end of the job.
class FollowTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tutti-follow-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    folder_ = path;
    std::ofstream(folder_ + "/token") << std::string(64, '0') << "\n";
    ::setenv("TUTTI_TOKEN_FILE", (folder_ + "/token").c_str(), 1);
    net::ServerOptions options;
    options.cluster = [this] { return cluster_; };
    auto listening = net::Server::listen(loop_, options, [this](auto exchange) { serve(*exchange); });
    ASSERT_TRUE(listening.ok()) << listening.error().text();
    server_ = std::move(*listening);
    ::setenv("TUTTI_ADDR", ("127.0.0.1:" + std::to_string(server_->port())).c_str(), 1);
    thread_ = std::thread([this] { loop_.run(); });
  }
  void TearDown() override {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    std::filesystem::remove_all(folder_);
  }

  void serve(net::Exchange& exchange) {
    if (refusals_ > 0) {
      --refusals_;
      return exchange.answer({.status = 503,
                              .body = R"({"error":{"message":"the disk hangs"}})",
                              .retry_after_seconds = retry_after_});
    }
    if (!silent_ && !exchange.request().path.ends_with("/logs"))
      return exchange.answer({.status = 200, .body = R"({"ids":["4"],"asked":true})"});
    if (streams_ > 0 && is_shut_out_) {
      ++shut_out_;
      return exchange.answer({.status = 401, .body = R"({"error":{"message":"the token is wrong"}})"});
    }
    stream_ = exchange.stream([] {});
    if (silent_) return;
    if (!told_.empty()) {
      stream_->write(told_.front());
      stream_->close();
      if (told_.size() > 1) told_.erase(told_.begin());
      return;
    }
    if (++streams_ > 1) {
      stream_->write(job_event(R"("state":"failed","exit_code":7)"));
      stream_->close();
      return;
    }
    stream_->write(job_event(R"("state":"running")"));
    // Longer than the patience of those who wait for it to come back.
    timer_ = loop_.after(3 * patience, [this] {
      if (replaced_) cluster_ = "second";
      stream_->close();
    });
  }

  std::string folder_;
  net::Loop loop_;
  std::unique_ptr<net::Server> server_;
  std::shared_ptr<net::Stream> stream_;
  std::shared_ptr<net::Loop::Handle> timer_;
  std::string cluster_ = "first";
  bool replaced_ = false;  // by another one, with the same address, after the first stream
  int streams_ = 0;
  bool is_shut_out_ = false;  // after the first stream
  std::atomic<int> shut_out_ = 0;
  bool silent_ = false;
  std::vector<std::string> told_;  // of each stream all, the last again and again
  std::atomic<int> refusals_ = 0;
  std::atomic<int> retry_after_ = 1;
  std::thread thread_;
};

TEST_F(FollowTest, PatienceCountsFromTheLastContactHoweverLongItWasAttached) {
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  const auto code =
      follow(*cluster, {.job = "1", .logs = false, .says_end = false, .reconnect_for = patience});
  ASSERT_TRUE(code.ok()) << code.error().text();
  EXPECT_EQ(*code, 7);
}

TEST_F(FollowTest, WhoseTokenIsNotTakenAnyMoreHearsSoAndAsksOnce) {
  is_shut_out_ = true;
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  const auto code = follow(*cluster, {.job = "1", .logs = false, .says_end = false});
  ASSERT_FALSE(code.ok());
  EXPECT_NE(code.error().text().find("does not let this token in any more"), std::string::npos)
      << code.error().text();
  EXPECT_EQ(shut_out_, 1);
}

// `tutti wait` goes from one job to the next, and the controller may be restarted in between.
TEST_F(FollowTest, WhoWasThereAMomentAgoIsWaitedFor) {
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  streams_ = 1;
  const std::uint16_t port = server_->port();
  std::promise<void> gone;
  loop_.post([&] {
    server_.reset();
    gone.set_value();
  });
  gone.get_future().wait();
  const FollowOptions away{.job = "1", .logs = false, .says_end = false};
  EXPECT_FALSE(follow(*cluster, away).ok());
  loop_.post([this, port] {
    timer_ = loop_.after(patience, [this, port] {
      server_ =
          std::move(*net::Server::listen(loop_, {.port = port}, [this](auto exchange) { serve(*exchange); }));
    });
  });
  FollowOptions patient = away;
  patient.was_there = true;
  const auto code = follow(*cluster, patient);
  ASSERT_TRUE(code.ok()) << code.error().text();
  EXPECT_EQ(*code, 7);
}

std::string ended_well() { return job_event(R"("state":"succeeded","exit_code":0)"); }

std::string missing_note(int attempt) {
  return "event: note\ndata: {\"text\":\"node n1 cannot be reached\",\"missing\":true,\"attempt\":" +
         std::to_string(attempt) + "}\n\n";
}

TEST_F(FollowTest, ANodeThatWasAwayForAMomentWhenItsJobEndedIsNotToldAsMissing) {
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  told_ = {ended_well() + missing_note(0), ended_well()};
  testing::internal::CaptureStderr();
  const auto code = follow(*cluster, {.job = "1", .only_logs = true});
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(code.ok()) << code.error().text();
  EXPECT_EQ(*code, 0);
  EXPECT_EQ(said.find("cannot be reached"), std::string::npos) << said;
}

// Where a part was not kept, nobody waits for the rest.
TEST_F(FollowTest, WhatIsMissingInTheEndIsTold) {
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  told_ = {ended_well() + "event: log\ndata: {\"offset\":9,\"bytes\":1,\"text\":\"x\"}\n\n" +
           missing_note(0)};
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const auto code = follow(*cluster, {.job = "1", .only_logs = true});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "[0] x\n");
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(code.ok()) << code.error().text();
  EXPECT_EQ(*code, 1);
  EXPECT_NE(said.find("cannot be reached"), std::string::npos) << said;
}

TEST_F(FollowTest, WhatIsMissingOfAnEarlierAttemptStaysSo) {
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  const std::string second = "event: job\ndata: {\"id\":\"1\",\"attempt\":1,";
  told_ = {job_event(R"("state":"running")") + missing_note(0) + second + R"("state":"running"})" + "\n\n",
           second + R"("state":"succeeded","exit_code":0})" + "\n\n"};
  const auto code = follow(*cluster, {.job = "1", .says_end = false, .only_logs = true});
  ASSERT_TRUE(code.ok()) << code.error().text();
  EXPECT_EQ(*code, 1);
}

TEST_F(FollowTest, TheJobOfAnotherClusterIsNotTakenForTheOneThatWasAskedFor) {
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  replaced_ = true;
  const auto code = follow(*cluster, {.job = "1", .logs = false, .says_end = false});
  ASSERT_FALSE(code.ok()) << *code;
  EXPECT_EQ(code.error().code(), ErrorCode::failed);
  EXPECT_NE(code.error().text().find("this is cluster second, and not first"), std::string::npos)
      << code.error().text();
  const auto other = cluster->another().request("POST", "/api/v1/jobs/1/cancel");
  EXPECT_FALSE(other.ok()) << "a second connection means the same cluster";
}

// `tutti run` speaks with the controller before it follows.
TEST_F(FollowTest, WhoeverAnsweredFirstIsTheOneThatIsFollowed) {
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  ASSERT_TRUE(cluster->get("status").ok());
  std::promise<void> replaced;
  loop_.post([&] {
    cluster_ = "second";
    replaced.set_value();
  });
  replaced.get_future().wait();
  streams_ = 1;
  EXPECT_FALSE(follow(*cluster, {.job = "1", .logs = false, .says_end = false, .was_there = true}).ok());
  EXPECT_FALSE(cluster->get("status").ok());
}

// `tutti run --sync` sends a folder in many requests, and the controller may be restarted in between.
TEST_F(FollowTest, WhatIsDoneOnceIsSentUntilTheControllerIsBack) {
  std::optional<Cluster> cluster;
  std::uint16_t port = 0;
  {
    net::Loop loop;
    const auto first = net::Server::listen(
        loop, {}, [](const auto& exchange) { exchange->answer({.status = 200, .body = "{}"}); });
    ASSERT_TRUE(first.ok()) << first.error().text();
    port = (*first)->port();
    std::thread thread([&loop] { loop.run(); });
    ::setenv("TUTTI_ADDR", ("127.0.0.1:" + std::to_string(port)).c_str(), 1);
    auto found = Cluster::find();
    EXPECT_TRUE(found.ok() && found->get("status").ok());
    if (found) cluster.emplace(std::move(*found));
    loop.stop();
    thread.join();
  }
  ASSERT_TRUE(cluster);
  loop_.post([this, port] {
    timer_ = loop_.after(patience, [this, port] {
      server_ =
          std::move(*net::Server::listen(loop_, {.port = port}, [this](auto exchange) { serve(*exchange); }));
    });
  });
  testing::internal::CaptureStderr();
  const auto sent = cluster->send_until_answered("PUT", "blobs/a", std::string(4 << 20, 'x'), "shipping a");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(sent.ok()) << sent.error().text();
  EXPECT_EQ(said, "tutti: shipping a : controller " + cluster->address() +
                      " : it closed the connection; sending it again, it is done once\n");
}

TEST_F(FollowTest, AControllerThatNeverWasThereIsNotWaitedFor) {
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  std::promise<void> gone;
  loop_.post([&] {
    server_.reset();
    gone.set_value();
  });
  gone.get_future().wait();
  EXPECT_FALSE(cluster->send_until_answered("PUT", "blobs/a", "x", "shipping a").ok());
}

// What is stopped keeps its connections open and says nothing.
TEST_F(FollowTest, SilenceIsToldOnceAndNotWaitedForForEver) {
  silent_ = true;
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  testing::internal::CaptureStderr();
  const auto code = follow(*cluster, {.job = "1",
                                      .logs = false,
                                      .says_end = false,
                                      .reconnect_for = 2 * patience,
                                      .first_silence_told = patience / 2});
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(said, "tutti: controller " + cluster->address() + " : it does not answer; waiting for it\n");
  EXPECT_EQ(code.error().text(), "controller " + cluster->address() + " : it does not answer");
}

// A controller that is crowded, or whose disk hangs, says when to come again.
TEST_F(FollowTest, WhoIsRefusedForNowAsksAgainAndSaysSoOnce) {
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  refusals_ = 2;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(cluster->get("status").ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tutti: controller " + cluster->address() + " : the disk hangs; asking again\n");
  refusals_ = 1;
  EXPECT_TRUE(cluster->post_again("jobs", "{}").ok());
  refusals_ = 1;
  EXPECT_FALSE(cluster->post("jobs/4/cancel").ok()) << "what might be done twice is for the caller";
}

TEST_F(FollowTest, NobodyAsksAgainWhenItWasNotSaidOrWhenItIsTooLate) {
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  refusals_ = 2;
  retry_after_ = 0;
  EXPECT_FALSE(cluster->get("status").ok()) << "a full disk does not heal by asking";
  retry_after_ = 30;
  const auto late = cluster->get("status", 5s);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().message(), "the disk hangs");
  EXPECT_EQ(refusals_, 0);
}

TEST_F(FollowTest, AFollowerThatIsRefusedForNowComesAgain) {
  auto cluster = Cluster::find();
  ASSERT_TRUE(cluster.ok()) << cluster.error().text();
  refusals_ = 2;
  streams_ = 1;
  const auto code = follow(*cluster, {.job = "1", .logs = false, .says_end = false});
  ASSERT_TRUE(code.ok()) << code.error().text();
  EXPECT_EQ(*code, 7);
}

TEST_F(FollowTest, WhoDoesNotAnswerInTimeIsNotSuspectedOfTls) {
  silent_ = true;
  net::Client client(*net::parse_target("127.0.0.1:" + std::to_string(server_->port())), "");
  const auto answer = client.request("GET", "/api/v1/status", "", patience);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message(), "it has not answered within 300ms");
  EXPECT_EQ(answer.error().remedy().find("TLS"), std::string::npos) << answer.error().remedy();
}

}  // namespace
}  // namespace tutti::cli
