#include "net/http/server.hpp"

#include <malloc.h>

#include <array>

#include <boost/asio/ssl/context.hpp>

#include "net/http/lobby.hpp"
#include "net/http/session.hpp"
#include "net/http/target.hpp"

namespace tutti::net {
namespace {

using tcp = asio::ip::tcp;

void give_memory_back() { ::malloc_trim(0); }

std::shared_ptr<Incoming> make_incoming(std::size_t bytes, std::size_t bytes_per_address) {
  return std::make_shared<Incoming>(Incoming::Limits{.bytes = bytes, .bytes_per_address = bytes_per_address},
                                    give_memory_back);
}

// What the connections of a server share. It outlives the last of them.
struct Shared {
  Shared(asio::io_context& loop, const ServerOptions& given, Server::Handler handles, Server::Admit admits)
      : context(loop),
        options(given),
        handler(std::move(handles)),
        admit(std::move(admits)),
        lobby(given.unknown_connections, given.unknown_connections_per_address),
        backlog(std::make_shared<Backlog>(given.backlogs_bytes, give_memory_back)),
        bodies(make_incoming(given.bodies_bytes, given.bodies_bytes_per_address)),
        messages(make_incoming(given.messages_bytes, given.messages_bytes_per_address)),
        unknown_messages(
            make_incoming(given.unknown_messages_bytes, given.unknown_messages_bytes_per_address)) {}

  asio::io_context& context;
  const ServerOptions options;
  const Server::Handler handler;
  const Server::Admit admit;
  Lobby lobby;
  std::shared_ptr<Backlog> backlog;
  std::shared_ptr<Incoming> bodies;
  std::shared_ptr<Incoming> messages;  // of sockets whose other side is known, and of the others
  std::shared_ptr<Incoming> unknown_messages;
  // Where all of them read what nobody looks at.
  std::array<char, piece_bytes_max> scrap{};
};

const Text too_slow = make_text(
    "event: note\ndata: {\"text\":\"this reader is too slow, and more is waiting for it than is kept: what "
    "follows is missing here; connect again\"}\n\n");

// What the handler decided about a request; filled from any thread, read by the connection's coroutine.
struct Decision {
  bool is_gone = false;  // the other side, before there was an answer
  std::optional<Response> response;
  std::shared_ptr<Outbox> stream;
  std::function<void()> on_stream_close;
  std::function<void(std::shared_ptr<Socket>)> on_socket;
};

class PendingExchange final : public Exchange {
 public:
  PendingExchange(const Shared& shared, Request request)
      : context_(shared.context),
        backlog_(shared.backlog),
        request_(std::move(request)),
        decided_(std::make_shared<Signal>(context_.get_executor())) {}

  const Request& request() const override { return request_; }

  void when_over(std::function<void()> over) override { over_ = std::move(over); }
  const std::function<void()>& over() const { return over_; }

  void answer(Response response) override {
    decide([response = std::move(response)](Decision& decision) mutable {
      decision.response = std::move(response);
    });
  }

  std::shared_ptr<Stream> stream(std::function<void()> on_close) override {
    auto outbox =
        std::make_shared<Outbox>(context_, Outbox::Options{.backlog = backlog_, .farewell = too_slow});
    decide([outbox, on_close = std::move(on_close)](Decision& decision) mutable {
      decision.stream = outbox;
      decision.on_stream_close = std::move(on_close);
    });
    class OutboxStream final : public Stream {
     public:
      explicit OutboxStream(std::shared_ptr<Outbox> box) : outbox_(std::move(box)) {}
      void write(Text chunk, std::function<void()> written) override {
        outbox_->put(std::move(chunk), std::move(written));
      }
      void close() override { outbox_->close(); }
      void cut() override { outbox_->cut(); }

     private:
      std::shared_ptr<Outbox> outbox_;
    };
    return std::make_shared<OutboxStream>(outbox);
  }

  void upgrade(std::function<void(std::shared_ptr<Socket>)> ready) override {
    decide([ready = std::move(ready)](Decision& decision) mutable { decision.on_socket = std::move(ready); });
  }

