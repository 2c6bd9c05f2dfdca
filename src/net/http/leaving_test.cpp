// Those who leave before their answer, whatever they have sent before that, and those who stay and do not
// read.
#include <openssl/ssl.h>

#include <cstdlib>
#include <filesystem>
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

// A certificate of its own, removed with it.
class Certificate {
 public:
  Certificate() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-tls-XXXXXX").string();
    folder_ = mkdtemp(path.data());
    const std::string made =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
        "/CN=localhost "
        "-keyout " +
        key_file() + " -out " + certificate_file() + " 2>/dev/null";
    EXPECT_EQ(std::system(made.c_str()), 0);
  }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;
  ~Certificate() { std::filesystem::remove_all(folder_); }

  std::string key_file() const { return folder_ + "/key.pem"; }
  std::string certificate_file() const { return folder_ + "/certificate.pem"; }

 private:
  std::string folder_;
};

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
  const std::string got = raw("GET / HTTP/1.1\r\n\r\n", false);
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
