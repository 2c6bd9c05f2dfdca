#include <linux/tcp.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "net/http/client.hpp"
#include "net/http/net_test.hpp"
#include "net/http/server.hpp"

namespace tutti::net {
namespace {

TEST_F(Net, AnswersRequestsOnOneConnection) {
  serve([](auto exchange) {
    const Request& request = exchange->request();
    exchange->answer({.status = 201,
                      .body = request.method + " " + request.path + " " + request.query.at("a b") + " " +
                              request.bearer + " " + request.body});
  });
  Client client(target(), "secret");
  for (int round = 0; round < 3; ++round) {
    const auto response = client.request("POST", "/x/y?a%20b=1%2F2", "body");
    ASSERT_TRUE(response.ok()) << response.error().text();
    EXPECT_EQ(response->status, 201);
    EXPECT_EQ(response->body, "POST /x/y 1/2 secret body");
  }
}

// Each packet by itself is a call here, and wakes the reader up there.
TEST_F(Net, AnAnswerIsOnePacket) {
  serve([](auto exchange) { exchange->answer({.status = 200, .body = "fine"}); });
  const int descriptor = connect_raw("GET / HTTP/1.1\r\n\r\n");
  std::string answer;
  char buffer[4096];
  while (!answer.ends_with("fine")) {
    const ssize_t got = ::recv(descriptor, buffer, sizeof buffer, 0);
    ASSERT_GT(got, 0);
    answer.append(buffer, static_cast<std::size_t>(got));
  }
  tcp_info info{};
  socklen_t size = sizeof info;
  ASSERT_EQ(::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
  EXPECT_EQ(info.tcpi_data_segs_in, 1U);
  ::close(descriptor);
}

TEST_F(Net, OfTheHeadersThoseArePassedOnThatAreWanted) {
  ServerOptions options;
  options.headers = {"x-length"};
  serve(
      [](auto exchange) {
        const auto& headers = exchange->request().headers;
        exchange->answer({.body = std::to_string(headers.size()) + ":" + headers.at("x-length"),
                          .headers = {{"x-more", "7"}}});
      },
      options);
  const std::string answer = raw("GET / HTTP/1.1\r\nX-Length: 12\r\nX-Other: 5\r\n\r\n");
  EXPECT_TRUE(answer.ends_with("\r\n\r\n1:12")) << answer;
  EXPECT_NE(answer.find("\r\nx-more: 7\r\n"), std::string::npos) << answer;
}

TEST_F(Net, APartOfAPathMayHoldASlash) {
  serve([](auto exchange) {
    std::string parts;
    for (const auto& part : exchange->request().parts) parts += "<" + part + ">";
    exchange->answer({.status = 200, .body = parts});
  });
  Client client(target(), "");
  EXPECT_EQ(client.request("GET", "/nodes/..%2Fn1/resume?x=1")->body, "<nodes><../n1><resume>");
  EXPECT_EQ(client.request("GET", "/nodes/../n1")->body, "<nodes><..><n1>") << "nothing is climbed";
  EXPECT_EQ(client.request("GET", "/")->body, "");
}

TEST_F(Net, StreamsEvents) {
  std::promise<void> closed;
  serve([&](auto exchange) {
    auto stream = exchange->stream([&] { closed.set_value(); });
    stream->write("event: log\ndata: one\n\nevent: l");
    stream->write("og\ndata: two\n\n");
    stream->close();
  });
  std::vector<std::string> seen;
  Client client(target(), "");
  const auto done = client.events(
      "/events",
      [&](auto event, auto data) {
        seen.push_back(std::string(event) + "=" + std::string(data));
        return true;
      },
      [] { return true; });
  EXPECT_TRUE(done.ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"log=one", "log=two"}));
  closed.get_future().wait();
}

TEST_F(Net, EventsWithoutANameAnswerAPost) {
  serve([](auto exchange) {
    auto stream = exchange->stream(nullptr);
    stream->write("data: " + exchange->request().body + "\n\n: a comment\n\ndata: two\n\n");
    stream->close();
  });
  std::vector<std::string> seen;
  Client client(target(), "");
  const auto done = client.events(
      "POST", "/events", "{}",
      [&](auto event, auto data) {
        seen.push_back(std::string(event) + "=" + std::string(data));
        return true;
      },
      [] { return true; });
  EXPECT_TRUE(done.ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"={}", "=two"}));
}

