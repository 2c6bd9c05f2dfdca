#include "net/http/wire.hpp"

#include <poll.h>

#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "net/http/server.hpp"
#include "net/http/trust.hpp"
#include "net/http/turns.hpp"

namespace tutti::net {
namespace {

namespace beast = boost::beast;
namespace ssl = asio::ssl;

void close_now(beast::tcp_stream& stream) {
  error_code ignored;
  stream.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream.close();
}

class PlainLayer final : public Wire::Layer {
 public:
  explicit PlainLayer(beast::tcp_stream stream) : stream_(std::move(stream)) {}
  beast::tcp_stream& lowest() override { return stream_; }
  void read_some(asio::mutable_buffer buffer, Wire::Done done) override {
    stream_.async_read_some(buffer, std::move(done));
  }
  void write_some(asio::const_buffer buffer, Wire::Done done) override {
    stream_.async_write_some(buffer, std::move(done));
  }
  void handshake(beast::role_type, const std::string&, std::function<void(error_code)> done) override {
    asio::post(stream_.get_executor(), [done = std::move(done)] { done({}); });
  }
  long verdict() override { return 0; }
  std::string peer() override { return ""; }
  void close() override { close_now(stream_); }

 private:
  beast::tcp_stream stream_;
};

// What TLS reads from. Until the handshake is done, whatever has come waits for its turn, each piece of it:
// who sends its hello in two has not had its turn with the first.
class Gate {
 public:
  using executor_type = beast::tcp_stream::executor_type;
  using lowest_layer_type = beast::tcp_stream::socket_type;

  Gate(beast::tcp_stream stream, Wire::Queue queue) : stream_(std::move(stream)), queue_(std::move(queue)) {}

  beast::tcp_stream& stream() { return stream_; }
  executor_type get_executor() { return stream_.get_executor(); }
  lowest_layer_type& lowest_layer() { return stream_.socket(); }

  template <class Buffers, class Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (queue_.turns == nullptr) return stream_.async_read_some(buffers, std::forward<Handler>(handler));
    stream_.async_read_some(buffers, [this, kept = std::forward<Handler>(handler)](
                                         error_code failure, std::size_t bytes) mutable {
      if (failure) return kept(failure, bytes);
      wait_for_turn(bytes, std::move(kept));
    });
  }
  template <class Buffers, class Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    stream_.async_write_some(buffers, std::forward<Handler>(handler));
  }

  void open() { queue_ = {}; }
  void close() {
    close_now(stream_);
    if (const auto place = place_.lock()) place->timer.cancel();
  }

 private:
  template <class Handler>
  void wait_for_turn(std::size_t bytes, Handler handler) {
    const auto place = std::make_shared<Turns::Place>(Turns::Place{
        asio::steady_timer(stream_.get_executor(), queue_.until), [this] { return has_left(); }});
    place_ = place;
    place->timer.async_wait([this, place, bytes, kept = std::move(handler)](error_code over) mutable {
      const bool is_turn = over == asio::error::operation_aborted && !has_left();
      has_begun_ = true;
      if (is_turn) return kept(error_code(), bytes);
      kept(error_code(asio::error::connection_aborted), 0);
    });
    queue_.turns->enter(queue_.address, place);
  }
  // Before the first step, which is the dear one, it cannot have said all it has to say.
  bool has_left() {
    if (!stream_.socket().is_open()) return true;
    pollfd looked{.fd = stream_.socket().native_handle(), .events = POLLRDHUP, .revents = 0};
    return !has_begun_ && ::poll(&looked, 1, 0) > 0;
  }

  beast::tcp_stream stream_;
  Wire::Queue queue_;
  std::weak_ptr<Turns::Place> place_;
  bool has_begun_ = false;
};

class TlsLayer final : public Wire::Layer {
 public:
  TlsLayer(beast::tcp_stream stream, std::shared_ptr<ssl::context> tls, Wire::Queue queue)
      : tls_(std::move(tls)), stream_(Gate(std::move(stream), std::move(queue)), *tls_) {}
  beast::tcp_stream& lowest() override { return stream_.next_layer().stream(); }
  void read_some(asio::mutable_buffer buffer, Wire::Done done) override {
    stream_.async_read_some(buffer, std::move(done));
  }
  void write_some(asio::const_buffer buffer, Wire::Done done) override {
    stream_.async_write_some(buffer, std::move(done));
  }
  void handshake(beast::role_type role, const std::string& host,
                 std::function<void(error_code)> done) override {
    if (role == beast::role_type::client) expect_host(stream_.native_handle(), host);
    stream_.async_handshake(
        role == beast::role_type::client ? ssl::stream_base::client : ssl::stream_base::server,
        [this, done = std::move(done)](error_code failure) {
          stream_.next_layer().open();
          done(failure);
        });
  }
  long verdict() override { return SSL_get_verify_result(stream_.native_handle()); }
  std::string peer() override { return shown_certificate(stream_.native_handle()); }
  void close() override { stream_.next_layer().close(); }

