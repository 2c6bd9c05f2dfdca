#include "net/http/caller.hpp"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <exception>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>

#include "net/http/contained.hpp"
#include "net/http/dialling.hpp"
#include "net/http/retry_after.hpp"
#include "net/http/session.hpp"

// g++ 12 sees how a coroutine's frame is allocated, but not how it is released, and takes that for a
// mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace tutti::net {
namespace {

using Clock = std::chrono::steady_clock;
using Answer = http::response_parser<http::string_body>;

struct Connected {
  explicit Connected(Wire made) : wire(std::move(made)) {}
  Wire wire;
  beast::flat_buffer unread{piece_bytes_max};
  Clock::time_point idle_since = {};
};

std::string head_of(const Target& target, const Outgoing& outgoing) {
  std::string text = outgoing.method + " " + target.prefix + outgoing.path +
                     " HTTP/1.1\r\nHost: " + target.text() + "\r\nUser-Agent: tutti\r\n";
  if (!outgoing.token.empty()) text += "Authorization: Bearer " + outgoing.token + "\r\n";
  for (const auto& [name, value] : outgoing.headers) text += name + ": " + value + "\r\n";
  if (outgoing.body != nullptr)
    text += "Content-Type: " + outgoing.type +
            "\r\nContent-Length: " + std::to_string(outgoing.body->size()) + "\r\n";
  return text + "\r\n";
}

AnswerHead head_of(const http::response<http::string_body>& answer, const std::vector<std::string>& wants) {
  AnswerHead head{.status = static_cast<int>(answer.result_int()),
                  .type = std::string(answer[http::field::content_type]),
                  .retry_after_seconds = retry_after_seconds_of(answer[http::field::retry_after])};
  for (const std::string& name : wants) {
    if (const auto found = answer.find(name); found != answer.end())
      head.headers[name] = std::string(found->value());
  }
  return head;
}

// What comes of a machine that has gone is nothing at all, for as long as nobody asks.
void notice_silence(int descriptor) {
  const int on = 1;
  const int seconds = silent_seconds_max;
  const int questions = silent_questions_max;
  const int unheard_ms = 1000 * seconds * (questions + 1);
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &questions, sizeof questions);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &unheard_ms, sizeof unheard_ms);
}

}  // namespace

class Caller::Connections {
 public:
  Connections(asio::io_context& loop, Target target, std::shared_ptr<asio::ssl::context> tls)
      : context(loop), target_(std::move(target)), tls_(std::move(tls)) {}

  asio::io_context& context;
  const Target& target() const { return target_; }
  std::size_t idle() const { return idle_.size(); }

  Wire make_wire() const { return {beast::tcp_stream(context), tls_, {}}; }

  // One that is open, as far as can be told; null if there is none. The one that was used last, so that those
  // that nobody needs grow old.
  std::unique_ptr<Connected> take() {
    while (!idle_.empty()) {
      auto last = std::move(idle_.back());
      idle_.pop_back();
      if (is_open(*last)) return last;
    }
    return nullptr;
  }
  void keep(std::unique_ptr<Connected> connected) {
    const auto now = Clock::now();
    while (!idle_.empty() && (now - idle_.front()->idle_since > idle_connection_time_max ||
                              idle_.size() >= idle_connections_max))
      idle_.pop_front();
    connected->wire.lowest().expires_never();
    connected->idle_since = now;
    idle_.push_back(std::move(connected));
  }

 private:
  // Whoever has said something that was not asked for, such as that he goes, is not asked again.
  static bool is_open(Connected& connected) {
    if (Clock::now() - connected.idle_since > idle_connection_time_max) return false;
    pollfd looked{.fd = connected.wire.lowest().socket().native_handle(), .events = POLLIN | POLLRDHUP};
    return ::poll(&looked, 1, 0) == 0;
  }

  const Target target_;
  const std::shared_ptr<asio::ssl::context> tls_;
  std::deque<std::unique_ptr<Connected>> idle_;  // the one that was used last is the last
};

// One call, from the first byte to the last.
class Caller::Conversation final : public std::enable_shared_from_this<Conversation> {
 public:
  Conversation(std::shared_ptr<Connections> connections, Outgoing outgoing, CallListener listener)
      : connections_(std::move(connections)),
        outgoing_(std::move(outgoing)),
        listener_(std::move(listener)),
        may_go_on_(connections_->context.get_executor()) {}

  void begin() {
    auto work = run(shared_from_this());
    asio::co_spawn(connections_->context, std::move(work), asio::detached);
  }
  void drop() {
    is_dropped_ = true;
    if (connected_) connected_->wire.close();
    may_go_on_.set();
  }
  void pause() { is_paused_ = true; }
  void go_on() {
    is_paused_ = false;
    may_go_on_.set();
  }

 private:
  static asio::awaitable<void> run(std::shared_ptr<Conversation> self) {
    // Nothing of the listener runs before whoever calls holds the call.
    co_await asio::post(self->connections_->context, asio::use_awaitable);
    try {
      auto all = self->converse();
      co_await contained(self->connections_->context, std::move(all));
    } catch (const std::exception& failure) {
      self->fail(failed(failure.what()));
    }
    self->connected_.reset();
    // The call may be dropped in it, and with it what the listener holds.
    const auto over = std::exchange(self->listener_, {}).over;
    if (!self->is_dropped_ && over) over(std::move(self->outcome_));
  }

  void fail(Error error) {
    const Target& target = connections_->target();
    outcome_ = error.context().empty() ? std::move(error).within(target.who + " " + target.text())
                                       : std::move(error);
  }

