// What server and dialled sockets share: signals, outboxes, the two halves of a WebSocket. For this module's
// own files only.
#pragma once

#include <atomic>
#include <deque>
#include <optional>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>

#include "net/http/core.hpp"
#include "net/http/http.hpp"
#include "net/http/wire.hpp"

namespace tutti::net {

namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;

// Errors come back as values: co_await returns a tuple.
constexpr auto as_values = asio::as_tuple(asio::use_awaitable);

// A wake-up that cannot be missed: set before or after the wait begins.
class Signal {
 public:
  explicit Signal(const asio::any_io_executor& executor)
      : timer_(executor, asio::steady_timer::time_point::max()) {}
  void set() {
    set_ = true;
    timer_.cancel();
  }
  asio::awaitable<void> wait() {
    while (!set_) co_await timer_.async_wait(as_values);
    set_ = false;
  }

 private:
  asio::steady_timer timer_;
  bool set_ = false;
};

// Queues of bytes to be written by one coroutine, filled from any thread: what is put goes before what is put
// later, always. Too much of the former ends the connection; of the latter there is what its senders allow
// themselves, by later_bytes() or by waiting for `written`.
class Outbox : public std::enable_shared_from_this<Outbox> {
 public:
  struct Entry {
    std::string bytes;
    std::function<void()> written;
  };

  explicit Outbox(asio::io_context& context) : context_(context), signal_(context.get_executor()) {}

  void put(std::string bytes, std::function<void()> written = nullptr) {
    asio::post(context_,
               [self = shared_from_this(), entry = Entry{std::move(bytes), std::move(written)}]() mutable {
                 if (self->closing_) return;
                 self->bytes_ += entry.bytes.size();
                 self->waiting_.push_back(std::move(entry));
                 if (self->bytes_ > backlog_bytes_max) self->overrun();
                 self->signal_.set();
               });
  }
  void put_later(std::string bytes) {
    later_bytes_ += bytes.size();
    asio::post(context_, [self = shared_from_this(), bytes = std::move(bytes)]() mutable {
      if (self->closing_) return;
      self->later_.push_back({std::move(bytes), nullptr});
      self->signal_.set();
    });
  }
  std::size_t later_bytes() const { return later_bytes_; }
  // Of the writing coroutine: whoever writes now to one that does not take it need not wait.
  std::function<void()> on_overrun;
  void close() {
    asio::post(context_, [self = shared_from_this()] {
      self->closing_ = true;
      self->signal_.set();
    });
  }

  void cut() {
    asio::post(context_, [self = shared_from_this()] {
      self->overrun();
      self->signal_.set();
    });
  }

  // Of the writing coroutine. Nothing: closed, and all of it written.
  asio::awaitable<std::optional<Entry>> next() {
    while (waiting_.empty() && later_.empty() && !closing_) co_await signal_.wait();
    if ((waiting_.empty() && later_.empty()) || overrun_) co_return std::nullopt;
    const bool first = !waiting_.empty();
    auto& queue = first ? waiting_ : later_;
    Entry entry = std::move(queue.front());
    queue.pop_front();
    if (first) {
      bytes_ -= entry.bytes.size();
    } else {
      later_bytes_ -= entry.bytes.size();
    }
    co_return entry;
  }

 private:
  void overrun() {
    closing_ = overrun_ = true;
    if (on_overrun) on_overrun();
  }

  asio::io_context& context_;
  Signal signal_;
  std::deque<Entry> waiting_;
  std::deque<Entry> later_;
  std::size_t bytes_ = 0;
  std::atomic<std::size_t> later_bytes_ = 0;
  bool closing_ = false;
  bool overrun_ = false;
};

// The live end of a WebSocket, for server and client alike: one coroutine reads, one writes.
class OutboxSocket final : public Socket {
 public:
  explicit OutboxSocket(asio::io_context& context) : outbox(std::make_shared<Outbox>(context)) {}
  void send(std::string frame) override { outbox->put(std::move(frame)); }
  void send_later(std::string frame) override { outbox->put_later(std::move(frame)); }
  std::size_t later_bytes() const override { return outbox->later_bytes(); }
  bool has_unread() const override { return unread && unread(); }
  void close() override { outbox->close(); }

  std::shared_ptr<Outbox> outbox;
  std::function<bool()> unread;  // while it is open
};

using WebSocket = websocket::stream<Wire, false>;  // no compression: frames are small and hosts are near

// Runs an open WebSocket to its end: one coroutine reads, one writes. Frames that come faster than the rate
// wait in the sender.
asio::awaitable<void> run_socket(std::shared_ptr<WebSocket> stream, std::shared_ptr<OutboxSocket> socket,
                                 asio::io_context& context, Rate frames);
void set_socket_limits(WebSocket& stream);

}  // namespace tutti::net
