// Want of memory, wherever it is felt: it costs the one connection, whoever waits for that hears of it, and
// the loop goes on.
#include <future>
#include <optional>

#include <gtest/gtest.h>

#include "base/scarcity/scarcity.hpp"
#include "net/http/net_test.hpp"
#include "net/http/session.hpp"

namespace tutti::net {
namespace {

// What is written together is copied together: a little less than the most of that.
constexpr std::size_t copied_bytes = gathered_bytes_max - (std::size_t{4} << 10);

struct Scarce : Net {
  void expect_that_others_are_answered() {
    scarcity.reset();
    Client client(target(), "");
    const auto answer = client.request("GET", "/");
    ASSERT_TRUE(answer.ok()) << answer.error().text();
    EXPECT_EQ(answer->body, "fine");
  }
  static bool is_other(const std::shared_ptr<Exchange>& exchange) {
    if (exchange->request().path != "/") return false;
    exchange->answer({.body = "fine"});
    return true;
  }

  std::optional<Scarcity> scarcity;
};

TEST_F(Scarce, AHandlerWithoutMemoryIsAnAnswerThatSaysSo) {
  std::promise<std::string> lost;
  std::promise<void> over;
  ServerOptions options;
  options.on_lost = [&](const std::string& remote, const std::string& why) {
    lost.set_value(remote + " " + why);
  };
  serve(
      [&](auto exchange) {
        if (is_other(exchange)) return;
        exchange->when_over([&] { over.set_value(); });
        throw std::bad_alloc();
      },
      options);
  const std::string answer = raw("GET /much HTTP/1.1\r\n\r\n", false);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503 ")) << answer;
  EXPECT_NE(answer.find("\r\nRetry-After: 1\r\n"), std::string::npos) << answer;
  over.get_future().wait();
  EXPECT_EQ(lost.get_future().get(), "127.0.0.1 std::bad_alloc");
  expect_that_others_are_answered();
}

TEST_F(Scarce, WhoHadBegunAStreamHearsOfItsEnd) {
  std::promise<void> closed;
  serve([&](auto exchange) {
    if (is_other(exchange)) return;
    exchange->stream([&] { closed.set_value(); })->write("data: one\n\n");
    throw std::bad_alloc();
  });
  EXPECT_TRUE(raw("GET /much HTTP/1.1\r\n\r\n", false).starts_with("HTTP/1.1 503 "));
  closed.get_future().wait();
  expect_that_others_are_answered();
}

TEST_F(Scarce, ABodyIsRefused) {
  serve([](auto exchange) { is_other(exchange); });
  const std::size_t bytes = 512 << 10;
  const std::string request = "POST /much HTTP/1.1\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n" +
                              std::string(bytes, 'x');
  scarcity.emplace(bytes / 2);
  EXPECT_TRUE(raw(request).starts_with("HTTP/1.1 503 "));
  expect_that_others_are_answered();
}

// What it still sends may cost it the answer.
TEST_F(Scarce, ABodyInChunksEndsItsConnection) {
  serve([](auto exchange) { is_other(exchange); });
  const std::string body = "80000\r\n" + std::string(0x80000, 'x');
  scarcity.emplace(body.size() / 4);
  const int descriptor = connect_raw("POST /much HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  ::send(descriptor, body.data(), body.size(), MSG_NOSIGNAL);
  const std::string answer = read_raw(descriptor);
  EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 503 ")) << answer;
  expect_that_others_are_answered();
}

TEST_F(Scarce, AnAnswerIsNotWrittenAndItsEndIsTold) {
  std::promise<void> over;
  serve([&](auto exchange) {
    if (is_other(exchange)) return;
    exchange->when_over([&] { over.set_value(); });
    exchange->answer({.body = std::string(copied_bytes, 'x')});
    scarcity.emplace(copied_bytes / 2);
  });
  EXPECT_EQ(raw("GET /much HTTP/1.1\r\n\r\n", false), "");
  over.get_future().wait();
  expect_that_others_are_answered();
}

TEST_F(Scarce, AStreamIsCutAndItsEndIsTold) {
  std::promise<void> closed;
  std::shared_ptr<Stream> kept;
  serve([&](auto exchange) {
    if (is_other(exchange)) return;
    kept = exchange->stream([&] { closed.set_value(); });
    kept->write(std::string(copied_bytes, 'x'));
    scarcity.emplace(copied_bytes / 2);
  });
  const std::string got = raw("GET /much HTTP/1.1\r\n\r\n", false);
  EXPECT_FALSE(got.ends_with("0\r\n\r\n")) << "it must not be taken for all there was";
  closed.get_future().wait();
  kept->write("it is over, and this goes nowhere");
  expect_that_others_are_answered();
}

// Of both sides.
TEST_F(Scarce, AMessageToASocketEndsItAndThatIsTold) {
  std::promise<void> closed_here;
  std::promise<void> closed_there;
  serve([&](auto exchange) {
    if (is_other(exchange)) return;
    exchange->upgrade([&](const std::shared_ptr<Socket>& socket) {
      socket->on_close = [&](const std::string&) { closed_here.set_value(); };
      socket->on_message = [&, weak = std::weak_ptr(socket)](const std::string&) {
        weak.lock()->send(std::string(copied_bytes, 'x'));
        scarcity.emplace(3 << 10);  // it goes out in frames of 4 KiB
      };
    });
  });
  loop_.post([&] {
    dial(loop_, target(), "/agent", "", [&](Result<std::shared_ptr<Socket>> socket) {
      ASSERT_TRUE(socket.ok()) << socket.error().text();
      (*socket)->on_close = [&](const std::string&) { closed_there.set_value(); };
      (*socket)->send("hello");
    });
  });
  closed_here.get_future().wait();
  closed_there.get_future().wait();
  expect_that_others_are_answered();
}

TEST_F(Scarce, AMessageFromASocketEndsItAndThatIsTold) {
  std::promise<std::string> closed_here;
  std::promise<void> closed_there;
  serve([&](auto exchange) {
    if (is_other(exchange)) return;
    exchange->upgrade([&](const std::shared_ptr<Socket>& socket) {
      socket->on_message = [](const std::string&) { FAIL() << "there is no memory for it"; };
      socket->on_close = [&](const std::string& why) { closed_here.set_value(why); };
      scarcity.emplace(16 << 10);
    });
  });
  const Text much = make_text(std::string(copied_bytes, 'x'));
  loop_.post([&] {
    dial(loop_, target(), "/agent", "", [&](Result<std::shared_ptr<Socket>> socket) {
      ASSERT_TRUE(socket.ok()) << socket.error().text();
      (*socket)->on_close = [&](const std::string&) { closed_there.set_value(); };
      (*socket)->send(much);
    });
  });
  EXPECT_EQ(closed_here.get_future().get(), "std::bad_alloc");
  closed_there.get_future().wait();
  expect_that_others_are_answered();
}

// What follows would have a hole before it.
TEST(ScarceOutbox, WhatCannotBeQueuedIsTheEnd) {
  asio::io_context context;
  const auto outbox = std::make_shared<Outbox>(context, Outbox::Options{});
  int told = 0;
  outbox->on_let_go = [&told] { ++told; };
  outbox->put(make_text("one"));
  outbox->put(make_text("two"));
  {
    const Scarcity scarcity(0);
    context.run();
  }
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(outbox->was_let_go());
  EXPECT_EQ(outbox->waiting_bytes(), 0U);
}

// Nobody knows what it has left half done.
TEST(ScarceLoop, WhatATaskOfItsOwnerThrowsEndsIt) {
  Loop posted;
  posted.post([] { throw std::bad_alloc(); });
  EXPECT_THROW(posted.run(), std::bad_alloc);
  Loop timed;
  const auto later = timed.after(1ms, [] { throw std::bad_alloc(); });
  EXPECT_THROW(timed.run(), std::bad_alloc);
}

}  // namespace
}  // namespace tutti::net