  asio::awaitable<void> converse() {
    for (bool is_kept = true; is_kept && !is_dropped_;) {
      outcome_ = {};
      connected_ = connections_->take();
      is_kept = connected_ != nullptr;
      if (!is_kept) {
        connected_ = std::make_unique<Connected>(connections_->make_wire());
        const error_code failure = co_await open_wire(connected_->wire, connections_->target(),
                                                      !outgoing_.token.empty(), outgoing_.connect_time_max);
        if (failure) {
          fail(cannot_open(connected_->wire, connections_->target(), failure));
          co_return;
        }
        notice_silence(connected_->wire.lowest().socket().native_handle());
      }
      Answer answer;
      answer.eager(true);
      answer.header_limit(header_bytes_max);
      answer.body_limit(outgoing_.answer_bytes_max);
      const error_code failure = co_await ask(answer);
      if (!failure) co_return co_await read_body(answer);
      fail(failed(failure == beast::error::timeout ? "it has not answered in time"
                  : failure == http::error::end_of_stream || failure == asio::error::connection_reset
                      ? "it closed the connection"
                      : failure.message()));
      // One that was kept may have been closed as it was asked: nobody has read that.
      if (answer.got_some() || failure == beast::error::timeout) is_kept = false;
      connected_.reset();
    }
  }

  asio::awaitable<error_code> ask(Answer& answer) {
    const std::string head = head_of(connections_->target(), outgoing_);
    std::array<asio::const_buffer, 2> all{asio::buffer(head), asio::const_buffer()};
    if (outgoing_.body != nullptr) all[1] = asio::buffer(*outgoing_.body);
    connected_->wire.lowest().expires_after(outgoing_.head_time_max);
    auto [failure, written] = co_await asio::async_write(connected_->wire, all, as_values);
    // Who refuses it by its head answers before its end.
    const error_code unsent = failure;
    while (!answer.is_header_done()) {
      failure = co_await read_more(answer);
      if (failure) co_return unsent ? unsent : failure;
    }
    is_sent_whole_ = !unsent;
    co_return error_code();
  }

  // Of what has come the parser takes all it can.
  asio::awaitable<error_code> read_more(Answer& answer) {
    auto& unread = connected_->unread;
    const auto room = unread.prepare(piece_bytes_max - unread.size());
    auto [failure, got] = co_await connected_->wire.async_read_some(room, as_values);
    unread.commit(got);
    if (failure == asio::error::eof) {
      if (!answer.got_some()) co_return http::error::end_of_stream;
      answer.put_eof(failure);
      co_return failure;
    }
    if (!failure) failure = parse(answer);
    co_return failure;
  }
  error_code parse(Answer& answer) {
    auto& unread = connected_->unread;
    error_code failure;
    while (unread.size() > 0 && !failure && !answer.is_done())
      unread.consume(answer.put(unread.data(), failure));
    return failure == http::error::need_more ? error_code() : failure;
  }

  asio::awaitable<void> read_body(Answer& answer) {
    if (listener_.on_head) listener_.on_head(head_of(answer.get(), outgoing_.wants));
    while (!is_dropped_) {
      if (!answer.get().body().empty() && listener_.on_piece)
        listener_.on_piece(std::exchange(answer.get().body(), {}));
      if (is_dropped_ || answer.is_done()) break;
      while (is_paused_ && !is_dropped_) co_await may_go_on_.wait();
      if (is_dropped_) break;
      connected_->wire.lowest().expires_after(outgoing_.pause_time_max);
      if (const error_code failure = co_await read_more(answer)) {
        // What has come before that is the listener's all the same.
        if (!is_dropped_ && !answer.get().body().empty() && listener_.on_piece)
          listener_.on_piece(std::exchange(answer.get().body(), {}));
        fail(failed(failure == beast::error::timeout          ? "it says nothing more"
                    : failure == http::error::body_limit      ? "its answer is too long"
                    : failure == http::error::partial_message ? "it closed the connection"
                                                              : failure.message()));
        co_return;
      }
    }
    const bool is_reusable = answer.is_done() && is_sent_whole_ && answer.get().keep_alive() &&
                             !answer.need_eof() && connected_->unread.size() == 0;
    if (is_reusable && !is_dropped_) connections_->keep(std::move(connected_));
  }

  const std::shared_ptr<Connections> connections_;
  const Outgoing outgoing_;
  CallListener listener_;
  Signal may_go_on_;
  std::unique_ptr<Connected> connected_;
  Result<> outcome_;
  bool is_sent_whole_ = false;
  bool is_paused_ = false;
  bool is_dropped_ = false;
};

namespace {

template <class Conversation>
class HeldCall final : public Call {
 public:
  explicit HeldCall(std::shared_ptr<Conversation> conversation) : conversation_(std::move(conversation)) {}
  ~HeldCall() override { conversation_->drop(); }
  void pause() override { conversation_->pause(); }
  void go_on() override { conversation_->go_on(); }

 private:
  const std::shared_ptr<Conversation> conversation_;
};

}  // namespace

Result<std::unique_ptr<Caller>> Caller::make(Loop& loop, Target target) {
  auto tls = client_tls(target);
  if (!tls) return std::move(tls).error();
  auto connections = std::make_shared<Connections>(loop.core().context, std::move(target), std::move(*tls));
  return std::unique_ptr<Caller>(new Caller(std::move(connections)));
}

Caller::Caller(std::shared_ptr<Connections> connections) : connections_(std::move(connections)) {}
Caller::~Caller() = default;

const Target& Caller::target() const { return connections_->target(); }
std::size_t Caller::idle_connections() const { return connections_->idle(); }

std::unique_ptr<Call> Caller::call(Outgoing outgoing, CallListener listener) {
  auto conversation = std::make_shared<Conversation>(connections_, std::move(outgoing), std::move(listener));
  auto held = std::make_unique<HeldCall<Conversation>>(conversation);
  conversation->begin();
  return held;
}

}  // namespace tutti::net
