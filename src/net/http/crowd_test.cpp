// Many connections at once: those that show no token, those that do not read, and those that do not end.
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

// Everybody is known here, as at an engine without a key.
TEST_F(Net, WhoAsksForNothingMakesRoomForAnotherAddress) {
  std::promise<std::shared_ptr<Exchange>> kept;
  ServerOptions options;
  options.connections = options.connections_per_address = 4;
  serve(
      [&](auto exchange) {
        if (exchange->request().path == "/wait") return kept.set_value(std::move(exchange));
        answer_fine(exchange);
      },
      options);
  const int busy = connect_raw("GET /wait HTTP/1.1\r\n\r\n", "127.0.0.2");
  const auto waiting = kept.get_future().get();
  std::vector<int> idle;
  for (int at = 0; at < 3; ++at) {
    idle.push_back(connect_raw("GET / HTTP/1.1\r\n\r\n", "127.0.0.2"));
    EXPECT_TRUE(read_until(idle.back(), "fine").ends_with("fine"));
  }
  Client other(target(), "");
  EXPECT_EQ(other.request("GET", "/")->body, "fine") << "it is full, and of one address";
  EXPECT_EQ(read_raw(idle[0]), "") << "who has asked for nothing for the longest time has made room";
  const int more = connect_raw("", "127.0.0.2");
  EXPECT_EQ(read_raw(more), "") << "not for one more of those who are the most";
  loop_.post([waiting] { waiting->answer({.status = 200, .body = "at last"}); });
  EXPECT_TRUE(read_until(busy, "at last").ends_with("at last")) << "who waits for an answer is no victim";
  EXPECT_EQ(other.request("GET", "/")->body, "fine");
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

// ---- without an end

constexpr std::size_t part_bytes = 256 << 10;

std::string post_of(std::size_t content_bytes, std::size_t sent_bytes) {
  return "POST / HTTP/1.1\r\nContent-Length: " + std::to_string(content_bytes) + "\r\n\r\n" +
         std::string(sent_bytes, 'x');
}

TEST_F(Net, BodiesWithoutTheirEndHoldNoMoreThanTheBudgetAndHearWhy) {
  std::promise<void> some_refused;
  std::atomic<int> refused = 0;
  ServerOptions options;
  options.bodies_bytes = options.bodies_bytes_per_address = 4 * part_bytes;
  options.on_crowded = [&](const std::string& remote) {
    EXPECT_EQ(remote, "127.0.0.1");
    if (++refused == 4) some_refused.set_value();
  };
  serve(answer_fine, options);
  std::vector<int> endless;
  for (int at = 0; at < 8; ++at) endless.push_back(connect_raw(post_of(part_bytes, part_bytes - 1)));
  some_refused.get_future().wait();
  Client client(target(), "");
  EXPECT_EQ(client.request("POST", "/", std::string(part_bytes, 'x'))->body, "fine")
      << "who sends all of it is not their victim";
  const std::string heard = read_raw(endless.front());
  EXPECT_NE(heard.find(" 503 "), std::string::npos) << heard;
  EXPECT_NE(heard.find("Retry-After: 1"), std::string::npos) << heard;
  for (std::size_t at = 1; at < endless.size(); ++at) ::close(endless[at]);
}

TEST_F(Net, BodiesThatNobodyHasAnsweredKeepFurtherOnesOut) {
  ServerOptions options;
  options.bodies_bytes = 2 * part_bytes;
  std::promise<std::shared_ptr<Exchange>> first;
  std::atomic<bool> is_first = true;
  serve(
      [&](std::shared_ptr<Exchange> exchange) {
        if (is_first.exchange(false)) return first.set_value(std::move(exchange));
        answer_fine(exchange);
      },
      options);
  const int waits = connect_raw(post_of(part_bytes, part_bytes));
  std::shared_ptr<Exchange> unanswered = first.get_future().get();
  Client client(target(), "");
  const std::string large(part_bytes, 'x');
  EXPECT_EQ(client.request("POST", "/", large)->status, 503);
  EXPECT_EQ(client.request("GET", "/")->body, "fine") << "what has no body needs no room";
  answer_fine(unanswered);
  unanswered.reset();
  ::shutdown(waits, SHUT_WR);
  EXPECT_NE(read_raw(waits).find("fine"), std::string::npos);
  EXPECT_EQ(client.request("POST", "/", large)->body, "fine");
}

// A WebSocket's own bytes, so that a message need not end.
struct EndlessMessages : Net {
  int open_socket() const {
    const int descriptor = connect_raw(
        "GET /agent HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n");
    std::string head;
    for (char byte = 0; !head.ends_with("\r\n\r\n") && ::recv(descriptor, &byte, 1, 0) == 1;) head += byte;
    EXPECT_NE(head.find(" 101 "), std::string::npos) << head;
    return descriptor;
  }
  // Less than 126 bytes, or more than 64 KiB. Where the other side has closed already, the rest is lost.
  static void send_part(int descriptor, std::size_t bytes, bool is_first, bool is_last) {
    std::string frame;
    frame += static_cast<char>((is_last ? 0x80 : 0) | (is_first ? 2 : 0));
    const bool is_short = bytes < 126;
    frame += static_cast<char>(0x80 | (is_short ? bytes : 127));
    for (int shift = 56; shift >= 0 && !is_short; shift -= 8)
      frame += static_cast<char>(bytes >> shift & 0xff);
    frame += std::string(4 + bytes, '\0');  // masked with zeros
    for (std::size_t sent = 0; sent < frame.size();) {
      const ssize_t took = ::send(descriptor, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
      if (took <= 0) return;
      sent += static_cast<std::size_t>(took);
    }
  }
  // Everybody is known by the first message.
  void serve_sockets(const ServerOptions& options) {
    serve(
        [this](auto exchange) {
          exchange->upgrade([this](std::shared_ptr<Socket> socket) {
            socket->on_message = [this, weak = std::weak_ptr(socket)](const std::string& frame) {
              weak.lock()->become_known();
              message_bytes.push_back(frame.size());
              if (message_bytes.size() == messages_wanted) all_messages.set_value(message_bytes);
            };
            socket->on_close = [this](const std::string& why) {
              reasons.push_back(why);
              if (reasons.size() == closed_wanted) all_closed.set_value(reasons);
            };
          });
        },
        options);
  }

  std::size_t messages_wanted = 0;
  std::vector<std::size_t> message_bytes;
  std::promise<std::vector<std::size_t>> all_messages;
  std::size_t closed_wanted = 0;
  std::vector<std::string> reasons;
  std::promise<std::vector<std::string>> all_closed;
};

TEST_F(EndlessMessages, OfStrangersHoldNoMoreThanTheirBudgetAndHarmNobodyWhoIsKnown) {
  ServerOptions options;
  options.unknown_messages_bytes = options.unknown_messages_bytes_per_address = 4 * part_bytes;
  messages_wanted = 2;
  closed_wanted = 4;
  serve_sockets(options);
  const int known = open_socket();
  send_part(known, 10, true, true);
  send_part(known, part_bytes, true, false);
  std::vector<int> strangers;
  for (int at = 0; at < 8; ++at) strangers.push_back(open_socket());
  for (const int stranger : strangers) send_part(stranger, part_bytes, true, false);
  const auto why = all_closed.get_future().get().front();
  EXPECT_NE(why.find("messages that are not whole"), std::string::npos) << why;
  send_part(known, part_bytes, false, true);
  EXPECT_EQ(all_messages.get_future().get(), (std::vector<std::size_t>{10, 2 * part_bytes}));
  for (const int descriptor : strangers) ::close(descriptor);
  ::close(known);
}

TEST_F(EndlessMessages, OfThoseWhoAreKnownHoldNoMoreThanTheirBudget) {
  ServerOptions options;
  options.messages_bytes = options.messages_bytes_per_address = 4 * part_bytes;
  closed_wanted = 4;
  serve_sockets(options);
  std::vector<int> senders;
  for (int at = 0; at < 8; ++at) senders.push_back(open_socket());
  for (const int sender : senders) {
    send_part(sender, 10, true, true);
    send_part(sender, part_bytes, true, false);
  }
  const auto why = all_closed.get_future().get().front();
  EXPECT_NE(why.find("messages that are not whole"), std::string::npos) << why;
  for (const int descriptor : senders) ::close(descriptor);
}

TEST_F(EndlessMessages, OfPingsAloneAreNotAnsweredForEver) {
  messages_wanted = 2;
  closed_wanted = 1;
  serve_sockets({});
  const int known = open_socket();
  const auto send_pings = [known](int count) {
    const std::string ping("\x89\x80\0\0\0\0", 6);  // of nothing, masked with zeros
    std::string pings;
    for (int at = 0; at < count; ++at) pings += ping;
    ::send(known, pings.data(), pings.size(), MSG_NOSIGNAL);
  };
  send_part(known, 10, true, true);
  send_pings(10);
  send_part(known, 20, true, true);
  EXPECT_EQ(all_messages.get_future().get(), (std::vector<std::size_t>{10, 20})) << "a few harm nobody";
  send_pings(1'000);
  EXPECT_EQ(all_closed.get_future().get().front(), "it sends pings without end");
  ::close(known);
}

TEST_F(EndlessMessages, AreNotWaitedForForEver) {
  ServerOptions options;
  options.message_time = 100ms;
  closed_wanted = 1;
  serve_sockets(options);
  const int known = open_socket();
  send_part(known, 10, true, true);
  send_part(known, 10, true, false);
  const auto why = all_closed.get_future().get().front();
  EXPECT_NE(why.find("not whole in time"), std::string::npos) << why;
  ::close(known);
}

TEST_F(EndlessMessages, AStrangerHasNotMoreTimeBecauseItIsASocket) {
  ServerOptions options;
  options.unknown_time = 100ms;
  closed_wanted = 1;
  serve_sockets(options);
  const int stranger = open_socket();
  const auto why = all_closed.get_future().get().front();
  EXPECT_NE(why.find("who it is"), std::string::npos) << why;
  ::close(stranger);
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