 private:
  std::shared_ptr<ssl::context> tls_;
  ssl::stream<Gate> stream_;
};

}  // namespace

Wire::Wire(beast::tcp_stream stream, std::shared_ptr<ssl::context> tls, Queue queue) {
  if (tls == nullptr) {
    layer_ = std::make_unique<PlainLayer>(std::move(stream));
  } else {
    layer_ = std::make_unique<TlsLayer>(std::move(stream), std::move(tls), std::move(queue));
  }
}

asio::awaitable<error_code> Wire::handshake(beast::role_type role, const std::string& host) {
  constexpr auto as_value = asio::as_tuple(asio::use_awaitable);
  const auto [failure] = co_await asio::async_initiate<decltype(as_value), void(error_code)>(
      [&](auto completed) {
        auto kept = std::make_shared<decltype(completed)>(std::move(completed));
        layer_->handshake(role, host, [kept](error_code done) { (*kept)(done); });
      },
      as_value);
  co_return failure;
}

namespace {

// One for people, and one for whoever wants that of the cluster: both take the same certificates of others.
Result<std::shared_ptr<ssl::context>> server_tls_of_two(const ServerIdentity& identity) {
  using Both = std::pair<std::shared_ptr<ssl::context>, std::shared_ptr<ssl::context>>;
  auto first = server_tls({identity.certificates, identity.key, identity.client_authorities});
  if (!first) return first;
  auto second =
      server_tls({identity.cluster_certificates, identity.cluster_key, identity.client_authorities});
  if (!second) return second;
  const auto both = std::make_shared<Both>(std::move(*first), std::move(*second));
  show_to_cluster(both->first->native_handle(), both->second->native_handle());
  return std::shared_ptr<ssl::context>(both, both->first.get());
}

std::shared_ptr<ssl::context> new_server_tls() {
  auto tls = std::make_shared<ssl::context>(ssl::context::tls_server);
  tls->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  return tls;
}

}  // namespace

Result<std::shared_ptr<ssl::context>> server_tls(const std::string& certificate_file,
                                                 const std::string& key_file) {
  if (certificate_file.empty()) return std::shared_ptr<ssl::context>();
  auto tls = new_server_tls();
  error_code failure;
  tls->use_certificate_chain_file(certificate_file, failure);
  if (failure) return failed(failure.message()).within("TLS certificate " + certificate_file);
  tls->use_private_key_file(key_file, ssl::context::pem, failure);
  if (failure) return failed(failure.message()).within("TLS key " + key_file);
  return tls;
}

Result<std::shared_ptr<ssl::context>> server_tls(const ServerIdentity& identity) {
  if (!identity.cluster_certificates.empty()) return server_tls_of_two(identity);
  auto tls = new_server_tls();
  error_code failure;
  tls->use_certificate_chain(asio::buffer(identity.certificates), failure);
  if (failure) return failed(failure.message()).within("TLS certificate");
  tls->use_private_key(asio::buffer(identity.key), ssl::context::pem, failure);
  if (failure) return failed(failure.message()).within("TLS key");
  if (identity.client_authorities.empty()) return tls;
  if (auto asks = ask_for_certificates(tls->native_handle(), identity.client_authorities); !asks)
    return std::move(asks).error();
  return tls;
}

Result<std::shared_ptr<ssl::context>> client_tls(const Target& target) {
  if (!target.is_secure()) return std::shared_ptr<ssl::context>();
  auto tls = std::make_shared<ssl::context>(ssl::context::tls_client);
  if (auto trusted = trust_authority(tls->native_handle(), target); !trusted)
    return std::move(trusted).error();
  tls->set_verify_mode(ssl::verify_peer);
  if (auto shows = show_certificate(tls->native_handle(), target); !shows) return std::move(shows).error();
  if (target.wants_cluster) {
    if (auto wants = want_cluster(tls->native_handle()); !wants) return std::move(wants).error();
  }
  return tls;
}

}  // namespace tutti::net
