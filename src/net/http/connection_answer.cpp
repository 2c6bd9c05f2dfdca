// What a connection writes: answers, refusals, streams.
#include "net/http/connection.hpp"
#include "net/http/leaving.hpp"
#include "net/http/progress.hpp"

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

Response no_memory() {
  return {.status = 503,
          .body =
              "{\"error\":{\"message\":\"there is no memory for this request now\",\"remedy\":\"send it "
              "again in a moment\"}}\n",
          .retry_after_seconds = crowded_retry_after_seconds};
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
  // A part of it was taken.
  void took() { backlog_->took(*this); }

 protected:
  std::size_t let_go() override {
    give_up_();
    return waiting_bytes();
  }

 private:
  std::shared_ptr<Backlog> backlog_;
  const std::string& body_;
  std::function<void()> give_up_;
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

asio::awaitable<bool> Connection::refuse_head(Response& refusal) {
  co_await write(refusal, false);
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

asio::awaitable<void> Connection::refuse_lost(std::shared_ptr<Connection> /*self*/) {
  Response refusal = no_memory();
  co_await write(refusal, false);
}

asio::awaitable<void> Connection::ask_for_body() {
  http::response<http::empty_body> go_on{http::status::continue_, version_};
  co_await http::async_write(stream_, go_on, as_values);
}

asio::awaitable<bool> Connection::write(Response& response, bool keep_alive) {
  auto message = to_message(response, version_, keep_alive);
  if (shared_->options.cluster) message.set(cluster_header, shared_->options.cluster());
  // It still says how long it would be.
  if (is_head_) std::string().swap(message.body());
  is_written_ = is_given_up_ = false;
  Answering answering(shared_->backlog, message.body(), [&] { give_up(message.body().size()); });
  if (is_given_up_) co_return false;
  owes_answer_ = false;
  const Duration time = shared_->options.stalled_time.value_or(request_time_max);
  Progress progress(message.body().size());
  http::response_serializer<http::string_body> serializer(message);
  error_code failure;
  lowest().expires_after(time);
  while (!failure && !is_given_up_ && !serializer.is_done()) {
    std::size_t written = 0;
    std::tie(failure, written) = co_await http::async_write_some(stream_, serializer, as_values);
    answering.took();
    if (progress.took(written)) lowest().expires_after(time);
  }
  if (failure == beast::error::timeout) tell_let_go(message.body().size());
  is_written_ = !failure && !is_given_up_;
  co_return !failure && !is_given_up_ && keep_alive;
}

void Connection::tell_let_go(std::size_t bytes) const {
  try {
    if (shared_->options.on_let_go) shared_->options.on_let_go(remote_, bytes);
  } catch (const std::bad_alloc&) {
    // It is let go all the same.
  }
}

void Connection::give_up(std::size_t bytes) {
  is_given_up_ = true;  // what is written just now may be done already, and nothing is there to be cancelled
  tell_let_go(bytes);
  lowest().cancel();
}

asio::awaitable<bool> Connection::write_stream(std::shared_ptr<Outbox> outbox, bool keep_alive) {
  // HTTP/1.0 knows no chunks: there the end of the connection is the end of the stream.
  const bool is_chunked = version_ >= 11;
  http::response<http::empty_body> head{http::status::ok, version_};
  head.set(http::field::content_type, "text/event-stream");
  head.set(http::field::cache_control, "no-store");
  if (shared_->options.cluster) head.set(cluster_header, shared_->options.cluster());
  head.keep_alive(keep_alive && is_chunked);
  head.chunked(is_chunked);
  http::response_serializer<http::empty_body> serializer(head);
  bool is_cut_short = false;
  const Leaving leaving(lowest().socket(), [&is_cut_short, outbox] {
    is_cut_short = !outbox->is_closing();
    outbox->close();
  });
  outbox->on_let_go = [this, slow = outbox.get()] { take_leave(slow->waiting_bytes()); };
  if (outbox->was_let_go()) take_leave(0);
  expect_progress();
  auto [failure, written] = co_await http::async_write_header(stream_, serializer, as_values);
  if (is_head_) co_return !failure && keep_alive && is_chunked;
  if (!failure) failure = co_await write_pieces(outbox, is_chunked);
  // Without its end, so that nobody takes what has come for all there was.
  if (failure || is_cut_short || outbox->was_let_go() || !is_chunked) co_return false;
  expect_progress();
  std::tie(failure, written) = co_await asio::async_write(stream_, http::make_chunk_last(), as_values);
  co_return !failure && keep_alive;
}

asio::awaitable<error_code> Connection::write_pieces(std::shared_ptr<Outbox> outbox, bool is_chunked) {
  error_code failure;
  while (!failure) {
    const auto chunk = co_await outbox->next();
    if (!chunk) break;
    {
      const Writing writing(*outbox, *chunk);
      // In pieces, so that no event of many megabytes holds up the loop. One without bytes would be the end.
      for (std::size_t at = 0; !failure && at < chunk->text->size(); at += stream_piece_bytes) {
        co_await shared_->pace->turn();
        const asio::const_buffer piece = asio::buffer(asio::buffer(*chunk->text) + at, stream_piece_bytes);
        if (is_chunked) {
          const auto framed = http::make_chunk(piece);
          failure = co_await write_piece(framed);
        } else {
          failure = co_await write_piece(piece);
        }
      }
      if (failure == beast::error::timeout) tell_let_go(outbox->waiting_bytes());
    }
    if (!failure && chunk->written) chunk->written();
  }
  co_return failure;
}

template <class Buffers>
asio::awaitable<error_code> Connection::write_piece(Buffers piece) {
  beast::buffers_suffix<Buffers> rest(piece);
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
  try {
    farewell_ = std::make_shared<asio::steady_timer>(shared_->context, farewell_time_max);
    farewell_->async_wait([weak = weak_from_this(), timer = farewell_](error_code cancelled) {
      const auto self = weak.lock();
      if (!cancelled && self != nullptr && self->farewell_ == timer) self->lowest().cancel();
    });
  } catch (const std::bad_alloc&) {
    lowest().cancel();
  }
}

}  // namespace tutti::net
