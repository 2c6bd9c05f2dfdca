#include "net/http/exchange.hpp"

namespace tutti::net {
namespace {

using tcp = asio::ip::tcp;

const Text too_slow = make_text(
    "event: note\ndata: {\"text\":\"this reader is too slow, and more is waiting for it than is kept: what "
    "follows is missing here; connect again\"}\n\n");

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

}  // namespace tutti::net
