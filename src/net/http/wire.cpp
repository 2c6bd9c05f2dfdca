#include "net/http/wire.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace tutti::net {
namespace {

namespace beast = boost::beast;
namespace ssl = asio::ssl;

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

 private:
  beast::tcp_stream stream_;
};

class TlsLayer final : public Wire::Layer {
 public:
  TlsLayer(beast::tcp_stream stream, std::shared_ptr<ssl::context> tls)
      : tls_(std::move(tls)), stream_(std::move(stream), *tls_) {}
  beast::tcp_stream& lowest() override { return stream_.next_layer(); }
  void read_some(asio::mutable_buffer buffer, Wire::Done done) override {
    stream_.async_read_some(buffer, std::move(done));
  }
  void write_some(asio::const_buffer buffer, Wire::Done done) override {
    stream_.async_write_some(buffer, std::move(done));
  }
  void handshake(beast::role_type role, const std::string& host,
                 std::function<void(error_code)> done) override {
    if (role == beast::role_type::client) {
      stream_.set_verify_callback(ssl::host_name_verification(host));
      SSL_ctrl(stream_.native_handle(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
               const_cast<char*>(host.c_str()));
    }
    stream_.async_handshake(
        role == beast::role_type::client ? ssl::stream_base::client : ssl::stream_base::server,
        std::move(done));
  }

 private:
  std::shared_ptr<ssl::context> tls_;
  ssl::stream<beast::tcp_stream> stream_;
};

}  // namespace

Wire::Wire(beast::tcp_stream stream, std::shared_ptr<ssl::context> tls) {
  if (tls == nullptr) {
    layer_ = std::make_unique<PlainLayer>(std::move(stream));
  } else {
    layer_ = std::make_unique<TlsLayer>(std::move(stream), std::move(tls));
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

void Wire::close() {
  error_code ignored;
  lowest().socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  lowest().close();
}

Result<std::shared_ptr<ssl::context>> server_tls(const std::string& certificate_file,
                                                 const std::string& key_file) {
  if (certificate_file.empty()) return std::shared_ptr<ssl::context>();
  auto tls = std::make_shared<ssl::context>(ssl::context::tls_server);
  tls->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  error_code failure;
  tls->use_certificate_chain_file(certificate_file, failure);
  if (failure) return failed(failure.message()).within("TLS certificate " + certificate_file);
  tls->use_private_key_file(key_file, ssl::context::pem, failure);
  if (failure) return failed(failure.message()).within("TLS key " + key_file);
  return tls;
}

Result<std::shared_ptr<ssl::context>> client_tls(const std::string& ca_file) {
  if (ca_file.empty()) return std::shared_ptr<ssl::context>();
  auto tls = std::make_shared<ssl::context>(ssl::context::tls_client);
  error_code failure;
  tls->load_verify_file(ca_file, failure);
  if (failure) return failed(failure.message()).within("certificate authority " + ca_file);
  tls->set_verify_mode(ssl::verify_peer);
  return tls;
}

}  // namespace tutti::net
