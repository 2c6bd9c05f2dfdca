#include <algorithm>

#include <boost/asio/ssl/context.hpp>

#include "base/visible.hpp"
#include "net/http/client.hpp"
#include "net/http/session.hpp"

namespace tutti::net {
namespace {

using tcp = asio::ip::tcp;

constexpr auto dial_time_max = std::chrono::seconds(10);
constexpr const char* too_slow_reason = "it reads too slowly, and too much waits for it";

asio::awaitable<void> write_frames(std::shared_ptr<WebSocket> stream, std::shared_ptr<Outbox> outbox) {
  stream->binary(true);
  for (;;) {
    const auto frame = co_await outbox->next();
    if (!frame) break;
    const auto [failure, written] = co_await stream->async_write(asio::buffer(*frame->text), as_values);
    outbox->done(*frame);
    if (failure) break;
  }
  const websocket::close_reason why =
      outbox->was_let_go() ? websocket::close_reason(websocket::close_code::try_again_later, too_slow_reason)
                           : websocket::close_reason(websocket::close_code::normal);
  outbox->abandon();
  co_await stream->async_close(why, as_values);
}

Instant steady_now() {
  return Instant(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

// Reads until the other side is gone; the reason is for people. While nothing is read, the kernel's buffers
// fill and the other side cannot send: that is how a faster one is slowed down.
asio::awaitable<std::string> read_frames(std::shared_ptr<WebSocket> stream,
                                         std::shared_ptr<OutboxSocket> socket, Rate rate) {
  beast::flat_buffer buffer;
  TokenBucket bucket(rate, steady_now());
  asio::steady_timer pause(stream->get_executor());
  for (;;) {
    for (Duration wait = bucket.take(steady_now()); wait > Duration::zero();
         wait = bucket.take(steady_now())) {
      pause.expires_after(wait);
      co_await pause.async_wait(as_values);
    }
    const auto [failure, got] = co_await stream->async_read(buffer, as_values);
    const auto& said = stream->reason().reason;
    if (failure) co_return said.empty() ? failure.message() : visible_line({said.data(), said.size()});
    std::string frame(static_cast<const char*>(buffer.data().data()), buffer.size());
    buffer.consume(buffer.size());
    if (socket->on_message) socket->on_message(std::move(frame));
  }
}

// The way is open to readers, and a token is not sent on it.
const error_code not_secret = make_error_code(boost::system::errc::operation_not_permitted);

bool all_here(const tcp::resolver::results_type& endpoints) {
  return std::all_of(endpoints.begin(), endpoints.end(),
                     [](const auto& entry) { return entry.endpoint().address().is_loopback(); });
}

asio::awaitable<error_code> open(Wire& wire, const Target& target) {
  tcp::resolver resolver(wire.get_executor());
  wire.lowest().expires_after(dial_time_max);
  const auto [unresolved, endpoints] =
      co_await resolver.async_resolve(target.host, std::to_string(target.port), as_values);
  if (unresolved) co_return unresolved;
  if (target.ca_file.empty() && !all_here(endpoints)) co_return not_secret;
  const auto [failure, endpoint] = co_await wire.lowest().async_connect(endpoints, as_values);
  if (failure) co_return failure;
  error_code ignored;
  wire.lowest().socket().set_option(tcp::no_delay(true), ignored);
  co_return co_await wire.handshake(beast::role_type::client, target.host);
}

using Dialled = std::function<void(Result<std::shared_ptr<Socket>>)>;

asio::awaitable<void> dial_socket(asio::io_context& context, Wire wire, Target target, std::string path,
                                  std::string token, Dialled done) {
  const auto failure = co_await open(wire, target);
  if (failure == not_secret) co_return done(in_the_clear().within("controller " + target.text()));
  if (failure) co_return done(failed(failure.message()).within("controller " + target.text()));
  wire.lowest().expires_never();
  auto stream = std::make_shared<WebSocket>(std::move(wire));
  set_socket_limits(*stream);
  stream->set_option(websocket::stream_base::decorator(
      [&](websocket::request_type& request) { request.set(http::field::authorization, "Bearer " + token); }));
  websocket::response_type answer;
  const auto [refused] = co_await stream->async_handshake(answer, target.text(), path, as_values);
  if (refused) {
    const std::string why = answer.result_int() == 401 ? "it refuses the token" : refused.message();
    co_return done(failed(why).within("controller " + target.text()));
  }
  auto socket = std::make_shared<OutboxSocket>(context, Outbox::Options{});
  done(std::shared_ptr<Socket>(socket));
  co_await run_socket(stream, socket, context, frame_rate_max);
}

}  // namespace

asio::awaitable<void> run_socket(std::shared_ptr<WebSocket> stream, std::shared_ptr<OutboxSocket> socket,
                                 asio::io_context& context, Rate frames) {
  auto written = std::make_shared<Signal>(context.get_executor());
  asio::co_spawn(context, write_frames(stream, socket->outbox),
                 [written](const std::exception_ptr&) { written->set(); });
  socket->unread = [&wire = stream->next_layer()] {
    error_code failure;
    return wire.lowest().socket().available(failure) > 0 && !failure;
  };
  const std::string why = co_await read_frames(stream, socket, frames);
  socket->unread = nullptr;
  socket->outbox->close();
  co_await written->wait();
  if (socket->on_close) socket->on_close(why);
  socket->on_message = nullptr;
  socket->on_close = nullptr;
}

void set_socket_limits(WebSocket& stream) {
  websocket::stream_base::timeout limits;
  limits.handshake_timeout = std::chrono::seconds(10);
  limits.idle_timeout = std::chrono::seconds(30);
  limits.keep_alive_pings = true;
  stream.set_option(limits);
  stream.read_message_max(frame_bytes_max);
}

void dial(Loop& loop, const Target& target, const std::string& path, const std::string& token, Dialled done) {
  auto& context = loop.core().context;
  auto tls = client_tls(target.ca_file);
  if (!tls) return loop.post([done = std::move(done), error = tls.error()] { done(error); });
  Wire wire(beast::tcp_stream(context), std::move(*tls));
  asio::co_spawn(context, dial_socket(context, std::move(wire), target, path, token, std::move(done)),
                 asio::detached);
}

}  // namespace tutti::net