  asio::awaitable<std::shared_ptr<Decision>> decision() {
    co_await decided_->wait();
    co_return decision_;
  }
  // The same, unless the other side goes before that.
  asio::awaitable<std::shared_ptr<Decision>> decision_of_a_waiting(tcp::socket& socket) {
    socket.async_wait(
        tcp::socket::wait_read, [decision = decision_, decided = decided_, &socket](error_code failure) {
          if (failure == asio::error::operation_aborted) return;
          // Bytes that wait are the next request's: then nothing more can be noticed.
          char byte = 0;
          const std::size_t got = socket.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, failure);
          if (got > 0 || failure == asio::error::would_block) return;
          decision->is_gone = true;
          decided->set();
        });
    co_await decided_->wait();
    error_code ignored;
    if (!decision_->is_gone) socket.cancel(ignored);
    co_return decision_;
  }

 private:
  template <class Change>
  void decide(Change change) {
    asio::post(context_, [decision = decision_, decided = decided_, change = std::move(change)]() mutable {
      change(*decision);
      decided->set();
    });
  }

  asio::io_context& context_;
  std::shared_ptr<Backlog> backlog_;
  Request request_;
  std::function<void()> over_;
  std::shared_ptr<Signal> decided_;
  std::shared_ptr<Decision> decision_ = std::make_shared<Decision>();
};

using Message = http::request<http::string_body>;
using Parser = http::request_parser<http::string_body>;

// Without its body. Nothing if the target is no path.
std::optional<Request> to_request(const Message& message, std::string remote) {
  Request request;
  if (!read_target({message.target().data(), message.target().size()}, request)) return std::nullopt;
  request.method = std::string(message.method_string());
  const auto authorization = message[http::field::authorization];
  if (authorization.starts_with("Bearer ")) request.bearer = std::string(authorization.substr(7));
  request.websocket = websocket::is_upgrade(message);
  request.remote = std::move(remote);
  return request;
}

// Takes the body out of the response: it may be large, and many are under way at once.
http::response<http::string_body> to_message(Response& response, unsigned version, bool keep_alive) {
  http::response<http::string_body> message{static_cast<http::status>(response.status), version};
  message.set(http::field::content_type, response.type);
  message.set(http::field::cache_control, "no-store");
  if (response.retry_after_seconds > 0)
    message.set(http::field::retry_after, std::to_string(response.retry_after_seconds));
  if (!response.allow.empty()) message.set(http::field::allow, response.allow);
  message.keep_alive(keep_alive);
  message.body() = std::move(response.body);
  message.prepare_payload();
  return message;
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

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Shared> shared, Wire stream, std::string remote)
      : shared_(std::move(shared)),
        stream_(std::move(stream)),
        remote_(std::move(remote)),
        known_by_(std::chrono::steady_clock::now() + shared_->options.unknown_time) {}

  asio::awaitable<void> run() {
    const auto self = shared_from_this();
    guest_ = shared_->lobby.enter(remote_, [weak = weak_from_this()] {
      if (const auto unknown = weak.lock()) unknown->stream_.close();
    });
    lowest().expires_at(known_by_);
    const std::string no_name;
    const error_code refused = co_await stream_.handshake(beast::role_type::server, no_name);
    beast::flat_buffer buffer;
    while (!refused && co_await serve_one(buffer)) continue;
    become_known();
    if (!upgraded_) stream_.close();
  }

 private:
  beast::tcp_stream& lowest() { return stream_.lowest(); }

  // Whoever has not shown a token has until then, whatever it asks for; the others have their time for each
  // request.
  void expect_request() {
    if (guest_ != 0) return lowest().expires_at(known_by_);
    lowest().expires_after(request_time_max);
  }
  // It need not make room for others any more.
  void become_known() { shared_->lobby.leave(std::exchange(guest_, 0)); }