TEST_F(Net, TellsWhenAnAnswerIsWritten) {
  std::promise<void> over;
  serve([&](auto exchange) {
    exchange->when_over([&] { over.set_value(); });
    exchange->answer({.body = "done"});
  });
  Client client(target(), "");
  EXPECT_EQ(client.request("GET", "/")->body, "done");
  over.get_future().wait();
}

TEST_F(Net, NoticesAClientThatLeavesBeforeTheAnswer) {
  std::promise<void> asked;
  std::promise<void> over;
  std::shared_ptr<Exchange> kept;
  serve([&](auto exchange) {
    kept = exchange;
    exchange->when_over([&] { over.set_value(); });
    asked.set_value();
  });
  const int descriptor = connect_raw("GET / HTTP/1.1\r\n\r\n");
  asked.get_future().wait();
  ::close(descriptor);
  over.get_future().wait();
  kept->answer({.body = "too late"});
}

TEST_F(Net, ARequestThatComesEarlyIsKeptForLater) {
  serve([](auto exchange) {
    exchange->when_over([] {});
    exchange->answer({.body = exchange->request().path});
  });
  const std::string both =
      raw("GET /one HTTP/1.1\r\n\r\nGET /two HTTP/1.1\r\nConnection: close\r\n\r\n", false);
  EXPECT_NE(both.find("/one"), std::string::npos) << both;
  EXPECT_NE(both.find("/two"), std::string::npos) << both;
}

TEST_F(Net, AStreamThatIsCutEndsThoughNobodyReadsIt) {
  std::promise<void> closed;
  std::shared_ptr<Stream> kept;
  serve([&](auto exchange) {
    kept = exchange->stream([&] { closed.set_value(); });
    kept->write(std::string(std::size_t{32} << 20, 'x'));
    kept->cut();
  });
  const int descriptor = connect_raw("GET / HTTP/1.1\r\n\r\n");
  closed.get_future().wait();
  ::close(descriptor);
}

TEST_F(Net, NoticesAReaderThatLeaves) {
  std::promise<void> closed;
  std::shared_ptr<Stream> kept;
  serve([&](auto exchange) {
    kept = exchange->stream([&] { closed.set_value(); });
    kept->write("event: log\ndata: one\n\n");
  });
  Client client(target(), "");
  EXPECT_TRUE(client
                  .events(
                      "/events", [](auto, auto) { return false; }, [] { return true; })
                  .ok());
  closed.get_future().wait();
}

