#include "net/http/exchange.hpp"

#include "net/http/leaving.hpp"

namespace tutti::net {
namespace {

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

void Decision::end() {
  is_over = true;
  give_up = nullptr;
  if (stream) {
    stream->on_let_go = nullptr;
    stream->abandon();
  }
  const auto told = std::exchange(stream ? on_stream_close : when_over, nullptr);
  if (told) told();
}

PendingExchange::PendingExchange(const Shared& shared, Request request)
    : context_(shared.context),
      backlog_(shared.backlog),
      request_(std::move(request)),
      decided_(std::make_shared<Signal>(context_.get_executor())) {}

// The first counts. One that comes when nobody waits for it any more, because its connection has ended, is
// over at once.
template <class Change>
void PendingExchange::decide(Change change) {
  asio::post(context_, [decision = decision_, decided = decided_, change = std::move(change)]() mutable {
    if (decision->is_over || std::exchange(decision->is_made, true)) {
      Decision late;
      change(late);
      return late.end();
    }
    change(*decision);
    decided->set();
  });
}

void PendingExchange::answer(Response response) {
  decide([response = std::move(response)](Decision& decision) mutable {
    decision.response = std::move(response);
  });
}

void PendingExchange::cut() {
  asio::post(context_, [decision = decision_] {
    decision->is_gone = true;  // where it is not being written yet
    if (decision->give_up) decision->give_up();
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

asio::awaitable<void> PendingExchange::decided(asio::ip::tcp::socket& socket) {
  std::optional<Leaving> leaving;
  if (decision_->when_over) {
    leaving.emplace(socket, [decision = decision_, decided = decided_] {
      decision->is_gone = true;
      decided->set();
    });
  }
  co_await decided_->wait();
}

}  // namespace tutti::net
