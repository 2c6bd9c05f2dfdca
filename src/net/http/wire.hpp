// One connection, plain or TLS, as a single type. Beast's operations are templates over their stream: with
// one type they are compiled once, which halves the build of this module. For this module's own files only.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/role.hpp>
#include <boost/beast/core/tcp_stream.hpp>

#include "base/result.hpp"
#include "base/time.hpp"

namespace boost::asio::ssl {
class context;
}

namespace tutti::net {

namespace asio = boost::asio;
using boost::system::error_code;

class Turns;
struct ServerIdentity;
struct Target;

// Pieces up to here are copied together.
constexpr std::size_t gathered_bytes_max = std::size_t{64} << 10;

class Wire {
 public:
  using executor_type = asio::any_io_executor;
  using Done = std::function<void(error_code, std::size_t)>;

  // What differs between plain and TLS.
  class Layer {
   public:
    Layer() = default;
    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;
    virtual ~Layer() = default;
    virtual boost::beast::tcp_stream& lowest() = 0;
    virtual void read_some(asio::mutable_buffer buffer, Done done) = 0;
    virtual void write_some(asio::const_buffer buffer, Done done) = 0;
    // The TLS handshake; at once for a plain connection.
    virtual void handshake(boost::beast::role_type role, const std::string& host,
                           std::function<void(error_code)> done) = 0;
    // Of a handshake that failed: what is wrong with the certificate of the other side (trust.hpp); 0:
    // nothing, or none was shown.
    virtual long verdict() = 0;
    // After the handshake, the certificate that the other side has shown (DER); "": none.
    virtual std::string peer() = 0;
    // What waits on it ends.
    virtual void close() = 0;
  };

  // Where its handshake waits for its turns, and until when. Null: it needs none.
  struct Queue {
    std::shared_ptr<Turns> turns = nullptr;
    std::string address = {};
    std::chrono::steady_clock::time_point until = {};
  };

  // `tls` may be null; it outlives the connection.
  Wire(boost::beast::tcp_stream stream, std::shared_ptr<asio::ssl::context> tls, Queue queue);

  executor_type get_executor() { return layer_->lowest().get_executor(); }
  boost::beast::tcp_stream& lowest() { return layer_->lowest(); }
  asio::awaitable<error_code> handshake(boost::beast::role_type role, const std::string& host);
  long verdict() { return layer_->verdict(); }
  std::string peer() { return layer_->peer(); }
  void close() { layer_->close(); }

  template <class Buffers, class Handler>
  auto async_read_some(const Buffers& buffers, Handler&& handler) {
    return asio::async_initiate<Handler, void(error_code, std::size_t)>(
        [layer = layer_.get(), buffer = first<asio::mutable_buffer>(buffers)](auto completed) {
          layer->read_some(buffer, erase(std::move(completed)));
        },
        handler);
  }
  template <class Buffers, class Handler>
  auto async_write_some(const Buffers& buffers, Handler&& handler) {
    return asio::async_initiate<Handler, void(error_code, std::size_t)>(
        [layer = layer_.get(), gathered = gather(buffers)](auto completed) {
          layer->write_some(gathered.buffer, erase(std::move(completed), gathered.copy));
        },
        handler);
  }

 private:
  // "Some" may be as little as the first buffer that is not empty.
  template <class Buffer, class Buffers>
  static Buffer first(const Buffers& buffers) {
    for (auto at = asio::buffer_sequence_begin(buffers); at != asio::buffer_sequence_end(buffers); ++at) {
      if (Buffer(*at).size() > 0) return *at;
    }
    return {};
  }
  // What is written at once. Beast hands over an answer in some eight pieces, and a frame in two: one by one,
  // each would be a call, a packet and a reader who wakes up for it.
  struct Gathered {
    asio::const_buffer buffer;
    std::shared_ptr<std::string> copy;  // where there is more than one piece
  };
  template <class Buffers>
  static Gathered gather(const Buffers& buffers) {
    const auto one = first<asio::const_buffer>(buffers);
    const std::size_t bytes = std::min(gathered_bytes_max, asio::buffer_size(buffers));
    if (one.size() >= bytes) return {one, nullptr};
    auto copy = std::make_shared<std::string>(bytes, '\0');
    asio::buffer_copy(asio::buffer(*copy), buffers);
    return {asio::buffer(*copy), std::move(copy)};
  }
  // Handlers can only be moved, std::function wants to copy.
  template <class Handler>
  static Done erase(Handler handler, std::shared_ptr<std::string> written = nullptr) {
    return [kept = std::make_shared<Handler>(std::move(handler)), written = std::move(written)](
               error_code failure, std::size_t bytes) { (*kept)(failure, bytes); };
  }

  std::unique_ptr<Layer> layer_;
};

// How Beast takes leave of its stream; it looks for these names.
inline void beast_close_socket(Wire& wire) { wire.close(); }
inline void teardown(boost::beast::role_type, Wire& wire, error_code& failure) {
  wire.close();
  failure = {};
}
template <class Handler>
void async_teardown(boost::beast::role_type, Wire& wire, Handler&& handler) {
  wire.close();
  asio::post(wire.get_executor(), [kept = std::forward<Handler>(handler)]() mutable { kept(error_code()); });
}

// A context for the server's side, or for the client's; null where no file is given.
Result<std::shared_ptr<asio::ssl::context>> server_tls(const std::string& certificate_file,
                                                       const std::string& key_file);
Result<std::shared_ptr<asio::ssl::context>> server_tls(const ServerIdentity& identity);
Result<std::shared_ptr<asio::ssl::context>> client_tls(const Target& target);

}  // namespace tutti::net