  // Reads one request and answers it. False when the connection is over.
  asio::awaitable<bool> serve_one(beast::flat_buffer& buffer) {
    Incoming::Arrival arrival(shared_->bodies, remote_, [this] { lowest().cancel(); });
    Parser parser;
    parser.header_limit(header_bytes_max);
    parser.body_limit(boost::none);  // how much it may be is known when the head is
    expect_request();
    auto [failure, got] = co_await http::async_read_header(stream_, buffer, parser, as_values);
    if (failure) co_return co_await refuse_unread(failure);
    const unsigned version = parser.get().version();
    auto request = to_request(parser.get(), remote_);
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
      const bool goes_on = co_await write(*decision->response, version, keep_alive);
      if (watched) over();
      co_return goes_on;
    }
    become_known();
    if (decision->stream) {
      co_await write_stream(*decision, version);
      co_return false;
    }
    co_await serve_socket(std::move(message), decision->on_socket);
    co_return false;
  }

  // In pieces that are counted as they come.
  asio::awaitable<error_code> read_body(beast::flat_buffer& buffer, Parser& parser,
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

  // There is no room for its body, or for the rest of it.
  asio::awaitable<bool> refuse_crowded(Parser& parser, Incoming::Arrival& arrival) {
    std::string().swap(parser.get().body());
    arrival.release();
    if (arrival.was_let_go() && shared_->options.on_crowded) shared_->options.on_crowded(remote_);
    Response refusal = crowded();
    co_return co_await refuse_head(refusal, parser.get().version());
  }

  // It could not be read as a request. The connection is over.
  asio::awaitable<bool> refuse_unread(error_code failure) {
    if (failure == http::error::end_of_stream || failure == beast::error::timeout) co_return false;
    // Named, not a temporary inside co_await: g++ 12 destroys those twice.
    Response refusal = refuse(failure);
    if (refusal.status == 0) co_return false;
    co_return co_await refuse_head(refusal, 11);
  }

  // Its body will not be read. The connection is over, but not before the other side could hear that: closed
  // while it sends, it would lose the answer.
  asio::awaitable<bool> refuse_head(Response& refusal, unsigned version) {
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

  asio::awaitable<void> ask_for_body(unsigned version) {
    http::response<http::empty_body> go_on{http::status::continue_, version};
    co_await http::async_write(stream_, go_on, as_values);
  }

  asio::awaitable<bool> write(Response& response, unsigned version, bool keep_alive) {
    auto message = to_message(response, version, keep_alive);
    lowest().expires_after(request_time_max);
    const Answering answering(shared_->backlog, message.body(), [&] { give_up(message.body().size()); });
    if (answering.given_up()) co_return false;
    const auto [failure, written] = co_await http::async_write(stream_, message, as_values);
    co_return !failure && keep_alive;
  }

  void tell_let_go(std::size_t bytes) const {
    if (shared_->options.on_let_go) shared_->options.on_let_go(remote_, bytes);
  }

  // Whoever reads so slowly that too much waits is not written to any more.
  void give_up(std::size_t bytes) {
    tell_let_go(bytes);
    lowest().cancel();
  }

  // Chunks as they come. A reader who has gone is noticed by reading, and by the system where its machine
  // has; one who is slow, or pauses, is waited for, as far as the backlog allows.
  asio::awaitable<void> write_stream(Decision& decision, unsigned version) {
    http::response<http::empty_body> head{http::status::ok, version};
    head.set(http::field::content_type, "text/event-stream");
    head.set(http::field::cache_control, "no-store");
    head.keep_alive(false);
    head.chunked(true);
    http::response_serializer<http::empty_body> serializer(head);
    asio::co_spawn(
        shared_->context,
        [self = shared_from_this(), outbox = decision.stream]() -> asio::awaitable<void> {
          char byte = 0;
          co_await self->stream_.async_read_some(asio::buffer(&byte, 1), as_values);
          outbox->close();
        },
        asio::detached);
    const std::shared_ptr<Outbox> outbox = decision.stream;
    outbox->on_let_go = [this, slow = outbox.get()] { take_leave(slow->waiting_bytes()); };
    if (outbox->was_let_go()) take_leave(0);
    auto [failure, written] = co_await http::async_write_header(stream_, serializer, as_values);
    while (!failure) {
      const auto chunk = co_await outbox->next();
      if (!chunk) break;
      // One without bytes would be the end.
      if (!chunk->text->empty()) {
        std::tie(failure, written) =
            co_await asio::async_write(stream_, http::make_chunk(asio::buffer(*chunk->text)), as_values);
      }
      outbox->done(*chunk);
      if (!failure && chunk->written) chunk->written();
    }
    // Without its end, so that nobody takes what has come for all there was.
    if (!failure && !outbox->was_let_go())
      co_await asio::async_write(stream_, http::make_chunk_last(), as_values);
    outbox->on_let_go = nullptr;
    outbox->abandon();
    farewell_.reset();
    if (decision.on_stream_close) decision.on_stream_close();
  }

  // The slow one has this long to take what is under way and why it is the last.
  void take_leave(std::size_t bytes) {
    tell_let_go(bytes);
    farewell_ = std::make_shared<asio::steady_timer>(shared_->context, farewell_time_max);
    farewell_->async_wait([weak = weak_from_this(), timer = farewell_](error_code cancelled) {
      const auto self = weak.lock();
      if (!cancelled && self != nullptr && self->farewell_ == timer) self->lowest().cancel();
    });
  }

  asio::awaitable<void> serve_socket(Message message,
                                     const std::function<void(std::shared_ptr<Socket>)>& ready) {
    upgraded_ = true;
    auto stream = std::make_shared<WebSocket>(std::move(stream_));
    set_socket_limits(*stream);
    const auto [failure] = co_await stream->async_accept(message, as_values);
    if (failure) co_return;
    auto socket = std::make_shared<OutboxSocket>(
        shared_->context, Outbox::Options{.backlog = shared_->backlog, .spared = true});
    socket->outbox->on_let_go = [this, slow = socket->outbox.get()] { tell_let_go(slow->waiting_bytes()); };
    ready(socket);
    SocketRules rules{.frames = shared_->options.frames,
                      .address = remote_,
                      .unknown_messages = shared_->unknown_messages,
                      .messages = shared_->messages,
                      .unknown_time = shared_->options.unknown_time,
                      .message_time = shared_->options.message_time};
    co_await run_socket(stream, socket, shared_->context, std::move(rules));
    socket->outbox->on_let_go = nullptr;
  }

  const std::shared_ptr<Shared> shared_;
  Wire stream_;
  std::string remote_;
  std::chrono::steady_clock::time_point known_by_;
  Lobby::Guest guest_ = 0;  // while it is in the lobby
  std::shared_ptr<asio::steady_timer> farewell_;
  bool upgraded_ = false;
};

class BeastServer final : public Server {
 public:
  BeastServer(std::shared_ptr<Shared> shared, tcp::acceptor acceptor, std::shared_ptr<asio::ssl::context> tls)
      : shared_(std::move(shared)), acceptor_(std::move(acceptor)), tls_(std::move(tls)) {}

  std::uint16_t port() const override { return acceptor_.local_endpoint().port(); }

  void start() { asio::co_spawn(shared_->context, accept_all(), asio::detached); }

 private:
  asio::awaitable<void> accept_all() {
    for (;;) {
      auto [failure, socket] = co_await acceptor_.async_accept(as_values);
      if (failure == asio::error::operation_aborted) co_return;
      if (failure) {
        // Out of descriptors: give the others time to end.
        shared_->lobby.make_room();
        asio::steady_timer pause(shared_->context, std::chrono::milliseconds(50));
        co_await pause.async_wait(as_values);
        continue;
      }
      error_code ignored;
      const std::string remote = socket.remote_endpoint(ignored).address().to_string();
      socket.set_option(tcp::no_delay(true), ignored);
      socket.set_option(asio::socket_base::keep_alive(true), ignored);
      if (!has_room(remote)) continue;
      serve(beast::tcp_stream(std::move(socket)), remote);
    }
  }

  // Where there is none, one that has shown no token makes some.
  bool has_room(const std::string& remote) {
    if (open_ >= shared_->options.connections && !shared_->lobby.make_room()) return false;
    const auto here = open_by_address_.find(remote);
    return here == open_by_address_.end() || here->second < shared_->options.connections_per_address ||
           shared_->lobby.make_room(remote);
  }

  void serve(beast::tcp_stream stream, const std::string& remote) {
    ++open_;
    ++open_by_address_[remote];
    auto connection = std::make_shared<Connection>(shared_, Wire(std::move(stream), tls_), remote);
    asio::co_spawn(shared_->context, connection->run(),
                   [this, remote](const std::exception_ptr&) { closed(remote); });
  }

  void closed(const std::string& remote) {
    --open_;
    const auto here = open_by_address_.find(remote);
    if (--here->second == 0) open_by_address_.erase(here);
  }

  const std::shared_ptr<Shared> shared_;
  tcp::acceptor acceptor_;
  std::shared_ptr<asio::ssl::context> tls_;
  std::size_t open_ = 0;
  std::map<std::string, std::size_t> open_by_address_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(Loop& loop, const ServerOptions& options, Handler handler,
                                               Admit admit) {
  const std::string where = options.address + ":" + std::to_string(options.port);
  auto tls = server_tls(options.certificate_file, options.key_file);
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
  if (!failure) acceptor.listen(4096, failure);
  if (failure) {
    return failed(failure.message())
        .within("cannot listen on " + where)
        .remedy("another program may listen there; `--listen` takes another port");
  }
  auto shared = std::make_shared<Shared>(loop.core().context, options, std::move(handler), std::move(admit));
  auto server = std::make_unique<BeastServer>(std::move(shared), std::move(acceptor), std::move(*tls));
  server->start();
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace tutti::net
