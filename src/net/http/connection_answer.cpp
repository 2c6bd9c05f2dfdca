// What a connection writes: answers, refusals, streams.
#include "net/http/connection.hpp"

namespace tutti::net {
namespace {

using tcp = asio::ip::tcp;

// With what stands around a chunk it is written at once.
constexpr std::size_t stream_piece_bytes = gathered_bytes_max - 64;

// Takes the body out of the response: it may be large, and many are under way at once.
http::response<http::string_body> to_message(Response& response, unsigned version, bool keep_alive) {
  http::response<http::string_body> message{static_cast<http::status>(response.status), version};
  message.set(http::field::content_type, response.type);
  message.set(http::field::cache_control, "no-store");
  if (response.retry_after_seconds > 0)
    message.set(http::field::retry_after, std::to_string(response.retry_after_seconds));
  if (!response.allow.empty()) message.set(http::field::allow, response.allow);
  for (const auto& [name, value] : response.headers) message.set(name, value);
  message.keep_alive(keep_alive);
  message.body() = std::move(response.body);
  message.prepare_payload();
  return message;
}

// An answer that goes out, as one of those for whom something waits.
class Answering final : public Backlog::Reader {
 public:
  Answering(std::shared_ptr<Backlog> backlog, const std::string& body, std::function<void()> give_up)
      : backlog_(std::move(backlog)), body_(body), give_up_(std::move(give_up)) {
    backlog_->hold(*this, body_);
  }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;
  ~Answering() override { backlog_->release(*this, body_); }
  bool given_up() const { return given_up_; }

 protected:
  std::size_t let_go() override {
    given_up_ = true;
    give_up_();
    return waiting_bytes();
  }

 private:
  std::shared_ptr<Backlog> backlog_;
  const std::string& body_;
  std::function<void()> give_up_;
  bool given_up_ = false;
};

// A chunk of a stream that goes out.
class Writing {
 public:
  Writing(Outbox& outbox, const Outbox::Entry& entry) : outbox_(outbox), entry_(entry) {}
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  ~Writing() { outbox_.done(entry_); }

 private:
  Outbox& outbox_;
  const Outbox::Entry& entry_;
};

}  // namespace

asio::awaitable<bool> Connection::refuse_head(Response& refusal, unsigned version) {
  co_await write(refusal, version, false);
  error_code failure;
  lowest().socket().shutdown(tcp::socket::shutdown_send, failure);
  lowest().expires_after(refused_time_max);
  std::size_t taken = 0;
  while (!failure && taken < refused_bytes_max) {
    std::size_t got = 0;
    std::tie(failure, got) = co_await stream_.async_read_some(asio::buffer(shared_->scrap), as_values);
    taken += got;
  }
  co_return false;
}

asio::awaitable<void> Connection::ask_for_body(unsigned version) {
  http::response<http::empty_body> go_on{http::status::continue_, version};
  co_await http::async_write(stream_, go_on, as_values);
}

asio::awaitable<bool> Connection::write(Response& response, unsigned version, bool keep_alive) {
  auto message = to_message(response, version, keep_alive);
  if (shared_->options.cluster) message.set(cluster_header, shared_->options.cluster());
  lowest().expires_after(request_time_max);
  const Answering answering(shared_->backlog, message.body(), [&] { give_up(message.body().size()); });
  if (answering.given_up()) co_return false;
  const auto [failure, written] = co_await http::async_write(stream_, message, as_values);
  co_return !failure && keep_alive;
}

void Connection::tell_let_go(std::size_t bytes) const {
  if (shared_->options.on_let_go) shared_->options.on_let_go(remote_, bytes);
}

void Connection::give_up(std::size_t bytes) {
  tell_let_go(bytes);
  lowest().cancel();
}

asio::awaitable<void> Connection::write_stream(std::shared_ptr<Outbox> outbox, unsigned version) {
  http::response<http::empty_body> head{http::status::ok, version};
  head.set(http::field::content_type, "text/event-stream");
  head.set(http::field::cache_control, "no-store");
  if (shared_->options.cluster) head.set(cluster_header, shared_->options.cluster());
  head.keep_alive(false);
  head.chunked(true);
  http::response_serializer<http::empty_body> serializer(head);
  asio::co_spawn(
      shared_->context,
      [self = shared_from_this(), outbox]() -> asio::awaitable<void> {
        char byte = 0;
        self->lowest().expires_never();  // who only listens sends nothing
        co_await self->stream_.async_read_some(asio::buffer(&byte, 1), as_values);
        outbox->close();
      },
      asio::detached);
  outbox->on_let_go = [this, slow = outbox.get()] { take_leave(slow->waiting_bytes()); };
  if (outbox->was_let_go()) take_leave(0);
  expect_progress();
  auto [failure, written] = co_await http::async_write_header(stream_, serializer, as_values);
  while (!failure) {
    const auto chunk = co_await outbox->next();
    if (!chunk) break;
    {
      const Writing writing(*outbox, *chunk);
      // In pieces, so that no event of many megabytes holds up the loop. One without bytes would be the end.
      for (std::size_t at = 0; !failure && at < chunk->text->size(); at += stream_piece_bytes) {
        co_await shared_->pace->turn();
        failure = co_await write_piece(asio::buffer(asio::buffer(*chunk->text) + at, stream_piece_bytes));
      }
      if (failure == beast::error::timeout) tell_let_go(outbox->waiting_bytes());
    }
    if (!failure && chunk->written) chunk->written();
  }
  // Without its end, so that nobody takes what has come for all there was.
  if (!failure && !outbox->was_let_go()) {
    expect_progress();
    co_await asio::async_write(stream_, http::make_chunk_last(), as_values);
  }
}

void Connection::end_stream(Decision& decision) {
  decision.stream->on_let_go = nullptr;
  decision.stream->abandon();
  farewell_.reset();
  if (decision.on_stream_close) decision.on_stream_close();
}

asio::awaitable<error_code> Connection::write_piece(asio::const_buffer piece) {
  beast::buffers_suffix<http::chunk_body<asio::const_buffer>> rest(http::make_chunk(piece));
  error_code failure;
  while (!failure && asio::buffer_size(rest) > 0) {
    expect_progress();
    std::size_t written = 0;
    std::tie(failure, written) = co_await stream_.async_write_some(rest, as_values);
    rest.consume(written);
  }
  co_return failure;
}

void Connection::expect_progress() {
  if (shared_->options.stalled_time) lowest().expires_after(*shared_->options.stalled_time);
}

void Connection::take_leave(std::size_t bytes) {
  tell_let_go(bytes);
  farewell_ = std::make_shared<asio::steady_timer>(shared_->context, farewell_time_max);
  farewell_->async_wait([weak = weak_from_this(), timer = farewell_](error_code cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self != nullptr && self->farewell_ == timer) self->lowest().cancel();
  });
}

}  // namespace tutti::net
