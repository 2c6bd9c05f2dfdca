#include "net/http/connection.hpp"

#include "net/http/target.hpp"

// g++ 12 sees how a coroutine's frame is allocated, but not how it is released, and takes that for a
// mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace tutti::net {
namespace {

// Without its body. Nothing if the target is no path.
std::optional<Request> to_request(const Message& message, const std::vector<std::string>& headers,
                                  std::string remote) {
  Request request;
  if (!read_target({message.target().data(), message.target().size()}, request)) return std::nullopt;
  request.method = std::string(message.method_string());
  const auto authorization = message[http::field::authorization];
  if (authorization.starts_with("Bearer ")) request.bearer = std::string(authorization.substr(7));
  for (const std::string& name : headers) {
    if (const auto found = message.find(name); found != message.end())
      request.headers[name] = std::string(found->value());
  }
  request.websocket = websocket::is_upgrade(message);
  request.remote = std::move(remote);
  return request;
}

Response bad_request(const std::string& why) {
  return {.status = 400, .body = "{\"error\":{\"message\":\"" + why + "\"}}\n"};
}

Response too_large() {
  return {.status = 413, .body = "{\"error\":{\"message\":\"the request is too large\"}}\n"};
}

Response crowded() {
  return {.status = 503,
          .body =
              "{\"error\":{\"message\":\"too much is being sent at once, and there is no room for this "
              "request\",\"remedy\":\"send it again in a moment\"}}\n",
          .retry_after_seconds = crowded_retry_after_seconds};
}

// What to tell somebody whose request could not be read; status 0 for nothing, because nobody listens.
Response refuse(error_code failure) {
  if (failure == http::error::body_limit || failure == http::error::header_limit) return too_large();
  const bool not_http = failure.category() == http::make_error_code(http::error::bad_method).category();
  return not_http ? bad_request("this is not HTTP") : Response{.status = 0};
}

}  // namespace

Connection::Connection(std::shared_ptr<Shared> shared, Wire stream, std::string remote)
    : shared_(std::move(shared)),
      presence_(*shared_, remote),
      stream_(std::move(stream)),
      remote_(std::move(remote)),
      known_by_(std::chrono::steady_clock::now() + shared_->options.unknown_time) {}

// However it has ended: by an exception, too, where there was no memory for it.
Connection::~Connection() {
  become_known();
  shared_->idle.leave(idle_);
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  guest_ = shared_->lobby.enter(remote_, closer());
  lowest().expires_at(known_by_);
  const std::string no_name;
  const error_code refused = co_await stream_.handshake(beast::role_type::server, no_name);
  beast::flat_buffer buffer;
  while (!refused && co_await serve_one(buffer)) continue;
  become_known();
  if (!upgraded_) stream_.close();
}

std::function<void()> Connection::closer() {
  return [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->stream_.close();
  };
}

void Connection::expect_request() {
  if (guest_ != 0) return lowest().expires_at(known_by_);
  lowest().expires_after(request_time_max);
}

