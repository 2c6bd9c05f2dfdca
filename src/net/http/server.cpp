#include "net/http/server.hpp"

#include <boost/asio/ssl/context.hpp>

#include "net/http/connection.hpp"
#include "net/http/contained.hpp"

namespace tutti::net {
namespace {

using tcp = asio::ip::tcp;

// It is tried again many times a second.
constexpr Rate shut_told{.per_second = 0.1, .burst = 1};

// Where connections come in. It lives as long as somebody does who comes in, or waits here to.
class Door final : public std::enable_shared_from_this<Door> {
 public:
  Door(std::shared_ptr<Shared> shared, tcp::acceptor acceptor, std::shared_ptr<asio::ssl::context> tls)
      : shared_(std::move(shared)), acceptor_(std::move(acceptor)), tls_(std::move(tls)) {}

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  void use(std::shared_ptr<asio::ssl::context> tls) { tls_ = std::move(tls); }

  void open() { asio::co_spawn(shared_->context, stay_open(shared_from_this()), asio::detached); }
  void close() {
    error_code ignored;
    acceptor_.close(ignored);
  }

 private:
  // Whatever fails while somebody comes in, the next one can.
  asio::awaitable<void> stay_open(std::shared_ptr<Door> self) {
    while (self->acceptor_.is_open()) {
      try {
        auto all = accept_all(self);
        co_await contained(self->shared_->context, std::move(all));
      } catch (const std::exception&) {
        make_room(asio::error::no_memory);
      }
      if (self->acceptor_.is_open()) co_await pause();
    }
  }

  asio::awaitable<void> accept_all(std::shared_ptr<Door> self) {
    while (self->acceptor_.is_open()) {
      auto [failure, socket] = co_await self->acceptor_.async_accept(as_values);
      if (failure == asio::error::operation_aborted) co_return;
      if (!failure) failure = let_in(std::move(socket));
      if (!failure) failure = let_in_more();
      if (!failure) continue;
      make_room(failure);
      co_await pause();
    }
  }

  // Those who wait, too: one in each round of a busy loop, and whoever comes last would wait for as many
  // rounds as there are others.
  error_code let_in_more() {
    error_code failure;
    for (std::size_t in = 1; !failure && in < connections_at_once; ++in) {
      tcp::socket socket = acceptor_.accept(failure);
      if (!failure) failure = let_in(std::move(socket));
    }
    return failure == asio::error::would_block ? error_code() : failure;
  }

  // Out of descriptors or memory: give the others time to end.
  asio::awaitable<void> pause() {
    asio::steady_timer timer(shared_->context, std::chrono::milliseconds(50));
    co_await timer.async_wait(as_values);
  }

  // Without memory for it the newcomer has to go, and nobody else. Only the few hundred bytes that Asio needs
  // for a wait have to be there.
  error_code let_in(tcp::socket socket) {
    try {
      error_code ignored;
      const std::string remote = socket.remote_endpoint(ignored).address().to_string();
      socket.set_option(tcp::no_delay(true), ignored);
      socket.set_option(asio::socket_base::keep_alive(true), ignored);
      if (has_room(remote)) serve(beast::tcp_stream(std::move(socket)), remote);
      return {};
    } catch (const std::bad_alloc&) {
      return asio::error::no_memory;
    }
  }

  // What there is no memory for now is tried again after the pause.
  void make_room(const error_code& why) {
    try {
      tell_shut(why);
      const bool is_out = why == asio::error::no_descriptors || why == asio::error::no_memory;
      if (!shared_->lobby.make_room() && is_out) shared_->idle.make_room(shared_->idle.largest_address());
    } catch (const std::bad_alloc&) {
      return;
    }
  }

  void tell_shut(const error_code& why) {
    const auto now =
        std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch());
    if (shared_->options.on_shut && tells_shut_.take(Instant(now)) == Duration::zero())
      shared_->options.on_shut(why.message());
  }

  // Where there is none, one that has shown no token makes some; else one that asks for nothing, of an
  // address that has more of them than the newcomer's: nobody shuts out others by being here.
  bool has_room(const std::string& remote) {
    if (shared_->open >= shared_->options.connections && !shared_->lobby.make_room() &&
        !make_idle_room(remote))
      return false;
    return open_from(remote) < shared_->options.connections_per_address || shared_->lobby.make_room(remote);
  }

  bool make_idle_room(const std::string& remote) {
    const std::string largest = shared_->idle.largest_address();
    return open_from(largest) > open_from(remote) && shared_->idle.make_room(largest);
  }

  std::size_t open_from(const std::string& address) const {
    const auto here = shared_->open_by_address.find(address);
    return here == shared_->open_by_address.end() ? 0 : here->second;
  }

  void serve(beast::tcp_stream stream, const std::string& remote) {
    const auto until = std::chrono::steady_clock::now() + shared_->options.unknown_time;
    Wire wire(std::move(stream), tls_, {shared_->handshakes, remote, until});
    auto connection = std::make_shared<Connection>(shared_, std::move(wire), remote);
    asio::co_spawn(shared_->context, connection->run(), asio::detached);
  }

  const std::shared_ptr<Shared> shared_;
  tcp::acceptor acceptor_;
  std::shared_ptr<asio::ssl::context> tls_;
  TokenBucket tells_shut_{shut_told, Instant()};
};

class BeastServer final : public Server {
 public:
  explicit BeastServer(std::shared_ptr<Door> door) : door_(std::move(door)) { door_->open(); }
  BeastServer(const BeastServer&) = delete;
  BeastServer& operator=(const BeastServer&) = delete;
  ~BeastServer() override { door_->close(); }

  std::uint16_t port() const override { return door_->port(); }
  Result<> use(const ServerIdentity& identity) override { return use(server_tls(identity)); }

 private:
  Result<> use(Result<std::shared_ptr<asio::ssl::context>> tls) {
    if (!tls) return std::move(tls).error();
    door_->use(std::move(*tls));
    return {};
  }

  const std::shared_ptr<Door> door_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(Loop& loop, const ServerOptions& options, Handler handler,
                                               Admit admit) {
  const std::string where = options.address + ":" + std::to_string(options.port);
  auto tls = options.identity ? server_tls(*options.identity)
                              : server_tls(options.certificate_file, options.key_file);
  if (!tls) return std::move(tls).error();
  error_code failure;
  const auto address = asio::ip::make_address(options.address, failure);
  if (failure)
    return invalid("'" + options.address + "' is not an address")
        .remedy("write an IP address such as 127.0.0.1 or 0.0.0.0");
  tcp::acceptor acceptor(loop.core().context);
  const tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), failure);
  if (!failure) acceptor.set_option(asio::socket_base::reuse_address(true), failure);
  if (!failure) acceptor.bind(endpoint, failure);
  if (!failure) acceptor.non_blocking(true, failure);
  if (!failure) acceptor.listen(4096, failure);
  if (failure) {
    Error refused = failed(failure.message()).within("cannot listen on " + where);
    if (failure == asio::error::no_descriptors)
      return std::move(refused).remedy("`ulimit -n` says how many files a program may open: raise it");
    return std::move(refused).remedy("another program may listen there; `--listen` takes another port");
  }
  auto shared = std::make_shared<Shared>(loop.core().context, options, std::move(handler), std::move(admit));
  auto door = std::make_shared<Door>(std::move(shared), std::move(acceptor), std::move(*tls));
  return std::unique_ptr<Server>(std::make_unique<BeastServer>(std::move(door)));
}

}  // namespace tutti::net
