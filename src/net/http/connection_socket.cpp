// A connection that becomes a WebSocket.
#include "net/http/connection.hpp"

namespace tutti::net {

asio::awaitable<void> Connection::serve_socket(Message message,
                                               const std::function<void(std::shared_ptr<Socket>)>& ready) {
  upgraded_ = true;
  auto stream = std::make_shared<WebSocket>(std::move(stream_));
  set_socket_limits(*stream);
  const auto [failure] = co_await stream->async_accept(message, as_values);
  if (failure) co_return;
  auto socket = std::make_shared<OutboxSocket>(shared_->context,
                                               Outbox::Options{.backlog = shared_->backlog, .spared = true});
  socket->outbox->on_let_go = [weak = weak_from_this(), slow = socket->outbox.get()] {
    if (const auto self = weak.lock()) self->tell_let_go(slow->waiting_bytes());
  };
  SocketRules rules{.frames = shared_->options.frames,
                    .address = remote_,
                    .unknown_messages = shared_->unknown_messages,
                    .messages = shared_->messages,
                    .unknown_time = shared_->options.unknown_time,
                    .message_time = shared_->options.message_time};
  co_await run_socket(stream, socket, shared_->context, std::move(rules), ready);
  socket->outbox->on_let_go = nullptr;
}

}  // namespace tutti::net
