// Those who leave before their answer, whatever they have sent before that, and those who stay and do not
// read.
#include <openssl/ssl.h>

#include <algorithm>
#include <cerrno>
#include <future>

#include <gtest/gtest.h>

#include "net/http/net_test.hpp"

namespace tutti::net {
namespace {

// A handler that answers nobody, and tells who asks and who leaves.
struct Unanswered {
  void operator()(const std::shared_ptr<Exchange>& exchange) {
    kept = exchange;
    exchange->when_over([this] { over.set_value(); });
    asked.set_value();
  }
  std::promise<void> asked;
  std::promise<void> over;
  std::shared_ptr<Exchange> kept;
};

TEST_F(Net, NoticesAClientThatLeavesBehindAnotherRequest) {
  Unanswered unanswered;
  serve([&](auto exchange) { unanswered(exchange); });
  const int descriptor = connect_raw("GET / HTTP/1.1\r\n\r\n");
  unanswered.asked.get_future().wait();
  ASSERT_EQ(::send(descriptor, "G", 1, MSG_NOSIGNAL), 1);
  ::close(descriptor);
  unanswered.over.get_future().wait();
}

TEST_F(Net, AClientThatHasSentMoreIsStillAnswered) {
  Unanswered unanswered;
  serve([&](auto exchange) { unanswered(exchange); });
  const int descriptor = connect_raw("GET / HTTP/1.1\r\n\r\n");
  unanswered.asked.get_future().wait();
  ASSERT_EQ(::send(descriptor, "G", 1, MSG_NOSIGNAL), 1);
  // It is looked at again meanwhile, and is there.
  auto over = unanswered.over.get_future();
  EXPECT_EQ(over.wait_for(500ms), std::future_status::timeout);
  unanswered.kept->answer({.body = "at last"});
  EXPECT_TRUE(read_until(descriptor, "at last").ends_with("at last"));
  over.wait();
  ::close(descriptor);
}

TEST_F(Net, NoticesAClientThatLeavesOverTlsWithItsLastWords) {
  const Certificate certificate;
  ServerOptions options;
  options.certificate_file = certificate.certificate_file();
  options.key_file = certificate.key_file();
  Unanswered unanswered;
  serve([&](auto exchange) { unanswered(exchange); }, options);
  const int descriptor = connect_raw("");
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context.get()), SSL_free);
  SSL_set_fd(tls.get(), descriptor);
  ASSERT_EQ(SSL_connect(tls.get()), 1);
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(SSL_write(tls.get(), request.data(), static_cast<int>(request.size())),
            static_cast<int>(request.size()));
  unanswered.asked.get_future().wait();
  SSL_shutdown(tls.get());
  ::close(descriptor);
  unanswered.over.get_future().wait();
}

// ---- behind a stream

// A handler that streams what the test says, and answers "/next".
struct Streamed : Net {
  void serve_stream() {
    serve([this](auto exchange) {
      if (exchange->request().path == "/next") return exchange->answer({.body = "next"});
      stream = exchange->stream([this] { closed.set_value(); });
      stream->write("data: one\n\n");
      begun.set_value();
    });
  }
  std::promise<void> begun;
  std::promise<void> closed;
  std::shared_ptr<Stream> stream;
};

TEST_F(Streamed, WhatIsSentBehindTheRequestIsTheNextOne) {
  serve_stream();
  const int descriptor = connect_raw("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}\r\n");
  EXPECT_TRUE(read_until(descriptor, "data: one").ends_with("data: one"));
  begun.get_future().wait();
  const std::string next = "GET /next HTTP/1.1\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(::send(descriptor, next.data(), next.size(), MSG_NOSIGNAL), static_cast<ssize_t>(next.size()));
  // It is looked at again meanwhile, and is there.
  auto closed_at = closed.get_future();
  EXPECT_EQ(closed_at.wait_for(500ms), std::future_status::timeout);
  stream->write("data: two\n\n");
  stream->close();
  const std::string rest = read_raw(descriptor);
  EXPECT_NE(rest.find("data: two\n\n\r\n0\r\n\r\nHTTP/1.1 200 "), std::string::npos) << rest;
  EXPECT_TRUE(rest.ends_with("\r\n\r\nnext")) << rest;
  closed_at.wait();
}

TEST_F(Streamed, NoticesAReaderThatLeavesBehindAnotherRequest) {
  serve_stream();
  const int descriptor = connect_raw("GET / HTTP/1.1\r\n\r\n");
  begun.get_future().wait();
  ASSERT_EQ(::send(descriptor, "G", 1, MSG_NOSIGNAL), 1);
  ::close(descriptor);
  closed.get_future().wait();
}

