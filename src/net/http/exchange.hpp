// A request that waits for its handler, and what that decided. For this module's own files only.
#pragma once

#include "net/http/session.hpp"
#include "net/http/shared.hpp"

namespace tutti::net {

// What the handler decided about a request; filled from any thread, read by the connection's coroutine. The
// loop's.
struct Decision {
  bool is_made = false;
  bool is_gone = false;     // the other side, before there was an answer
  bool is_over = false;     // nobody waits for it any more
  bool is_written = false;  // the response, to its end
  std::optional<Response> response;
  std::shared_ptr<Outbox> stream;
  std::function<void()> on_stream_close;
  std::function<void(std::shared_ptr<Socket>)> on_socket;
  std::function<void()> when_over;
  std::function<void()> give_up;  // while the response is written

  // Nobody waits for it any more: whoever is to hear of that does, once.
  void end();
};

class PendingExchange final : public Exchange {
 public:
  PendingExchange(const Shared& shared, Request request);

  const Request& request() const override { return request_; }
  void when_over(std::function<void()> over) override { decision_->when_over = std::move(over); }
  void answer(Response response) override;
  void cut() override;
  bool is_written() const override { return decision_->is_written; }
  std::shared_ptr<Stream> stream(std::function<void()> on_close) override;
  void upgrade(std::function<void(std::shared_ptr<Socket>)> ready) override;

  const std::shared_ptr<Decision>& decision() const { return decision_; }
  // Returns when it is made. Where somebody wants to hear when it is over, also when the other side of the
  // socket goes before that.
  asio::awaitable<void> decided(asio::ip::tcp::socket& socket);

 private:
  template <class Change>
  void decide(Change change);

  asio::io_context& context_;
  std::shared_ptr<Backlog> backlog_;
  Request request_;
  std::shared_ptr<Signal> decided_;
  std::shared_ptr<Decision> decision_ = std::make_shared<Decision>();
};

}  // namespace tutti::net
