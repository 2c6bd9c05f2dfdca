#include "net/http/connection.hpp"

#include "net/http/contained.hpp"
#include "net/http/target.hpp"

// g++ 12 sees how a coroutine's frame is allocated, but not how it is released, and takes that for a
// mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace tutti::net {
namespace {

// Without its body. Nothing if the target is no path. A HEAD is a GET to whoever handles it: what it does not
// want of the answer is left out here.
std::optional<Request> to_request(const Message& message, const std::vector<std::string>& headers,
                                  std::string remote) {
  Request request;
  if (!read_target({message.target().data(), message.target().size()}, request)) return std::nullopt;
  request.method = message.method() == http::verb::head ? "GET" : std::string(message.method_string());
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

Response unknown_coding() {
  return {.status = 501,
          .body =
              "{\"error\":{\"message\":\"a body may come in chunks, of HTTP/1.1, and in no other transfer "
              "coding\"}}\n"};
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
  if (failure == http::error::body_limit || failure == http::error::header_limit ||
      failure == http::error::buffer_overflow)
    return too_large();
  const bool not_http = failure.category() == http::make_error_code(http::error::bad_method).category();
  return not_http ? bad_request("this is not HTTP") : Response{.status = 0};
}

// They may stand before a request: some send one behind a body. False where more has to come before it is
// known whether the next is one.
bool skip_empty_lines(beast::flat_buffer& buffer) {
  std::string_view text(static_cast<const char*>(buffer.data().data()), buffer.size());
  while (text.starts_with("\r\n")) text.remove_prefix(2);
  buffer.consume(buffer.size() - text.size());
  return text != "\r";
}

// Where a body ends must be beyond doubt: whoever passes requests on may see it elsewhere, and take a part of
// one for the next.
bool is_coded_otherwise(const Message& message) {
  const auto [first, last] = message.equal_range(http::field::transfer_encoding);
  if (first == last) return false;
  return message.version() < 11 || std::next(first) != last || !beast::iequals(first->value(), "chunked");
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
  std::string lost;
  try {
    auto all = serve_all(self);
    co_await contained(shared_->context, std::move(all));
  } catch (const std::exception& failure) {
    lost = failure.what();
  }
  if (!lost.empty() && owes_answer_) {
    try {
      auto refusal = refuse_lost(self);
      co_await contained(shared_->context, std::move(refusal));
    } catch (const std::bad_alloc&) {
      // It goes without a word.
    }
  }
  become_known();
  if (!upgraded_) stream_.close();
  if (decision_) std::exchange(decision_, nullptr)->end();
  if (!lost.empty() && shared_->options.on_lost) shared_->options.on_lost(remote_, lost);
}

asio::awaitable<void> Connection::serve_all(std::shared_ptr<Connection> /*self*/) {
  guest_ = shared_->lobby.enter(remote_, closer());
  lowest().expires_at(known_by_);
  const std::string no_name;
  const error_code refused = co_await stream_.handshake(beast::role_type::server, no_name);
  if (!refused) recognise_peer();
  while (!refused && co_await serve_one()) continue;
}

// A certificate in which no name of ours stands is as none.
void Connection::recognise_peer() {
  const std::string shown = stream_.peer();
  if (shown.empty()) return;
  if (auto identity = pki::read_certificate_der(shown))
    peer_ = std::make_shared<const pki::Identity>(std::move(*identity));
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

asio::awaitable<bool> Connection::serve_one() {
  Incoming::Arrival arrival(shared_->bodies, remote_, [this] { lowest().cancel(); });
  Parser parser;
  parser.header_limit(header_bytes_max);
  parser.body_limit(boost::none);  // how much it may be is known when the head is
  expect_request();
  if (guest_ == 0) idle_ = shared_->idle.enter(remote_, closer());
  error_code failure = co_await read_head(parser);
  shared_->idle.leave(std::exchange(idle_, 0));
  version_ = parser.get().version();
  is_head_ = parser.get().method() == http::verb::head;
  if (failure) co_return co_await refuse_unread(failure);
  owes_answer_ = true;
  if (is_coded_otherwise(parser.get())) {
    Response refusal = unknown_coding();
    co_return co_await refuse_head(refusal);
  }
  auto request = to_request(parser.get(), shared_->options.headers, remote_);
  if (!request) {
    Response refusal = bad_request("the target is not a path");
    co_return co_await refuse_head(refusal);
  }
  request->body_bytes = parser.content_length().value_or(0);
  request->peer = peer_;
  Admission admission =
      shared_->admit ? shared_->admit(*request) : Admission{.refusal = std::nullopt, .known = true};
  if (admission.known) become_known();
  if (!admission.refusal && request->body_bytes > admission.body_bytes_max) admission.refusal = too_large();
  if (admission.refusal && !parser.is_done()) co_return co_await refuse_head(*admission.refusal);
  if (admission.refusal) {
    const bool goes_on = co_await write(*admission.refusal, parser.get().keep_alive());
    co_return goes_on;
  }
  if (!parser.is_done() && (!shared_->bodies->has_room(remote_, request->body_bytes) || !make_room(parser)))
    co_return co_await refuse_crowded(parser, arrival);
  parser.body_limit(admission.body_bytes_max);
  if (!parser.is_done()) {
    const bool asks = version_ >= 11 && beast::iequals(parser.get()[http::field::expect], "100-continue");
    if (asks) co_await ask_for_body();
    failure = co_await read_body(parser, arrival);
    if (arrival.was_let_go()) co_return co_await refuse_crowded(parser, arrival);
    if (failure) co_return co_await refuse_unread(failure);
  }
  Message message = parser.release();
  request->body = std::move(message.body());
  const bool goes_on = co_await answer(std::move(*request), std::move(message), arrival);
  co_return goes_on;
}

asio::awaitable<bool> Connection::answer(Request request, Message message, Incoming::Arrival& arrival) {
  const bool keep_alive = message.keep_alive();
  lowest().expires_never();
  auto exchange = std::make_shared<PendingExchange>(*shared_, std::move(request));
  decision_ = exchange->decision();
  shared_->handler(exchange);
  co_await exchange->decided(lowest().socket());
  // The body goes with it, unless the handler keeps it.
  exchange.reset();
  arrival.release();
  bool goes_on = false;
  if (decision_->response && !decision_->is_gone) {
    decision_->give_up = [this, bytes = decision_->response->body.size()] { give_up(bytes); };
    goes_on = co_await write(*decision_->response, keep_alive);
    decision_->is_written = is_written_;
  } else if (!decision_->is_gone) {
    become_known();
    owes_answer_ = false;
    if (decision_->stream) {
      goes_on = co_await write_stream(decision_->stream, keep_alive);
    } else {
      co_await serve_socket(std::move(message), decision_->on_socket);
    }
  }
  std::exchange(decision_, nullptr)->end();
  co_return goes_on;
}

// Whoever gives up before its end has said nothing that is a request.
error_code Connection::parse(Parser& parser) {
  error_code failure;
  while (buffer_.size() > 0 && !failure && !parser.is_done()) {
    const bool was_in_head = !parser.is_header_done();
    buffer_.consume(parser.put(buffer_.data(), failure));
    if (was_in_head && parser.is_header_done()) break;
  }
  return failure == http::error::need_more ? error_code() : failure;
}

asio::awaitable<error_code> Connection::read_more(Parser& parser) {
  const std::size_t bytes = beast::read_size(buffer_, piece_bytes_max);
  if (bytes == 0) co_return http::error::buffer_overflow;
  const auto room = buffer_.prepare(bytes);
  const auto [failure, got] = co_await stream_.async_read_some(room, as_values);
  buffer_.commit(got);
  if (failure == asio::error::eof)
    co_return parser.got_some() ? http::error::partial_message : http::error::end_of_stream;
  co_return failure;
}

// All of it counts together, what the parser has taken already, too.
asio::awaitable<error_code> Connection::read_head(Parser& parser) {
  error_code failure;
  for (std::size_t taken_bytes = 0;;) {
    const std::size_t before = buffer_.size();
    if (parser.got_some() || skip_empty_lines(buffer_)) failure = parse(parser);
    taken_bytes += before - buffer_.size();
    if (failure || parser.is_header_done()) co_return failure;
    if (taken_bytes + buffer_.size() >= header_bytes_max) co_return http::error::header_limit;
    failure = co_await read_more(parser);
    if (failure) co_return failure;
  }
}

bool Connection::make_room(Parser& parser) {
  try {
    parser.get().body().reserve(parser.content_length().value_or(0));
    buffer_.reserve(
        std::min<std::size_t>(piece_bytes_max, parser.content_length().value_or(piece_bytes_max)));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

asio::awaitable<error_code> Connection::read_body(Parser& parser, Incoming::Arrival& arrival) {
  parser.eager(true);
  expect_request();
  error_code failure = parse(parser);
  while (!failure && !parser.is_done()) {
    arrival.hold(buffer_.capacity() + parser.get().body().size());
    co_await shared_->reading->turn();
    if (arrival.was_let_go()) break;
    failure = co_await read_more(parser);
    if (!failure) failure = parse(parser);
  }
  // It stays as long as the connection does, which may be long.
  if (buffer_.capacity() > header_bytes_max) buffer_.shrink_to_fit();
  arrival.hold(parser.get().body().size());
  if (!failure) arrival.complete();
  co_return failure;
}

asio::awaitable<bool> Connection::refuse_crowded(Parser& parser, Incoming::Arrival& arrival) {
  std::string().swap(parser.get().body());
  arrival.release();
  if (arrival.was_let_go() && shared_->options.on_crowded) shared_->options.on_crowded(remote_);
  Response refusal = crowded();
  co_return co_await refuse_head(refusal);
}

asio::awaitable<bool> Connection::refuse_unread(error_code failure) {
  if (failure == http::error::end_of_stream || failure == beast::error::timeout) co_return false;
  // Named, not a temporary inside co_await: g++ 12 destroys those twice.
  Response refusal = refuse(failure);
  if (refusal.status == 0) co_return false;
  co_return co_await refuse_head(refusal);
}

}  // namespace tutti::net
