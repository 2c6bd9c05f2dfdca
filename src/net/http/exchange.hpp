// A request that waits for its handler, and what that decided. For this module's own files only.
#pragma once

#include "net/http/session.hpp"
#include "net/http/shared.hpp"

namespace tutti::net {

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
  PendingExchange(const Shared& shared, Request request);

  const Request& request() const override { return request_; }
  void when_over(std::function<void()> over) override { over_ = std::move(over); }
  const std::function<void()>& over() const { return over_; }
  void answer(Response response) override;
  std::shared_ptr<Stream> stream(std::function<void()> on_close) override;
  void upgrade(std::function<void(std::shared_ptr<Socket>)> ready) override;

  asio::awaitable<std::shared_ptr<Decision>> decision();
  // The same, unless the other side goes before that.
  asio::awaitable<std::shared_ptr<Decision>> decision_of_a_waiting(asio::ip::tcp::socket& socket);

 private:
  template <class Change>
  void decide(Change change);

  asio::io_context& context_;
  std::shared_ptr<Backlog> backlog_;
  Request request_;
  std::function<void()> over_;
  std::shared_ptr<Signal> decided_;
  std::shared_ptr<Decision> decision_ = std::make_shared<Decision>();
};

}  // namespace tutti::net
