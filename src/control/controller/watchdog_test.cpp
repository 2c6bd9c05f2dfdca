// While the disk of the store hangs, the log and whoever asks hear so.
#include "control/controller/watchdog.hpp"

#include <atomic>
#include <future>

#include <gtest/gtest.h>

#include "control/controller/core.hpp"
#include "control/controller/slow_store_test.hpp"

namespace tutti::controller {
namespace {

constexpr int all_commits = 1'000'000;

class WatchdogExchange final : public net::Exchange {
 public:
  explicit WatchdogExchange(std::string method) { request_.method = std::move(method); }

  const net::Request& request() const override { return request_; }
  void answer(net::Response response) override { answers.push_back(std::move(response)); }
  std::shared_ptr<net::Stream> stream(std::function<void()>) override { return nullptr; }
  void upgrade(std::function<void(std::shared_ptr<net::Socket>)>) override { ++upgrades; }

  std::vector<net::Response> answers;
  int upgrades = 0;

 private:
  net::Request request_;
};

// A core whose commit of a node hangs from the beginning, on a clock of the test's own.
struct WatchdogTest : testing::Test {
  std::atomic<Duration::rep> time{Duration(1000s).count()};
  WatchedStore::Clock clock = [this] { return Instant(Duration(time.load())); };
  SlowStore slow;
  WatchedStore store{slow, clock};
  std::vector<std::function<void()>> posted;
  Watchdog watchdog{store, "/data/store.db", clock,
                    [this](std::function<void()> task) { posted.push_back(std::move(task)); }};
  std::promise<void> stored;
  Core core{store, [](const driver::Delivery&) {}};

  void SetUp() override {
    ASSERT_TRUE(core.start().ok());
    cluster::Hello hello{"a", "", "127.0.0.1", 1, {}, {}};
    hello.inventory.cpus = 2;
    core.happen(hello, [this](const auto&) { stored.set_value(); });
    slow.wait_until_begun(1);
  }
  void TearDown() override { slow.let_through(all_commits); }

  std::string look_after(Duration passed) {
    time += passed.count();
    return watchdog.look();
  }
  // The disk answers, and nothing waits for it any more.
  void recover() {
    slow.let_through(all_commits);
    stored.get_future().wait();
    core.stop();
  }
};

TEST_F(WatchdogTest, TheLogSaysThatTheDiskHangsThatItGoesOnAndThatItIsOver) {
  EXPECT_EQ(look_after(2s), "");
  EXPECT_TRUE(look_after(1s).starts_with("the disk of the store at /data/store.db has not answered for 3 s"));
  EXPECT_EQ(look_after(1s), "");
  EXPECT_EQ(look_after(25s), "");
  EXPECT_TRUE(look_after(1s).find("not answered for 30 s") != std::string::npos);
  EXPECT_EQ(look_after(60s), "");
  recover();
  EXPECT_EQ(look_after(1s), "the disk of the store at /data/store.db answers again");
  EXPECT_EQ(look_after(60s), "");
}

TEST_F(WatchdogTest, WhoeverWaitsForTheDiskIsAnswered) {
  const auto reads = std::make_shared<WatchdogExchange>("GET");
  const auto writes = std::make_shared<WatchdogExchange>("POST");
  const auto watched_read = watchdog.watch(reads);
  const auto watched_write = watchdog.watch(writes);
  look_after(4s);
  EXPECT_TRUE(reads->answers.empty());
  const auto later = std::make_shared<WatchdogExchange>("GET");
  const auto watched_later = watchdog.watch(later);
  look_after(1s);
  for (const auto& exchange : {reads, writes}) {
    ASSERT_EQ(exchange->answers.size(), 1U);
    EXPECT_EQ(exchange->answers[0].status, 503);
    EXPECT_EQ(exchange->answers[0].retry_after_seconds, disk_retry_seconds);
    EXPECT_NE(exchange->answers[0].body.find("/data/store.db has not answered for 5 s"), std::string::npos);
  }
  EXPECT_NE(writes->answers[0].body.find("may still be done"), std::string::npos);
  EXPECT_TRUE(later->answers.empty()) << "it has not waited long";
  recover();
  watched_read->answer({.status = 200, .body = "too late"});
  watched_later->answer({.status = 200, .body = "in time"});
  EXPECT_EQ(reads->answers.size(), 1U) << "one answer each";
  ASSERT_EQ(later->answers.size(), 1U);
  EXPECT_EQ(later->answers[0].status, 200);
}

TEST_F(WatchdogTest, WhatBecomesAStreamTooLateIsClosed) {
  const auto exchange = std::make_shared<WatchdogExchange>("GET");
  const auto watched = watchdog.watch(exchange);
  look_after(6s);
  bool closed = false;
  const auto stream = watched->stream([&closed] { closed = true; });
  ASSERT_NE(stream, nullptr);
  stream->write("nobody reads it");
  ASSERT_EQ(posted.size(), 1U);
  posted[0]();
  EXPECT_TRUE(closed);
  watched->upgrade(nullptr);
  EXPECT_EQ(exchange->upgrades, 0);
}

TEST_F(WatchdogTest, ADiskThatAnswersRefusesNobody) {
  recover();
  const auto exchange = std::make_shared<WatchdogExchange>("GET");
  const auto watched = watchdog.watch(exchange);
  EXPECT_EQ(look_after(60s), "");
  EXPECT_TRUE(exchange->answers.empty());
}

}  // namespace
}  // namespace tutti::controller
