#include "net/http/exchange.hpp"

#include <poll.h>

namespace tutti::net {
namespace {

using tcp = asio::ip::tcp;

const Text too_slow = make_text(
    "event: note\ndata: {\"text\":\"this reader is too slow, and more is waiting for it than is kept: what "
    "follows is missing here; connect again\"}\n\n");

// How soon it is looked again, once the system can not tell by itself.
constexpr auto look_again_time = std::chrono::milliseconds(200);

// Looks whether the other side is still there, until it is gone or nobody wants to know any more. Bytes that
// wait do not hide its end: they may be the next request's, or the last words of TLS.
class Watch final : public std::enable_shared_from_this<Watch> {
 public:
  Watch(tcp::socket& socket, std::function<void()> gone)
      : socket_(socket), again_(socket.get_executor()), gone_(std::move(gone)) {}

  void begin() {
    socket_.async_wait(tcp::socket::wait_read,
                       [self = shared_from_this()](error_code failure) { self->look(failure); });
  }
  void end() {
    is_over_ = true;
    again_.cancel();
    error_code ignored;
    socket_.cancel(ignored);
  }

 private:
  void look(error_code failure) {
    if (is_over_ || failure == asio::error::operation_aborted) return;
    if (is_gone()) {
      is_over_ = true;
      return gone_();
    }
    // As long as something waits to be read, the system would call at once.
    again_.expires_after(look_again_time);
    again_.async_wait([self = shared_from_this()](error_code cancelled) { self->look(cancelled); });
  }
  bool is_gone() {
    pollfd looked{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
    return ::poll(&looked, 1, 0) > 0;
  }

  tcp::socket& socket_;  // of a connection that ends this before its own end
  asio::steady_timer again_;
  const std::function<void()> gone_;
  bool is_over_ = false;
};

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

}  // namespace

PendingExchange::PendingExchange(const Shared& shared, Request request)
    : context_(shared.context),
      backlog_(shared.backlog),
      request_(std::move(request)),
      decided_(std::make_shared<Signal>(context_.get_executor())) {}

template <class Change>
void PendingExchange::decide(Change change) {
  asio::post(context_, [decision = decision_, decided = decided_, change = std::move(change)]() mutable {
    change(*decision);
    decided->set();
  });
}

void PendingExchange::answer(Response response) {
  decide([response = std::move(response)](Decision& decision) mutable {
    decision.response = std::move(response);
  });
}

std::shared_ptr<Stream> PendingExchange::stream(std::function<void()> on_close) {
  auto outbox =
      std::make_shared<Outbox>(context_, Outbox::Options{.backlog = backlog_, .farewell = too_slow});
  decide([outbox, on_close = std::move(on_close)](Decision& decision) mutable {
    decision.stream = outbox;
    decision.on_stream_close = std::move(on_close);
  });
  return std::make_shared<OutboxStream>(outbox);
}

void PendingExchange::upgrade(std::function<void(std::shared_ptr<Socket>)> ready) {
  decide([ready = std::move(ready)](Decision& decision) mutable { decision.on_socket = std::move(ready); });
}

asio::awaitable<std::shared_ptr<Decision>> PendingExchange::decision() {
  co_await decided_->wait();
  co_return decision_;
}

asio::awaitable<std::shared_ptr<Decision>> PendingExchange::decision_of_a_waiting(tcp::socket& socket) {
  const auto watch = std::make_shared<Watch>(socket, [decision = decision_, decided = decided_] {
    decision->is_gone = true;
    decided->set();
  });
  watch->begin();
  co_await decided_->wait();
  watch->end();
  co_return decision_;
}

}  // namespace tutti::net
