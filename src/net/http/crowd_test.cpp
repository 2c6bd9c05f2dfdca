// Many connections at once: those that show no token, and those that do not read.
#include <atomic>
#include <chrono>
#include <future>
#include <mutex>

#include <gtest/gtest.h>

#include "net/http/client.hpp"
#include "net/http/net_test.hpp"

namespace tutti::net {
namespace {

constexpr const char* half_a_head = "GET / HTTP/1.1\r\nAuth";

Admission known_by_token(const Request& head) {
  if (head.bearer == "secret") return {.refusal = std::nullopt, .known = true};
  return {Response{.status = 401, .body = "wrong"}};
}

void answer_fine(const std::shared_ptr<Exchange>& exchange) {
  exchange->answer({.status = 200, .body = "fine"});
}

// ---- without a token

TEST_F(Net, ThoseWithoutATokenMakeRoomForEachOther) {
  ServerOptions options;
  options.unknown_connections_per_address = 2;
  serve(answer_fine, options, known_by_token);
  Client known(target(), "secret");
  EXPECT_EQ(known.request("GET", "/")->body, "fine");
  const int oldest = connect_raw("");
  const int older = connect_raw(half_a_head);
  const int refused = connect_raw("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(read_raw(oldest), "");
  connect_raw(half_a_head);
  EXPECT_EQ(read_raw(older), "");
  Client next(target(), "secret");
  EXPECT_EQ(next.request("GET", "/")->body, "fine");
  EXPECT_NE(read_raw(refused).find("401"), std::string::npos) << "a wrong token is none";
  EXPECT_EQ(known.request("GET", "/")->body, "fine") << "who has shown one is no victim";
}

TEST_F(Net, ThoseWithoutATokenDoNotShutOutTheOthers) {
  ServerOptions options;
  options.connections = options.connections_per_address = 2;
  serve(answer_fine, options, known_by_token);
  connect_raw("");
  connect_raw(half_a_head);
  Client first(target(), "secret");
  EXPECT_EQ(first.request("GET", "/")->body, "fine");
  Client second(target(), "secret");
  EXPECT_EQ(second.request("GET", "/")->body, "fine");
  Client third(target(), "secret");
  EXPECT_FALSE(third.request("GET", "/").ok()) << "nobody has to go who has shown a token";
  EXPECT_EQ(first.request("GET", "/")->body, "fine");
  EXPECT_EQ(second.request("GET", "/")->body, "fine");
}

TEST_F(Net, NobodyStaysForLongWithoutAToken) {
  ServerOptions options;
  options.unknown_time = 100ms;
  serve(answer_fine, options, known_by_token);
  Client known(target(), "secret");
  EXPECT_EQ(known.request("GET", "/")->body, "fine");
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(raw("", false), "");
  EXPECT_EQ(raw(half_a_head, false), "");
  EXPECT_NE(raw("GET / HTTP/1.1\r\n\r\n", false).find("401"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, request_time_max) << "without the time of a request";
  EXPECT_EQ(known.request("GET", "/")->body, "fine");
}

// ---- without reading

TEST_F(Net, SlowReadersTogetherHoldNoMoreThanTheBudgetAndHearWhy) {
  constexpr int slow_ones = 3;
  constexpr int chunks = 400;
  const std::string data = "event: x\ndata: " + std::string(64 << 10, 'x') + "\n\n";
  std::promise<void> all_let_go;
  std::atomic<int> let_go = 0;
  ServerOptions options;
  options.backlogs_bytes = 4 << 20;  // far below what one of them may have waiting
  options.on_let_go = [&](const std::string&, std::size_t) {
    if (++let_go == slow_ones) all_let_go.set_value();
  };
  std::vector<std::shared_ptr<Stream>> streams;
  std::function<void(int)> write_next = [&](int at) {
    const Text event = make_text(data);
    for (std::size_t slow = 0; slow < slow_ones; ++slow) streams[slow]->write(event);
    if (at == chunks) return streams.back()->close();
    streams.back()->write(event, [&, at] { write_next(at + 1); });
  };
  std::promise<void> slow_are_there;
  serve(
      [&](auto exchange) {
        streams.push_back(exchange->stream([] {}));
        if (streams.size() == slow_ones) slow_are_there.set_value();
        if (streams.size() > slow_ones) write_next(0);
      },
      options);
  std::vector<int> slow;
  for (int at = 0; at < slow_ones; ++at) slow.push_back(connect_raw("GET / HTTP/1.1\r\n\r\n"));
  slow_are_there.get_future().wait();
  auto quick = std::async(std::launch::async, [this] {
    Client client(target(), "");
    int events = 0;
    const auto done = client.events(
        "/", [&](auto, auto) { return ++events > 0; }, [] { return true; });
    return done.ok() ? events : -1;
  });
  all_let_go.get_future().wait();
  for (const int descriptor : slow) {
    const std::string got = read_raw(descriptor);
    EXPECT_NE(got.find("this reader is too slow"), std::string::npos) << got.substr(0, 200);
    EXPECT_FALSE(got.ends_with("0\r\n\r\n")) << "it must not be taken for all there was";
  }
  EXPECT_EQ(quick.get(), chunks) << "who reads is not their victim";
}

// A page that nobody takes counts as well.
TEST_F(Net, AnswersThatNobodyReadsAreGivenUpOnceTheyAreTooMany) {
  std::promise<void> one_let_go;
  std::once_flag once;
  ServerOptions options;
  options.backlogs_bytes = 48 << 20;
  options.on_let_go = [&](const std::string&, std::size_t) {
    std::call_once(once, [&] { one_let_go.set_value(); });
  };
  serve([](auto exchange) { exchange->answer({.status = 200, .body = std::string(20 << 20, 'x')}); },
        options);
  for (int at = 0; at < 3; ++at) connect_raw("GET / HTTP/1.1\r\n\r\n");
  one_let_go.get_future().wait();
  Client client(target(), "");
  EXPECT_EQ(client.request("GET", "/")->body.size(), std::size_t{20} << 20);
}

// ---- unread

TEST_F(Net, ASocketTellsThatSomethingHasComeThatWasNotRead) {
  const std::string frame(256 << 10, 'x');
  ServerOptions options;
  options.frames = {.per_second = 0.001, .burst = 1};
  std::promise<std::shared_ptr<Socket>> accepted;
  std::promise<void> first_read;
  serve(
      [&](auto exchange) {
        exchange->upgrade([&](std::shared_ptr<Socket> socket) {
          EXPECT_FALSE(socket->has_unread());
          socket->on_message = [&](const std::string&) { first_read.set_value(); };
          accepted.set_value(std::move(socket));
        });
      },
      options);
  std::shared_ptr<Socket> kept;
  loop_.post([&] {
    dial(loop_, target(), "/agent", "secret", [&](Result<std::shared_ptr<Socket>> socket) {
      ASSERT_TRUE(socket.ok()) << socket.error().text();
      kept = *socket;
      kept->send(frame);
      kept->send(frame);
    });
  });
  first_read.get_future().wait();
  const auto socket = accepted.get_future().get();
  // The second is not read for a long time, and comes soon.
  for (bool unread = false; !unread;) {
    std::promise<bool> looked;
    loop_.post([&] { looked.set_value(socket->has_unread()); });
    unread = looked.get_future().get();
  }
}

}  // namespace
}  // namespace tutti::net
