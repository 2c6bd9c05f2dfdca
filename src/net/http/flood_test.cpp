// One address that comes very often, or sends very much: what is left of each round of the loop for the
// others. Rounds are counted, not time.
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <vector>

#include <gtest/gtest.h>

#include "net/http/net_test.hpp"

namespace tutti::net {
namespace {

constexpr std::size_t crowd = 200;

bool is_readable(int descriptor) {
  pollfd looked{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&looked, 1, 0) > 0;
}

struct Flood : Net {
  // The loop does nothing until `go_on` is told: meanwhile everybody comes.
  void stop_loop() {
    std::promise<void> stopped;
    loop_.post([&stopped, go = go_on.get_future().share()] {
      stopped.set_value();
      go.wait();
    });
    stopped.get_future().wait();
  }
  // Once in each round of the loop, as long as it says so.
  void each_round(std::function<bool()> look) {
    loop_.post([this, look = std::move(look)] {
      if (look()) each_round(look);
    });
  }
  void TearDown() override {
    Net::TearDown();
    for (const int descriptor : descriptors) ::close(descriptor);
  }
  int connect_kept(const std::string& bytes, const std::string& from) {
    descriptors.push_back(connect_raw(bytes, from));
    return descriptors.back();
  }

  std::promise<void> go_on;
  std::vector<int> descriptors;
};

TEST_F(Flood, OfConnectionsIsTakenInSeveralAtATime) {
  std::atomic<bool> answered = false;
  std::size_t rounds = 0;
  std::promise<void> over;
  serve([&](auto exchange) {
    exchange->answer({.body = "fine"});
    answered = true;
  });
  stop_loop();
  for (std::size_t at = 0; at < crowd; ++at) connect_kept("", "127.0.0.2");
  const int last = connect_kept("GET / HTTP/1.1\r\n\r\n", "127.0.0.3");
  each_round([&] {
    ++rounds;
    if (answered) over.set_value();
    return !answered;
  });
  go_on.set_value();
  over.get_future().wait();
  EXPECT_LT(rounds, crowd / 2) << "one connection in each round";
  EXPECT_TRUE(read_until(last, "fine").ends_with("fine"));
}

TEST_F(Flood, OfBodiesLeavesRoomInEachRound) {
  constexpr std::size_t body_bytes = 32 << 10;
  std::size_t handled = 0;
  std::size_t seen = 0;
  std::size_t most = 0;
  std::promise<void> over;
  serve([&](auto exchange) {
    ++handled;
    exchange->answer({.body = "fine"});
  });
  stop_loop();
  const std::string request = "POST / HTTP/1.1\r\nContent-Length: " + std::to_string(body_bytes) +
                              "\r\n\r\n" + std::string(body_bytes, 'x');
  for (std::size_t at = 0; at < crowd; ++at) connect_kept(request, "127.0.0.2");
  each_round([&] {
    most = std::max(most, handled - std::exchange(seen, handled));
    if (handled == crowd) over.set_value();
    return handled < crowd;
  });
  go_on.set_value();
  over.get_future().wait();
  EXPECT_LE(most, 2 * body_reads_at_once);
}

// ---- handshakes

struct Hellos : Flood {
  Hellos() {
    options.certificate_file = certificate.certificate_file();
    options.key_file = certificate.key_file();
    const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context.get()), SSL_free);
    BIO* const written = BIO_new(BIO_s_mem());
    SSL_set_bio(tls.get(), BIO_new(BIO_s_mem()), written);
    SSL_connect(tls.get());
    char* bytes = nullptr;
    const long count = BIO_get_mem_data(written, &bytes);
    hello.assign(bytes, static_cast<std::size_t>(count));
  }
  // How many of the others have had their answer when somebody else gets his.
  std::size_t answered_before(const std::vector<int>& others, int mine) {
    std::promise<std::size_t> before;
    each_round([&] {
      if (!is_readable(mine)) return true;
      before.set_value(static_cast<std::size_t>(std::count_if(others.begin(), others.end(), is_readable)));
      return false;
    });
    go_on.set_value();
    return before.get_future().get();
  }

  const Certificate certificate;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free};
  ServerOptions options;
  std::string hello;
};

TEST_F(Hellos, OfOneAddressDoNotKeepTheOthersOut) {
  serve([](auto) {}, options);
  stop_loop();
  std::vector<int> loud;
  for (std::size_t at = 0; at < crowd; ++at) loud.push_back(connect_kept(hello, "127.0.0.2"));
  const int mine = connect_kept(hello, "127.0.0.3");
  EXPECT_LT(answered_before(loud, mine), crowd / 4);
  for (const int descriptor : loud) EXPECT_NE(read_until(descriptor, "\x03"), "") << "each has its turn";
}

// Whoever has begun is not owed the rest at once.
TEST_F(Hellos, InTwoPiecesWaitForTheirTurnAsWell) {
  serve([](auto) {}, options);
  std::vector<int> loud;
  for (std::size_t at = 0; at < crowd; ++at) loud.push_back(connect_kept(hello.substr(0, 100), "127.0.0.2"));
  // Each of them was heard once another one was who came later.
  const int later = connect_kept(hello, "127.0.0.2");
  EXPECT_NE(read_until(later, "\x03"), "");
  stop_loop();
  for (const int descriptor : loud)
    EXPECT_GT(::send(descriptor, hello.data() + 100, hello.size() - 100, MSG_NOSIGNAL), 0);
  const int mine = connect_kept(hello, "127.0.0.3");
  EXPECT_LT(answered_before(loud, mine), crowd / 4);
}

TEST_F(Hellos, OfThoseWhoHaveLeftAreNotAnswered) {
  serve([](auto) {}, options);
  stop_loop();
  const int gone = connect_raw(hello);
  ::shutdown(gone, SHUT_WR);
  const int here = connect_kept(hello, "127.0.0.1");
  go_on.set_value();
  EXPECT_EQ(read_raw(gone), "");
  EXPECT_NE(read_until(here, "\x03"), "");
}

TEST_F(Hellos, OfThoseWhoMakeRoomWhileTheyWaitHoldUpNobody) {
  options.unknown_connections = options.unknown_connections_per_address = 1;
  serve([](auto) {}, options);
  stop_loop();
  std::vector<int> loud;
  for (std::size_t at = 0; at < crowd; ++at) loud.push_back(connect_kept(hello, "127.0.0.2"));
  go_on.set_value();
  EXPECT_NE(read_until(loud.back(), "\x03"), "");
}

TEST_F(Hellos, ThatAreMetByAWholeHandshakeLetItThrough) {
  serve([](auto exchange) { exchange->answer({.body = "fine"}); }, options);
  for (std::size_t at = 0; at < crowd; ++at) connect_kept(hello, "127.0.0.2");
  const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context.get()), SSL_free);
  SSL_set_fd(tls.get(), connect_kept("", "127.0.0.3"));
  ASSERT_EQ(SSL_connect(tls.get()), 1);
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  std::string answer;
  for (int round = 0; round < 3; ++round) {
    ASSERT_GT(SSL_write(tls.get(), request.data(), static_cast<int>(request.size())), 0);
    char bytes[4096];
    int got = 0;
    for (answer = ""; !answer.ends_with("fine") && (got = SSL_read(tls.get(), bytes, sizeof bytes)) > 0;)
      answer.append(bytes, static_cast<std::size_t>(got));
    EXPECT_TRUE(answer.ends_with("fine")) << answer;
  }
}

}  // namespace
}  // namespace tutti::net