// The system takes what its buffers hold, and then no more.
TEST_F(Streamed, WhateverIsSentBehindTheRequestIsNotRead) {
  constexpr std::size_t far_too_much = std::size_t{1} << 30;
  serve_stream();
  const int descriptor = connect_raw("GET / HTTP/1.1\r\n\r\n");
  begun.get_future().wait();
  EXPECT_TRUE(read_until(descriptor, "data: one").ends_with("data: one"));
  const std::string block(64 << 10, 'x');
  std::size_t sent = 0;
  ssize_t took = 0;
  for (; took >= 0 && sent < far_too_much; sent += static_cast<std::size_t>(std::max<ssize_t>(took, 0)))
    took = ::send(descriptor, block.data(), block.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  EXPECT_TRUE(took < 0 && errno == EAGAIN) << sent;
  auto closed_at = closed.get_future();
  EXPECT_EQ(closed_at.wait_for(500ms), std::future_status::timeout);
  stream->write("data: two\n\n");
  EXPECT_TRUE(read_until(descriptor, "data: two").ends_with("data: two"));
  ::close(descriptor);
  closed_at.wait();
}

// It must not take what has come for all there was.
TEST_F(Streamed, WhoSaysThatItLeavesIsNotToldThatThisWasTheEnd) {
  serve_stream();
  const int descriptor = connect_raw("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(read_until(descriptor, "data: one").ends_with("data: one"));
  ::shutdown(descriptor, SHUT_WR);
  EXPECT_FALSE(read_raw(descriptor).ends_with("0\r\n\r\n"));
  closed.get_future().wait();
}

// ---- without reading

TEST_F(Net, AStreamWhoseReaderTakesNothingIsCut) {
  std::promise<void> closed;
  std::promise<std::string> slow;
  std::shared_ptr<Stream> kept;
  ServerOptions options;
  options.stalled_time = 100ms;
  options.on_let_go = [&](const std::string& remote, std::size_t) { slow.set_value(remote); };
  serve(
      [&](auto exchange) {
        kept = exchange->stream([&] { closed.set_value(); });
        kept->write(std::string(std::size_t{32} << 20, 'x'));
      },
      options);
  const int descriptor = connect_raw("GET / HTTP/1.1\r\n\r\n");
  closed.get_future().wait();
  EXPECT_EQ(slow.get_future().get(), "127.0.0.1");
  ::close(descriptor);
}

TEST_F(Net, AWholeAnswerWhoseReaderTakesNothingIsCutAndNotCalledWritten) {
  std::promise<bool> written;
  std::promise<std::string> slow;
  ServerOptions options;
  options.stalled_time = 100ms;
  options.on_let_go = [&](const std::string& remote, std::size_t) { slow.set_value(remote); };
  serve(
      [&](std::shared_ptr<Exchange> exchange) {
        exchange->when_over([&written, exchange] { written.set_value(exchange->is_written()); });
        exchange->answer({.body = std::string(std::size_t{32} << 20, 'x')});
      },
      options);
  const int descriptor = connect_raw("GET / HTTP/1.1\r\n\r\n");
  EXPECT_FALSE(written.get_future().get());
  EXPECT_EQ(slow.get_future().get(), "127.0.0.1");
  ::close(descriptor);
}

// The pauses are its pace: together they are longer than it may take nothing for.
TEST_F(Net, AWholeAnswerThatIsReadSteadilyIsWholeHoweverLongThatTakes) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  constexpr std::size_t pauses = 30;
  std::promise<bool> written;
  ServerOptions options;
  options.stalled_time = 2s;
  serve(
      [&](std::shared_ptr<Exchange> exchange) {
        exchange->when_over([&written, exchange] { written.set_value(exchange->is_written()); });
        exchange->answer({.body = std::string(bytes, 'x')});
      },
      options);
  const int descriptor = connect_raw("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  std::string piece(bytes / pauses, '\0');
  std::size_t got = 0;
  for (ssize_t count = 1; count > 0;) {
    std::this_thread::sleep_for(100ms);
    count = ::recv(descriptor, piece.data(), piece.size(), MSG_WAITALL);
    if (count > 0) got += static_cast<std::size_t>(count);
  }
  EXPECT_GT(got, bytes) << "and a head";
  EXPECT_TRUE(written.get_future().get());
  ::close(descriptor);
}

TEST_F(Net, AWholeAnswerThatIsCutEndsThere) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  std::promise<bool> written;
  std::promise<std::shared_ptr<Exchange>> asked;
  serve([&](std::shared_ptr<Exchange> exchange) {
    exchange->when_over([&written, exchange] { written.set_value(exchange->is_written()); });
    exchange->answer({.body = std::string(bytes, 'x')});
    asked.set_value(std::move(exchange));
  });
  const int descriptor = connect_raw("GET / HTTP/1.1\r\n\r\n");
  const std::shared_ptr<Exchange> exchange = asked.get_future().get();
  EXPECT_TRUE(read_until(descriptor, "\r\n\r\n").starts_with("HTTP/1.1 200"));
  exchange->cut();
  EXPECT_FALSE(written.get_future().get());
  EXPECT_LT(read_raw(descriptor).size(), bytes);
}

TEST_F(Net, AStreamThatHasNothingToSayIsNotCut) {
  std::promise<void> closed;
  std::shared_ptr<Stream> kept;
  std::shared_ptr<Loop::Handle> later;
  ServerOptions options;
  options.stalled_time = 20ms;
  serve(
      [&](auto exchange) {
        kept = exchange->stream([&] { closed.set_value(); });
        kept->write("data: one\n\n");
        later = loop_.after(200ms, [&] {
          kept->write("data: two\n\n");
          kept->close();
        });
      },
      options);
  const std::string got = raw("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", false);
  EXPECT_NE(got.find("data: two"), std::string::npos) << got;
  EXPECT_TRUE(got.ends_with("0\r\n\r\n")) << got;
  closed.get_future().wait();
}

// What it leaves behind must not reach for it: sanitizers see that.
TEST_F(Net, AServerCanEndWhileItsLoopGoesOn) {
  std::promise<void> asked;
  std::promise<void> over;
  serve([&](auto exchange) {
    if (exchange->request().path == "/wait") {
      exchange->when_over([&] { over.set_value(); });
      return asked.set_value();
    }
    exchange->answer({.body = "fine"});
  });
  const int waits = connect_raw("GET /wait HTTP/1.1\r\n\r\n");
  const int idle = connect_raw("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(read_until(idle, "fine").ends_with("fine"));
  asked.get_future().wait();
  std::promise<void> ended;
  loop_.post([&] {
    server_.reset();
    ended.set_value();
  });
  ended.get_future().wait();
  ::close(idle);
  ::close(waits);
  over.get_future().wait();
}

}  // namespace
}  // namespace tutti::net
