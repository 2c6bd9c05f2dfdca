#include <algorithm>
#include <exception>

#include <boost/asio/error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>

#include "base/rate.hpp"
#include "base/visible.hpp"
#include "net/http/client.hpp"
#include "net/http/contained.hpp"
#include "net/http/dialling.hpp"
#include "net/http/session.hpp"
#include "net/http/trust.hpp"

namespace tutti::net {
namespace {

constexpr const char* too_slow_reason = "it reads too slowly, and too much waits for it";
constexpr const char* crowded_reason = "too much has come of messages that are not whole";
constexpr const char* unfinished_reason = "its message was not whole in time";
constexpr const char* pings_reason = "it sends pings without end";
constexpr const char* unknown_reason = "it has not said in time who it is";

// What became of the frame is known when this goes, also where writing it has thrown.
struct UnderWay {
  Outbox& outbox;
  const Outbox::Entry& frame;

  UnderWay(Outbox& box, const Outbox::Entry& entry) : outbox(box), frame(entry) {}
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
  ~UnderWay() { outbox.done(frame); }
};

asio::awaitable<void> write_frames(std::shared_ptr<WebSocket> stream, std::shared_ptr<Outbox> outbox) {
  stream->binary(true);
  for (;;) {
    const auto frame = co_await outbox->next();
    if (!frame) break;
    const UnderWay under_way(*outbox, *frame);
    const auto [failure, written] = co_await stream->async_write(asio::buffer(*frame->text), as_values);
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

bool has_unread(WebSocket& stream) {
  error_code failure;
  return stream.next_layer().lowest().socket().available(failure) > 0 && !failure;
}

// Closes a connection that does not do in time what it has to. One of which something waits to be read gets
// the same time once more: then it is this loop that is late.
class Deadline final : public std::enable_shared_from_this<Deadline> {
 public:
  explicit Deadline(std::shared_ptr<WebSocket> stream)
      : stream_(std::move(stream)), timer_(stream_->get_executor()) {}

  void begin(Duration time) { wait(time, true); }
  void end() {
    ++round_;
    timer_.cancel();
  }
  bool is_missed() const { return is_missed_; }

 private:
  void wait(Duration time, bool is_patient) {
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this(), round = ++round_, time, is_patient](error_code) {
      if (round != self->round_) return;
      if (is_patient && has_unread(*self->stream_)) return self->wait(time, false);
      self->is_missed_ = true;
      self->stream_->next_layer().close();
    });
  }

  const std::shared_ptr<WebSocket> stream_;
  asio::steady_timer timer_;
  std::uint64_t round_ = 0;
  bool is_missed_ = false;
};

// Pings are answered beneath the messages, where no other limit counts them: whoever sends too many is left.
struct ControlFrames {
  TokenBucket bucket{control_frame_rate_max, steady_now()};
  bool too_many = false;
};

std::shared_ptr<const ControlFrames> limit_control_frames(WebSocket& stream) {
  auto frames = std::make_shared<ControlFrames>();
  stream.control_callback([frames, wire = &stream.next_layer()](websocket::frame_type, beast::string_view) {
    if (frames->bucket.take(steady_now()) <= Duration::zero()) return;
    frames->too_many = true;
    wire->close();
  });
  return frames;
}

// Reads until the other side is gone; the reason is for people. While nothing is read, the kernel's buffers
// fill and the other side cannot send: that is how a faster one is slowed down.
asio::awaitable<std::string> read_frames(std::shared_ptr<WebSocket> stream,
                                         std::shared_ptr<OutboxSocket> socket,
                                         std::shared_ptr<Deadline> deadline, const SocketRules& rules) {
  std::optional<Incoming::Arrival> arrival;  // of a message that takes several reads
  beast::flat_buffer buffer;
  TokenBucket bucket(rules.frames, steady_now());
  const auto control_frames = limit_control_frames(*stream);
  asio::steady_timer pause(stream->get_executor());
  for (;;) {
    for (Duration wait = bucket.take(steady_now()); wait > Duration::zero();
         wait = bucket.take(steady_now())) {
      pause.expires_after(wait);
      co_await pause.async_wait(as_values);
    }
    for (bool is_whole = false; !is_whole;) {
      const auto [failure, got] = co_await stream->async_read_some(buffer, piece_bytes_max, as_values);
      if (arrival && arrival->was_let_go()) co_return crowded_reason;
      if (control_frames->too_many) co_return pings_reason;
      if (deadline->is_missed()) co_return socket->is_known ? unfinished_reason : unknown_reason;
      const auto& said = stream->reason().reason;
      if (failure) co_return said.empty() ? failure.message() : visible_line({said.data(), said.size()});
      ++socket->pieces_read;
      is_whole = stream->is_message_done();
      if (is_whole || !rules.messages) continue;
      if (!arrival) {
        arrival.emplace(socket->is_known ? rules.messages : rules.unknown_messages, rules.address,
                        [stream] { stream->next_layer().close(); });
        if (socket->is_known) deadline->begin(rules.message_time);
      }
      arrival->hold(buffer.capacity());
    }
    std::string frame(static_cast<const char*>(buffer.data().data()), buffer.size());
    buffer.consume(buffer.size());
    if (buffer.capacity() > piece_bytes_max) buffer.shrink_to_fit();
    if (arrival && socket->is_known) deadline->end();
    arrival.reset();
    if (socket->on_message) socket->on_message(std::move(frame));
  }
}

// A coroutine may be taken away together with whoever awaits it: each holds what it uses.
struct Conversation {
  asio::io_context& context;
  const std::shared_ptr<WebSocket> stream;
  const std::shared_ptr<OutboxSocket> socket;
  const std::shared_ptr<Deadline> deadline;
  const SocketRules rules;
  std::string why = {};  // it has ended, for people
};

asio::awaitable<void> write_all(std::shared_ptr<Conversation> conversation) {
  try {
    auto frames = write_frames(conversation->stream, conversation->socket->outbox);
    co_await contained(conversation->context, std::move(frames));
  } catch (...) {
    conversation->socket->outbox->abandon();
    conversation->stream->next_layer().close();
  }
}

// Reads and writes until the other side is gone.
asio::awaitable<void> converse(std::shared_ptr<Conversation> conversation) {
  const auto& [context, stream, socket, deadline, rules, why] = *conversation;
  const auto written = launch(context, write_all(conversation));
  socket->unread = [stream = stream.get()] { return has_unread(*stream); };
  socket->on_known = [deadline = deadline] { deadline->end(); };
  if (rules.messages && !socket->is_known) deadline->begin(rules.unknown_time);
  conversation->why = co_await read_frames(stream, socket, deadline, rules);
  deadline->end();
  // What still comes is nobody's, however long the last frames take.
  socket->unread = nullptr;
  socket->outbox->close();
  co_await written->over.wait();
}

std::string what_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown failure";
  }
}