TEST_F(Net, SocketsCarryFramesBothWays) {
  serve([](auto exchange) {
    exchange->upgrade([](std::shared_ptr<Socket> socket) {
      socket->on_message = [weak = std::weak_ptr(socket)](std::string frame) {
        if (auto alive = weak.lock()) alive->send("echo " + frame);
      };
    });
  });
  std::promise<std::string> received;
  std::promise<void> closed;
  loop_.post([&] {
    dial(loop_, target(), "/agent", "secret", [&](Result<std::shared_ptr<Socket>> socket) {
      ASSERT_TRUE(socket.ok()) << socket.error().text();
      (*socket)->on_message = [&, weak = std::weak_ptr(*socket)](std::string frame) {
        received.set_value(std::move(frame));
        weak.lock()->close();
      };
      (*socket)->on_close = [&](const std::string&) { closed.set_value(); };
      (*socket)->send(std::string(100'000, 'x'));
    });
  });
  EXPECT_EQ(received.get_future().get().size(), 100'005U);
  closed.get_future().wait();
}

// There is no memory for it, say. Whoever waits for on_close hears of it, on both sides.
TEST_F(Net, AMessageThatCannotBeHandledEndsItsConnectionAndNothingElse) {
  std::promise<std::string> closed_here;
  std::promise<bool> unread;
  serve([&](auto exchange) {
    exchange->upgrade([&](const std::shared_ptr<Socket>& socket) {
      socket->on_message = [](const std::string& frame) {
        if (frame == "much") throw std::bad_alloc();
      };
      socket->on_close = [&, socket](const std::string& why) {
        unread.set_value(socket->has_unread());
        closed_here.set_value(why);
      };
    });
  });
  std::promise<void> closed_there;
  loop_.post([&] {
    dial(loop_, target(), "/agent", "secret", [&](Result<std::shared_ptr<Socket>> socket) {
      ASSERT_TRUE(socket.ok()) << socket.error().text();
      (*socket)->on_close = [&](const std::string&) { closed_there.set_value(); };
      (*socket)->send("much");
      (*socket)->send("and more");
    });
  });
  EXPECT_EQ(closed_here.get_future().get(), "std::bad_alloc");
  EXPECT_FALSE(unread.get_future().get()) << "nobody waits for what will not be read";
  closed_there.get_future().wait();
}

TEST_F(Net, WhoDialsHearsOfWhatItsOwnCallbacksThrow) {
  serve([](auto exchange) {
    exchange->upgrade([](const std::shared_ptr<Socket>& socket) { socket->send("hello"); });
  });
  std::promise<std::string> closed;
  std::promise<std::string> refused;
  loop_.post([&] {
    dial(loop_, target(), "/agent", "secret", [&](Result<std::shared_ptr<Socket>> socket) {
      ASSERT_TRUE(socket.ok()) << socket.error().text();
      (*socket)->on_message = [](const std::string&) { throw std::bad_alloc(); };
      (*socket)->on_close = [&](const std::string& why) { closed.set_value(why); };
    });
    dial(loop_, target(), "/agent", "secret", [&](Result<std::shared_ptr<Socket>> socket) {
      if (socket) throw std::bad_alloc();
      refused.set_value(socket.error().text());
    });
  });
  EXPECT_EQ(closed.get_future().get(), "std::bad_alloc");
  EXPECT_EQ(refused.get_future().get(), "controller " + target().text() + " : std::bad_alloc");
}

TEST_F(Net, AFastSocketIsReadMoreSlowlyAndLosesNothing) {
  constexpr int frames = 60;
  ServerOptions options;
  options.frames = {.per_second = 100, .burst = 10};
  std::vector<std::string> seen;
  std::promise<void> all;
  serve(
      [&](auto exchange) {
        exchange->upgrade([&](std::shared_ptr<Socket> socket) {
          socket->on_message = [&](std::string frame) {
            seen.push_back(std::move(frame));
            if (seen.size() == frames) all.set_value();
          };
        });
      },
      options);
  const auto begin = std::chrono::steady_clock::now();
  std::shared_ptr<Socket> kept;
  loop_.post([&] {
    dial(loop_, target(), "/agent", "secret", [&](Result<std::shared_ptr<Socket>> socket) {
      ASSERT_TRUE(socket.ok()) << socket.error().text();
      kept = *socket;
      for (int at = 0; at < frames; ++at) kept->send(std::to_string(at));
    });
  });
  all.get_future().wait();
  // Fifty of them had to wait for their token. Slower is fine, faster is not.
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 490ms);
  for (int at = 0; at < frames; ++at) EXPECT_EQ(seen[static_cast<std::size_t>(at)], std::to_string(at));
}

TEST_F(Net, WhatCanWaitGoesOutBehindEverythingElse) {
  constexpr int bulk_frames = 40;
  std::vector<char> seen;
  std::promise<void> all;
  serve([&](auto exchange) {
    exchange->upgrade([&](std::shared_ptr<Socket> socket) {
      socket->on_message = [&](const std::string& frame) {
        seen.push_back(frame.front());
        if (seen.size() == bulk_frames + 2) all.set_value();
      };
    });
  });
  std::shared_ptr<Socket> kept;
  loop_.post([&] {
    dial(loop_, target(), "/agent", "secret", [&](Result<std::shared_ptr<Socket>> socket) {
      ASSERT_TRUE(socket.ok()) << socket.error().text();
      kept = *socket;
      // More than all that control messages may have waiting: it is not counted among them.
      for (int at = 0; at < bulk_frames; ++at) kept->send_later(std::string(std::size_t{2} << 20, 'l'));
      EXPECT_EQ(kept->later_bytes(), bulk_frames * (std::size_t{2} << 20));
      kept->send("c");
      kept->send("c");
    });
  });
  all.get_future().wait();
  const auto last_control = std::find(seen.rbegin(), seen.rend(), 'c').base() - seen.begin();
  EXPECT_LE(last_control, 4) << "one of the others may have been under way";
  EXPECT_EQ(kept->later_bytes(), 0U);
}

TEST_F(Net, WhoWaitsForItsReaderIsNeverCutOff) {
  constexpr int chunks = 200;
  constexpr std::size_t chunk_bytes = std::size_t{1} << 20;  // together far more than a backlog may be
  std::shared_ptr<Stream> stream;
  std::function<void(int)> write_next = [&](int at) {
    if (at == chunks) return stream->close();
    stream->write("event: x\ndata: " + std::string(chunk_bytes, 'x') + "\n\n",
                  [&, at] { write_next(at + 1); });
  };
  serve([&](auto exchange) {
    stream = exchange->stream([] {});
    write_next(0);
  });
  Client client(target(), "");
  int events = 0;
  const auto done = client.events(
      "/", [&](auto, auto) { return ++events > 0; }, [] { return true; });
  EXPECT_TRUE(done.ok()) << done.error().text();
  EXPECT_EQ(events, chunks);
}

TEST_F(Net, OneAddressHoldsOnlySoManyConnections) {
  ServerOptions options;
  options.connections_per_address = 2;
  serve([](auto exchange) { exchange->answer({.status = 200, .body = "fine"}); }, options);
  auto first = std::make_unique<Client>(target(), "");
  Client second(target(), "");
  EXPECT_EQ(first->request("GET", "/")->body, "fine");
  EXPECT_EQ(second.request("GET", "/")->body, "fine");
  Client third(target(), "");
  EXPECT_FALSE(third.request("GET", "/").ok());
  EXPECT_EQ(second.request("GET", "/")->body, "fine") << "who is in stays in";
  first.reset();
  const auto give_up_at = std::chrono::steady_clock::now() + 60s;
  while (!third.request("GET", "/").ok()) ASSERT_LT(std::chrono::steady_clock::now(), give_up_at);
}

TEST_F(Net, AllAddressesTogetherHoldOnlySoManyConnections) {
  ServerOptions options;
  options.connections = 1;
  serve([](auto exchange) { exchange->answer({.status = 200, .body = "fine"}); }, options);
  Client first(target(), "");
  EXPECT_EQ(first.request("GET", "/")->body, "fine");
  Client second(target(), "");
  EXPECT_FALSE(second.request("GET", "/").ok());
}

TEST(ServerOptions, WhereFewCanConnectOneAddressHasNotAllOfThem) {
  ServerOptions options;
  limit_connections(options, 1'000'000);
  EXPECT_EQ(options.connections, connections_max);
  EXPECT_EQ(options.connections_per_address, connections_per_address_max);
  EXPECT_EQ(options.unknown_connections, unknown_connections_max);
  limit_connections(options, 4'000);
  EXPECT_EQ(options.connections, 4'000U);
  EXPECT_EQ(options.connections_per_address, 2'000U);
  EXPECT_EQ(options.unknown_connections, 2'000U);
  EXPECT_EQ(options.unknown_connections_per_address, 1'000U);
}

TEST_F(Net, ARefusalSaysWhenToComeAgain) {
  serve([](auto exchange) { exchange->answer({.status = 429, .body = "", .retry_after_seconds = 7}); });
  EXPECT_NE(raw("GET / HTTP/1.1\r\n\r\n").find("\r\nRetry-After: 7\r\n"), std::string::npos);
}

TEST_F(Net, ARefusedDialSaysWhy) {
  serve([](auto exchange) { exchange->answer({.status = 401, .body = ""}); });
  std::promise<std::string> why;
  loop_.post([&] {
    dial(loop_, target(), "/agent", "wrong",
         [&](Result<std::shared_ptr<Socket>> socket) { why.set_value(socket.error().text()); });
  });
  EXPECT_NE(why.get_future().get().find("it refuses the token"), std::string::npos);
}

TEST_F(Net, GarbageIsAnsweredAndHarmsNobody) {
  serve([](auto exchange) { exchange->answer({.status = 200, .body = "fine"}); });
  EXPECT_NE(raw("\x16\x03\x01 garbage\r\n\r\n").find("400"), std::string::npos);
  EXPECT_NE(raw("GET http://[ HTTP/1.1\r\n\r\n").find("400"), std::string::npos);
  EXPECT_NE(raw("POST / HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n").find("413"), std::string::npos);
  EXPECT_NE(raw("GET /" + std::string(20'000, 'x') + " HTTP/1.1\r\n\r\n").find("413"), std::string::npos);
  EXPECT_EQ(raw(""), "");
  Client client(target(), "");
  EXPECT_EQ(client.request("GET", "/")->body, "fine");
}

// ---- by the head alone

// Lets in who has the token.
Admission only_the_token(const Request& head) {
  if (head.bearer == "secret") return {.refusal = std::nullopt, .known = true, .body_bytes_max = 1000};
  return {Response{.status = 401, .body = "wrong"}};
}

TEST_F(Net, AWrongTokenIsAnsweredWithoutItsBody) {
  std::atomic<int> handled = 0;
  serve(
      [&](auto exchange) {
        ++handled;
        exchange->answer({.status = 200, .body = exchange->request().body});
      },
      {}, only_the_token);
  // The body never comes, and neither does the end of what is sent: nobody waits for either.
  const std::string head = "POST / HTTP/1.1\r\nAuthorization: Bearer no\r\nContent-Length: 16777216\r\n\r\n";
  EXPECT_NE(raw(head, false).find("401"), std::string::npos);
  const std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_NE(raw(chunked, false).find("401"), std::string::npos);
  Client wrong(target(), "no");
  const auto refused = wrong.request("POST", "/", std::string(body_bytes_max, 'x'));
  ASSERT_TRUE(refused.ok()) << refused.error().text();
  EXPECT_EQ(refused->status, 401);
  EXPECT_EQ(handled, 0);
  Client right(target(), "secret");
  EXPECT_EQ(right.request("POST", "/", std::string(1000, 'x'))->body.size(), 1000U);
  EXPECT_EQ(right.request("POST", "/", std::string(1001, 'x'))->status, 413);
  EXPECT_EQ(right.request("POST", "/", "y")->body, "y");
  EXPECT_EQ(handled, 2);
}

TEST_F(Net, ARefusalWithoutABodyKeepsTheConnection) {
  ServerOptions options;
  options.connections = 1;
  serve([](auto exchange) { exchange->answer({.status = 200, .body = "fine"}); }, options, only_the_token);
  Client client(target(), "no");
  for (int round = 0; round < 3; ++round) EXPECT_EQ(client.request("GET", "/")->status, 401);
}

TEST_F(Net, WhoAsksBeforeItSendsABodyIsAnswered) {
  serve([](auto exchange) { exchange->answer({.status = 200, .body = exchange->request().body}); });
  const std::string answer =
      raw("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 100 Continue\r\n")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nhi")) << answer;
}

// ---- a token crosses no network in the clear

TEST_F(Net, ATokenIsNotSentInTheClearToAnotherMachine) {
  // An address for documentation: nobody is there, and nobody is asked.
  const Target elsewhere{"192.0.2.1", 7070, ""};
  Client client(elsewhere, "secret");
  const auto response = client.request("GET", "/");
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(response.error().code(), ErrorCode::invalid);
  EXPECT_EQ(response.error().text(),
            "controller 192.0.2.1:7070 : the token would cross the network in the clear");
  EXPECT_NE(response.error().remedy().find("TUTTI_CA_FILE"), std::string::npos);
  EXPECT_FALSE(client.may_have_arrived());
  Client with_password(elsewhere, "");
  with_password.keep_secret();
  const auto kept = with_password.request("POST", "/", "password");
  ASSERT_FALSE(kept.ok());
  EXPECT_NE(kept.error().text().find("in the clear"), std::string::npos) << kept.error().text();
  EXPECT_FALSE(check_secrecy(elsewhere).ok());
  EXPECT_TRUE(check_secrecy({"localhost", 7070, ""}).ok());
  EXPECT_TRUE(check_secrecy({"192.0.2.1", 7070, "/ca.pem"}).ok());

  serve([](auto exchange) { exchange->answer({.status = 200, .body = "fine"}); });
  std::promise<std::string> why;
  loop_.post([&] {
    dial(loop_, elsewhere, "/agent", "secret",
         [&](Result<std::shared_ptr<Socket>> socket) { why.set_value(socket.error().text()); });
  });
  EXPECT_NE(why.get_future().get().find("in the clear"), std::string::npos);
}

TEST_F(Net, NobodyListensIsAClearError) {
  Client client({"127.0.0.1", 1, ""}, "");
  const auto response = client.request("GET", "/");
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(response.error().text(), "controller 127.0.0.1:1 : Connection refused");
  EXPECT_NE(response.error().remedy().find("tutti up"), std::string::npos);
}

TEST_F(Net, APortInUseIsAClearError) {
  serve([](auto exchange) { exchange->answer({}); });
  Loop other;
  const auto second = Server::listen(other, {.address = "127.0.0.1", .port = server_->port()}, [](auto) {});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().text().find("Address already in use"), std::string::npos);
}

TEST(Target, Parses) {
  EXPECT_EQ(parse_target("host:80")->text(), "host:80");
  EXPECT_EQ(parse_target("[::1]:80")->host, "::1");
  for (const char* text : {"", "host", ":80", "host:", "host:0", "host:99999", "host:x"})
    EXPECT_FALSE(parse_target(text).ok()) << text;
}

TEST(Loop, TimersAndWatchesEndWithTheirHandle) {
  Loop loop;
  int fired = 0;
  auto dropped = loop.after(1ms, [&] { fired += 100; });
  dropped.reset();
  std::shared_ptr<Loop::Handle> repeating;
  repeating = loop.every(1ms, [&] {
    if (++fired == 3) loop.stop();
  });
  loop.run();
  EXPECT_EQ(fired, 3);
}

TEST_F(Net, AClusterThatIsNotTheOneOfBeforeIsAnError) {
  std::atomic<bool> replaced = false;
  ServerOptions options;
  options.headers = {cluster_header};
  options.cluster = [&replaced] { return replaced ? "second" : "first"; };
  serve(
      [](const auto& exchange) {
        if (exchange->request().path != "/events") {
          const auto meant = exchange->request().headers.find(cluster_header);
          return exchange->answer(
              {.status = 200, .body = meant == exchange->request().headers.end() ? "" : meant->second});
        }
        const auto stream = exchange->stream([] {});
        stream->write(std::string("event: end\ndata: {}\n\n"));
        stream->close();
      },
      options);
  int events = 0;
  const auto count = [&events](auto, auto) { return ++events > 0; };
  const auto go_on = [] { return true; };
  Client client(target(), "");
  EXPECT_EQ(client.request("GET", "/").value().body, "") << "it does not know any";
  EXPECT_EQ(client.cluster(), "first");
  EXPECT_EQ(client.request("GET", "/").value().body, "first") << "it says whom it means";
  EXPECT_TRUE(client.events("/events", count, go_on));
  EXPECT_EQ(events, 1);
  replaced = true;
  const auto answer = client.request("GET", "/");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), ErrorCode::invalid);
  EXPECT_TRUE(client.met_another());
  EXPECT_FALSE(client.events("/events", count, go_on));
  EXPECT_EQ(events, 1) << "nothing of it is heard";
  EXPECT_TRUE(client.met_another());
  replaced = false;
  EXPECT_TRUE(client.request("GET", "/"));
  EXPECT_FALSE(client.met_another());
}

TEST_F(Net, WhoHasAnsweredBeforeIsNotSuspectedOfTls) {
  serve([](const auto& exchange) {
    if (exchange->request().path == "/") return exchange->answer({.status = 200, .body = "{}"});
    exchange->stream([] {})->cut();
  });
  Client client(target(), "");
  ASSERT_TRUE(client.request("GET", "/"));
  const auto broken = client.request("GET", "/cut");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().message(), "it closed the connection");
  EXPECT_EQ(broken.error().remedy().find("TLS"), std::string::npos) << broken.error().remedy();
}

TEST_F(Net, AnAnswerThatIsTooLongIsToldAsThat) {
  serve([](const auto& exchange) {
    if (exchange->request().path == "/announced") return exchange->answer({.body = std::string(4097, 'x')});
    const auto stream = exchange->stream([] {});
    for (int at = 0; at < 64; ++at) stream->write(std::string(1024, 'x'));  // and no end
  });
  for (const std::string path : {"/announced", "/endless"}) {
    Client client(target(), "");
    const auto answer = client.request("GET", path, "", answer_time_max, 4096);
    ASSERT_FALSE(answer) << path;
    EXPECT_EQ(answer.error().message(), "its answer is longer than 4 KiB") << path;
    EXPECT_TRUE(answer.error().remedy().ends_with("is it the server that is meant?"));
  }
  Client client(target(), "");
  EXPECT_EQ(client.request("GET", "/announced").value().body.size(), 4097U);
}

TEST_F(Net, EventsAndRefusalsThatDoNotEndAreGivenUp) {
  const std::string piece(1 << 20, 'x');
  std::shared_ptr<Stream> stream;
  const std::function<void()> go_on = [&] { stream->write(piece, go_on); };
  serve([&](const auto& exchange) {
    if (exchange->request().path != "/endless")
      return exchange->answer({.status = 500, .body = std::string(8 << 20, 'x')});
    stream = exchange->stream([] {});
    go_on();
  });
  Client client(target(), "");
  const auto ask = [&client](const std::string& path) {
    return client.events(
        path, [](auto, auto) { return true; }, [] { return true; });
  };
  const auto endless = ask("/endless");
  ASSERT_FALSE(endless);
  EXPECT_EQ(endless.error().message(), "an event is longer than 64 MiB");
  const auto refused = ask("/refused");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), "its answer is longer than 1 MiB");
}

TEST_F(Net, OfOneThatClosesAtOnceNothingIsKnown) {
  ServerOptions options;
  options.connections = 0;
  serve([](const auto&) {}, options);
  Client client(target(), "");
  const auto closed = client.request("PUT", "/", std::string(4 << 20, 'x'));
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().message(), "it closed the connection");
  EXPECT_TRUE(closed.error().remedy().starts_with("it may have been restarted")) << closed.error().remedy();
}

// The kernel takes the connection, and the server has no descriptor for it.
TEST_F(Net, ThatNobodyCanConnectIsTold) {
  std::promise<std::string> told;
  std::atomic<int> times = 0;
  ServerOptions options;
  options.on_shut = [&](const std::string& why) {
    if (++times > 1) return;
    told.set_value(why);
    throw std::bad_alloc();  // there is no memory to tell it either
  };
  auto listening = Server::listen(
      loop_, options, [](const auto& exchange) { exchange->answer({.status = 200, .body = "{}"}); });
  ASSERT_TRUE(listening) << listening.error().text();
  server_ = std::move(*listening);
  const int descriptor = connect_raw("GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
  const int next = ::dup(descriptor);
  ::close(next);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit full = before;
  full.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &full), 0);
  thread_ = std::thread([this] { loop_.run(); });
  const std::string why = told.get_future().get();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(why, "Too many open files");
  EXPECT_TRUE(read_raw(descriptor).starts_with("HTTP/1.1 200")) << "it was tried again";
  EXPECT_EQ(times, 1) << "and not told each time";
}

}  // namespace
}  // namespace tutti::net
