#include "net/http/caller.hpp"

#include <atomic>
#include <future>
#include <optional>

#include "net/http/net_test.hpp"

namespace tutti::net {
namespace {

// What has come of a call.
struct Heard {
  std::optional<AnswerHead> head;
  std::string body;
  std::optional<std::string> end;  // "": well
};

// The caller's loop has a thread of its own, and what is told there is read when it is over.
class CallerTest : public Net {
 protected:
  CallerTest() : caller_thread_([this] { own_.run(); }) {}
  ~CallerTest() override {
    on_loop([this] {
      calls_.clear();
      caller_.reset();
    });
    own_.stop();
    caller_thread_.join();
  }
  void on_loop(const std::function<void()>& task) {
    std::promise<void> done;
    own_.post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  void make_caller(const Target& where) {
    on_loop([&] {
      auto made = Caller::make(own_, where);
      ASSERT_TRUE(made) << made.error().text();
      caller_ = std::move(*made);
    });
  }
  void make_caller() { make_caller(target()); }

  struct Asking {
    Heard heard;
    std::promise<void> over;
  };
  static CallListener listener(const std::shared_ptr<Asking>& asking) {
    return {.on_head = [asking](AnswerHead head) { asking->heard.head = std::move(head); },
            .on_piece = [asking](const std::string& piece) { asking->heard.body += piece; },
            .over =
                [asking](const Result<>& over) {
                  asking->heard.end = over ? "" : over.error().text();
                  asking->over.set_value();
                }};
  }
  void begin(Outgoing outgoing, CallListener listener) {
    on_loop([&] { calls_.push_back(caller_->call(std::move(outgoing), std::move(listener))); });
  }
  Heard ask(Outgoing outgoing) {
    const auto asking = std::make_shared<Asking>();
    begin(std::move(outgoing), listener(asking));
    asking->over.get_future().wait();
    return asking->heard;
  }
  std::size_t idle() {
    std::size_t count = 0;
    on_loop([&] { count = caller_->idle_connections(); });
    return count;
  }

  Loop own_;
  std::thread caller_thread_;
  std::unique_ptr<Caller> caller_;  // of that thread, and so are these
  std::vector<std::unique_ptr<Call>> calls_;
};

void echo(const std::shared_ptr<Exchange>& exchange) {
  const Request& request = exchange->request();
  exchange->answer({.status = 201,
                    .body = request.method + " " + request.path + " " + request.bearer + " " + request.body,
                    .type = "text/plain",
                    .retry_after_seconds = 3,
                    .headers = {{"x-told", "yes"}, {"x-other", "no"}}});
}

TEST_F(CallerTest, AnAnswerComesWithItsHead) {
  serve(echo);
  make_caller();
  const Heard heard =
      ask({.path = "/a/b", .body = make_text(std::string(100'000, 'x')), .token = "t", .wants = {"x-told"}});
  EXPECT_EQ(heard.end, "");
  ASSERT_TRUE(heard.head);
  EXPECT_EQ(heard.head->status, 201);
  EXPECT_EQ(heard.head->type, "text/plain");
  EXPECT_EQ(heard.head->retry_after_seconds, 3);
  EXPECT_EQ(heard.head->headers, (std::map<std::string, std::string>{{"x-told", "yes"}}));
  EXPECT_EQ(heard.body, "POST /a/b t " + std::string(100'000, 'x'));
}

TEST_F(CallerTest, AConnectionIsUsedAgain) {
  std::atomic<int> requests = 0;
  serve([&](std::shared_ptr<Exchange> exchange) {
    ++requests;
    echo(exchange);
  });
  make_caller();
  for (int times = 0; times < 20; ++times) {
    EXPECT_EQ(ask({.method = "GET", .path = "/"}).end, "");
    EXPECT_EQ(idle(), 1U);
  }
  EXPECT_EQ(requests, 20);
}

TEST_F(CallerTest, ManyAreAskedAtOnce) {
  serve(echo);
  make_caller();
  std::vector<std::shared_ptr<Asking>> all;
  for (int count = 0; count < 200; ++count) {
    all.push_back(std::make_shared<Asking>());
    begin({.path = "/"}, listener(all.back()));
  }
  for (const auto& each : all) {
    each->over.get_future().wait();
    EXPECT_EQ(each->heard.end, "");
  }
  EXPECT_GE(idle(), 1U);
}

TEST_F(CallerTest, OneThatWasClosedMeanwhileIsNotNoticed) {
  // Each connection answers once, and is closed when it is asked again.
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listening, 8), 0);
  socklen_t size = sizeof address;
  ::getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size);
  std::thread server([&] {
    for (int times = 0; times < 2; ++times) {
      const int connection = ::accept(listening, nullptr, nullptr);
      read_until(connection, "\r\n\r\n");
      const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
      ::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
      if (times == 0) read_until(connection, "\r\n\r\n");  // the second request, which is never answered
      ::close(connection);
    }
  });
  make_caller(Target{"127.0.0.1", ntohs(address.sin_port), ""});
  EXPECT_EQ(ask({.method = "GET", .path = "/"}).body, "ok");
  const Heard second = ask({.method = "GET", .path = "/"});
  EXPECT_EQ(second.end, "");
  EXPECT_EQ(second.body, "ok");
  server.join();
  ::close(listening);
}

TEST_F(CallerTest, AStreamComesInPiecesAndCanBeHeldUp) {
  std::shared_ptr<Stream> stream;
  serve([&](std::shared_ptr<Exchange> exchange) {
    stream = exchange->stream([] {});
    stream->write("one");
  });
  make_caller();
  const auto asking = std::make_shared<Asking>();
  auto hears = listener(asking);
  std::promise<void> one;
  hears.on_piece = [&](const std::string& piece) {
    asking->heard.body += piece;
    if (asking->heard.body != "one") return;
    calls_.front()->pause();
    one.set_value();
  };
  begin({.path = "/"}, std::move(hears));
  one.get_future().wait();
  std::promise<void> written;
  loop_.post([&] {
    stream->write("two", [&] { written.set_value(); });
    stream->close();
  });
  written.get_future().wait();
  on_loop([&] {
    EXPECT_EQ(asking->heard.body, "one");
    calls_.front()->go_on();
  });
  asking->over.get_future().wait();
  EXPECT_EQ(asking->heard.body, "onetwo");
  EXPECT_EQ(asking->heard.end, "");
  EXPECT_EQ(asking->heard.head->type, "text/event-stream");
}

TEST_F(CallerTest, WhoeverDropsACallIsGoneForTheOtherSide) {
  std::promise<void> left;
  serve([&](std::shared_ptr<Exchange> exchange) { exchange->stream([&] { left.set_value(); })->write("x"); });
  make_caller();
  const auto asking = std::make_shared<Asking>();
  auto hears = listener(asking);
  hears.on_piece = [&](const std::string&) { calls_.clear(); };
  begin({.path = "/"}, std::move(hears));
  left.get_future().wait();
  EXPECT_EQ(idle(), 0U);
  on_loop([&] { EXPECT_FALSE(asking->heard.end) << "nothing is told any more"; });
}

TEST_F(CallerTest, WhatBreaksOffIsAnError) {
  std::shared_ptr<Stream> stream;
  serve([&](std::shared_ptr<Exchange> exchange) {
    stream = exchange->stream([] {});
    stream->write("begun", [&] { stream->cut(); });
  });
  make_caller();
  const Heard heard = ask({.path = "/"});
  EXPECT_EQ(heard.body, "begun");
  ASSERT_TRUE(heard.end);
  EXPECT_NE(*heard.end, "");
}

TEST_F(CallerTest, WhoIsNotThereIsSaidToBe) {
  serve(echo);
  const Target where{"127.0.0.1", server_->port(), "", "backend"};
  TearDown();  // it listens no more
  server_.reset();
  make_caller(where);
  const Heard heard = ask({.path = "/"});
  ASSERT_TRUE(heard.end);
  EXPECT_NE(heard.end->find("backend " + where.text()), std::string::npos) << *heard.end;
  EXPECT_NE(heard.end->find("refused"), std::string::npos) << *heard.end;
}

TEST_F(CallerTest, WhoSaysNothingIsGivenUp) {
  std::promise<std::shared_ptr<Exchange>> kept;  // it outlives no loop
  serve([&](std::shared_ptr<Exchange> exchange) { kept.set_value(std::move(exchange)); });
  make_caller();
  const Heard heard = ask({.path = "/", .head_time_max = 50ms});
  ASSERT_TRUE(heard.end);
  EXPECT_NE(heard.end->find("has not answered in time"), std::string::npos) << *heard.end;
}

TEST_F(CallerTest, WhatIsTooLongIsNotTaken) {
  serve([](std::shared_ptr<Exchange> exchange) { exchange->answer({.body = std::string(10'000, 'x')}); });
  make_caller();
  const Heard heard = ask({.path = "/", .answer_bytes_max = 1'000});
  ASSERT_TRUE(heard.end);
  EXPECT_NE(*heard.end, "");
  EXPECT_LE(heard.body.size(), 1'000U);
}

TEST_F(CallerTest, OverTlsToWhomItTrusts) {
  const Certificate certificate;
  serve(echo, {.certificate_file = certificate.certificate_file(), .key_file = certificate.key_file()});
  make_caller(Target{"localhost", server_->port(), certificate.certificate_file()});
  EXPECT_EQ(ask({.path = "/", .token = "t"}).end, "");
  const Certificate other;
  make_caller(Target{"localhost", server_->port(), other.certificate_file()});
  const Heard refused = ask({.path = "/", .token = "t"});
  ASSERT_TRUE(refused.end);
  EXPECT_NE(*refused.end, "");
}

}  // namespace
}  // namespace tutti::net