using Dialled = std::function<void(Result<std::shared_ptr<Socket>>)>;

asio::awaitable<void> dial_socket(asio::io_context& context, Wire wire, Target target, std::string path,
                                  std::string token, Dialled done) {
  const auto failure = co_await open_wire(wire, target, true, dial_time_max);
  if (failure) co_return done(cannot_open(wire, target, failure));
  wire.lowest().expires_never();
  auto stream = std::make_shared<WebSocket>(std::move(wire));
  set_socket_limits(*stream);
  stream->set_option(websocket::stream_base::decorator([&](websocket::request_type& request) {
    if (!token.empty()) request.set(http::field::authorization, "Bearer " + token);
  }));
  websocket::response_type answer;
  const auto [refused] = co_await stream->async_handshake(answer, target.text(), path, as_values);
  if (refused == websocket::error::upgrade_declined) {
    const std::string why = answer.result_int() == 401 ? "it refuses the token" : refused.message();
    co_return done(failed(why).within(target.who + " " + target.text()));
  }
  const bool by_tls = refused.category() == asio::error::get_ssl_category();
  if (by_tls && !target.certificate_file.empty())
    co_return done(unwanted(target, refused.message()).within(target.who + " " + target.text()));
  if (refused) co_return done(misunderstood(target, refused));
  auto socket = std::make_shared<OutboxSocket>(context, Outbox::Options{});
  SocketRules rules;
  const SocketReady ready = [&done](std::shared_ptr<Socket> open) { done(std::move(open)); };
  co_await run_socket(stream, socket, context, std::move(rules), ready);
}

// Whoever dials hears of it, however it fails.
asio::awaitable<void> dial_contained(asio::io_context& context, asio::awaitable<void> work, Dialled done,
                                     std::string where) {
  co_await asio::post(context, asio::use_awaitable);
  std::exception_ptr failure;
  try {
    co_await contained(context, std::move(work));
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) done(failed(what_of(failure)).within(where));
}

}  // namespace

asio::awaitable<void> run_socket(std::shared_ptr<WebSocket> stream, std::shared_ptr<OutboxSocket> socket,
                                 asio::io_context& context, SocketRules rules, const SocketReady& ready) {
  const auto deadline = std::make_shared<Deadline>(stream);
  const auto conversation =
      std::make_shared<Conversation>(Conversation{context, stream, socket, deadline, std::move(rules)});
  std::exception_ptr failure;
  try {
    ready(socket);
    auto all = converse(conversation);
    co_await contained(context, std::move(all));
  } catch (...) {
    failure = std::current_exception();
    conversation->why = what_of(failure);
    stream->next_layer().close();
  }
  deadline->end();
  socket->on_known = nullptr;
  socket->unread = nullptr;
  socket->on_message = nullptr;
  socket->outbox->close();
  const auto on_close = std::exchange(socket->on_close, nullptr);
  if (on_close) on_close(conversation->why);
  if (failure && !on_close) std::rethrow_exception(failure);
}

void set_socket_limits(WebSocket& stream) {
  websocket::stream_base::timeout limits;
  limits.handshake_timeout = std::chrono::seconds(10);
  limits.idle_timeout = std::chrono::seconds(30);
  limits.keep_alive_pings = true;
  stream.set_option(limits);
  stream.read_message_max(frame_bytes_max);
}

Result<Credentials> Credentials::read(const Target& target) {
  auto tls = client_tls(target);
  if (!tls) return std::move(tls).error();
  Credentials credentials;
  credentials.tls_ = std::move(*tls);
  return credentials;
}

void dial(Loop& loop, const Target& target, const std::string& path, const std::string& token, Dialled done) {
  const auto credentials = Credentials::read(target);
  if (!credentials) return loop.post([done = std::move(done), error = credentials.error()] { done(error); });
  dial(loop, target, *credentials, path, token, done);
}

void dial(Loop& loop, const Target& target, const Credentials& credentials, const std::string& path,
          const std::string& token, const Dialled& done) {
  auto& context = loop.core().context;
  Wire wire(beast::tcp_stream(context), std::static_pointer_cast<asio::ssl::context>(credentials.tls_), {});
  auto work = dial_socket(context, std::move(wire), target, path, token, done);
  auto dialled = dial_contained(context, std::move(work), done, target.who + " " + target.text());
  // Who throws at that, too, would wait for ever: the loop ends.
  asio::co_spawn(context, std::move(dialled), [core = &loop.core()](const std::exception_ptr& failure) {
    if (failure) core->run_task([&failure] { std::rethrow_exception(failure); });
  });
}

}  // namespace tutti::net
