// What server and dialled sockets share: signals, outboxes, the two halves of a WebSocket. For this module's
// own files only.
#pragma once

#include <atomic>
#include <deque>
#include <new>
#include <optional>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>

#include "net/http/backlog.hpp"
#include "net/http/core.hpp"
#include "net/http/http.hpp"
#include "net/http/incoming.hpp"
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

// Queues of texts to be written by one coroutine, filled from any thread: what is put goes before what is put
// later, always. Of what is put there may be only so much, here and in the backlog of all; of the latter
// there is what its senders allow themselves, by later_bytes() or by waiting for `written`.
class Outbox final : public Backlog::Reader, public std::enable_shared_from_this<Outbox> {
 public:
  struct Entry {
    Text text;
    std::function<void()> written;
    bool later = false;
    bool held = false;  // counted in the backlog
  };
  struct Options {
    std::shared_ptr<Backlog> backlog = nullptr;  // of all; null: it is alone
    bool spared = false;
    std::size_t bytes_max = backlog_bytes_max;
    Text farewell = nullptr;  // the last that is written to one who was let go
  };

  Outbox(asio::io_context& context, Options options)
      : Reader(options.spared),
        context_(context),
        options_(std::move(options)),
        backlog_(options_.backlog ? options_.backlog : std::make_shared<Backlog>(options_.bytes_max)),
        signal_(context.get_executor()) {}

  void put(Text text, std::function<void()> written = nullptr) {
    asio::dispatch(context_,
                   [self = shared_from_this(), entry = Entry{std::move(text), std::move(written)}]() mutable {
                     self->add(std::move(entry));
                   });
  }
  void put_later(Text text) {
    later_bytes_ += text->size();
    asio::dispatch(context_, [self = shared_from_this(), text = std::move(text)]() mutable {
      self->add_later(std::move(text));
    });
  }
  std::size_t later_bytes() const { return later_bytes_; }
  void close() {
    asio::dispatch(context_, [self = shared_from_this()] {
      self->closing_ = true;
      self->signal_.set();
    });
  }

  // Nothing more is written.
  void cut() {
    asio::dispatch(context_, [self = shared_from_this()] { self->cut_now(); });
  }

  // Of the writing coroutine. Nothing: closed, and all of it written.
  asio::awaitable<std::optional<Entry>> next() {
    while (waiting_.empty() && later_.empty() && !closing_) co_await signal_.wait();
    if (waiting_.empty() && later_.empty()) co_return std::nullopt;
    auto& queue = waiting_.empty() ? later_ : waiting_;
    Entry entry = std::move(queue.front());
    queue.pop_front();
    if (entry.later) later_bytes_ -= entry.text->size();
    co_return entry;
  }
  // It has gone out, or never will.
  void done(const Entry& entry) {
    if (entry.held) backlog_->release(*this, *entry.text);
  }
  bool is_closing() const { return closing_; }
  // Nobody writes any more.
  void abandon() {
    closing_ = true;
    forget();
  }
  // The one it was for was too slow. `on_let_go` is called when that happens: whoever writes now to one that
  // does not take it need not wait for long.
  bool was_let_go() const { return let_go_; }
  std::function<void()> on_let_go;

 protected:
  // What is under way now is all that is left.
  std::size_t let_go() override {
    if (std::exchange(let_go_, true)) return 0;
    closing_ = true;
    if (on_let_go) on_let_go();
    forget();
    signal_.set();
    try {
      if (options_.farewell != nullptr) waiting_.push_back({.text = options_.farewell, .written = nullptr});
    } catch (const std::bad_alloc&) {
      // It goes without a word.
    }
    return 0;
  }

 private:
  // Without memory for one of them all that follows goes, too: nobody is told what has a hole in it.
  void add(Entry entry) {
    if (closing_) return;
    const std::size_t before = waiting_.size();
    const Text text = entry.text;
    entry.held = true;
    try {
      waiting_.push_back(std::move(entry));
      backlog_->hold(*this, *text);
    } catch (const std::bad_alloc&) {
      if (waiting_.size() > before) waiting_.pop_back();
      return cut_now();
    }
    if (waiting_bytes() > options_.bytes_max) let_go();
    signal_.set();
  }
  void add_later(Text text) {
    if (closing_) return;
    try {
      later_.push_back({.text = std::move(text), .written = nullptr, .later = true});
    } catch (const std::bad_alloc&) {
      return cut_now();
    }
    signal_.set();
  }
  void cut_now() {
    if (std::exchange(let_go_, true)) return;
    abandon();
    if (on_let_go) on_let_go();
    signal_.set();
  }
  void forget() {
    for (; !waiting_.empty(); waiting_.pop_front()) done(waiting_.front());
    later_.clear();
  }

  asio::io_context& context_;
  const Options options_;
  const std::shared_ptr<Backlog> backlog_;
  Signal signal_;
  std::deque<Entry> waiting_;
  std::deque<Entry> later_;
  std::atomic<std::size_t> later_bytes_ = 0;
  bool closing_ = false;
  bool let_go_ = false;
};

// The live end of a WebSocket, for server and client alike: one coroutine reads, one writes.
class OutboxSocket final : public Socket {
 public:
  OutboxSocket(asio::io_context& context, Outbox::Options options)
      : outbox(std::make_shared<Outbox>(context, std::move(options))) {}
  void send(Text frame) override { outbox->put(std::move(frame)); }
  void send_later(std::string frame) override { outbox->put_later(make_text(std::move(frame))); }
  std::size_t later_bytes() const override { return outbox->later_bytes(); }
  bool has_unread() const override { return unread && unread(); }
  std::uint64_t reads() const override { return pieces_read; }
  void become_known() override {
    if (!std::exchange(is_known, true) && on_known) on_known();
  }
  void close() override { outbox->close(); }

  std::shared_ptr<Outbox> outbox;
  bool is_known = false;
  std::uint64_t pieces_read = 0;
  std::function<void()> on_known;  // while it is open
  std::function<bool()> unread;    // while it is open
};

using WebSocket = websocket::stream<Wire, false>;  // no compression: frames are small and hosts are near

// What the other side of a WebSocket may send.
struct SocketRules {
  Rate frames = frame_rate_max;  // those that come faster wait in the sender
  std::string address = {};
  // Where messages that are not whole count, before it is known and after that. Null: it is trusted, and none
  // of these limits holds.
  std::shared_ptr<Incoming> unknown_messages = nullptr;
  std::shared_ptr<Incoming> messages = nullptr;
  Duration unknown_time = unknown_time_max;
  Duration message_time = message_time_max;
};

// Sets its callbacks.
using SocketReady = std::function<void(std::shared_ptr<Socket>)>;

// Runs an open WebSocket from when it is `ready` to its end: one coroutine reads, one writes. Whatever a
// callback throws, or the want of memory for a message, ends the connection as any failure of it does:
// on_close always runs. It throws only what nobody could be told in this way, and what on_close throws.
asio::awaitable<void> run_socket(std::shared_ptr<WebSocket> stream, std::shared_ptr<OutboxSocket> socket,
                                 asio::io_context& context, SocketRules rules, const SocketReady& ready);
void set_socket_limits(WebSocket& stream);

}  // namespace tutti::net