asio::awaitable<bool> Connection::serve_one(beast::flat_buffer& buffer) {
  Incoming::Arrival arrival(shared_->bodies, remote_, [this] { lowest().cancel(); });
  Parser parser;
  parser.header_limit(header_bytes_max);
  parser.body_limit(boost::none);  // how much it may be is known when the head is
  expect_request();
  if (guest_ == 0) idle_ = shared_->idle.enter(remote_, closer());
  auto [failure, got] = co_await http::async_read_header(stream_, buffer, parser, as_values);
  shared_->idle.leave(std::exchange(idle_, 0));
  if (failure) co_return co_await refuse_unread(failure);
  const unsigned version = parser.get().version();
  auto request = to_request(parser.get(), shared_->options.headers, remote_);
  if (!request) {
    Response refusal = bad_request("the target is not a path");
    co_return co_await refuse_head(refusal, version);
  }
  request->body_bytes = parser.content_length().value_or(0);
  Admission admission =
      shared_->admit ? shared_->admit(*request) : Admission{.refusal = std::nullopt, .known = true};
  if (admission.known) become_known();
  if (!admission.refusal && request->body_bytes > admission.body_bytes_max) admission.refusal = too_large();
  if (admission.refusal && !parser.is_done()) co_return co_await refuse_head(*admission.refusal, version);
  if (admission.refusal) {
    const bool goes_on = co_await write(*admission.refusal, version, parser.get().keep_alive());
    co_return goes_on;
  }
  if (!parser.is_done() && !shared_->bodies->has_room(remote_, request->body_bytes))
    co_return co_await refuse_crowded(parser, arrival);
  parser.body_limit(admission.body_bytes_max);
  if (!parser.is_done()) {
    if (parser.get()[http::field::expect] == "100-continue") co_await ask_for_body(version);
    failure = co_await read_body(buffer, parser, arrival);
    if (arrival.was_let_go()) co_return co_await refuse_crowded(parser, arrival);
    if (failure) co_return co_await refuse_unread(failure);
  }
  Message message = parser.release();
  request->body = std::move(message.body());
  const bool keep_alive = message.keep_alive();
  lowest().expires_never();
  auto exchange = std::make_shared<PendingExchange>(*shared_, std::move(*request));
  shared_->handler(exchange);
  const auto over = exchange->over();
  const bool watched = over != nullptr;
  std::shared_ptr<Decision> decision;
  if (watched) {
    decision = co_await exchange->decision_of_a_waiting(lowest().socket());
  } else {
    decision = co_await exchange->decision();
  }
  // The body goes with it, unless the handler keeps it.
  exchange.reset();
  arrival.release();
  if (decision->is_gone) {
    over();
    co_return false;
  }
  if (decision->response) {
    bool goes_on = false;
    try {
      goes_on = co_await write(*decision->response, version, keep_alive);
    } catch (const std::bad_alloc&) {
      // Its connection ends, and whoever waits for that hears of it.
    }
    if (watched) over();
    co_return goes_on;
  }
  become_known();
  if (decision->stream) {
    try {
      co_await write_stream(decision->stream, version);
    } catch (const std::bad_alloc&) {
      // As above.
    }
    end_stream(*decision);
    co_return false;
  }
  co_await serve_socket(std::move(message), decision->on_socket);
  co_return false;
}

asio::awaitable<error_code> Connection::read_body(beast::flat_buffer& buffer, Parser& parser,
                                                  Incoming::Arrival& arrival) {
  buffer.reserve(std::min<std::size_t>(piece_bytes_max, parser.content_length().value_or(piece_bytes_max)));
  parser.eager(true);
  error_code failure;
  expect_request();
  while (!failure && !parser.is_done()) {
    arrival.hold(buffer.capacity() + parser.get().body().size());
    if (arrival.was_let_go()) break;
    std::size_t got = 0;
    std::tie(failure, got) = co_await http::async_read_some(stream_, buffer, parser, as_values);
  }
  // It stays as long as the connection does, which may be long.
  if (buffer.capacity() > header_bytes_max) buffer.shrink_to_fit();
  arrival.hold(parser.get().body().size());
  if (!failure) arrival.complete();
  co_return failure;
}

asio::awaitable<bool> Connection::refuse_crowded(Parser& parser, Incoming::Arrival& arrival) {
  std::string().swap(parser.get().body());
  arrival.release();
  if (arrival.was_let_go() && shared_->options.on_crowded) shared_->options.on_crowded(remote_);
  Response refusal = crowded();
  co_return co_await refuse_head(refusal, parser.get().version());
}

asio::awaitable<bool> Connection::refuse_unread(error_code failure) {
  if (failure == http::error::end_of_stream || failure == beast::error::timeout) co_return false;
  // Named, not a temporary inside co_await: g++ 12 destroys those twice.
  Response refusal = refuse(failure);
  if (refusal.status == 0) co_return false;
  co_return co_await refuse_head(refusal, 11);
}

}  // namespace tutti::net
