#include "control/controller/watchdog.hpp"

#include <atomic>
#include <utility>

#include "control/controller/call.hpp"

namespace tutti::controller {
namespace {

// For whoever begins to write when the reader was sent away already.
class NobodyReads final : public net::Stream {
 public:
  using net::Stream::write;
  void write(net::Text /*chunk*/, std::function<void()> /*written*/) override {}
  void close() override {}
  void cut() override {}
};

}  // namespace

// Whoever answers first, from whichever thread, is heard; the others are not.
class Watchdog::Watched final : public net::Exchange {
 public:
  Watched(std::shared_ptr<net::Exchange> exchange, Post post)
      : exchange_(std::move(exchange)), post_(std::move(post)) {}

  bool answered() const { return answered_; }

  const net::Request& request() const override { return exchange_->request(); }
  void when_over(std::function<void()> over) override { exchange_->when_over(std::move(over)); }
  void cut() override { exchange_->cut(); }
  bool is_written() const override { return exchange_->is_written(); }
  void answer(net::Response response) override {
    if (!answered_.exchange(true)) exchange_->answer(std::move(response));
  }
  std::shared_ptr<net::Stream> stream(std::function<void()> on_close) override {
    if (!answered_.exchange(true)) return exchange_->stream(std::move(on_close));
    if (on_close) post_(std::move(on_close));
    return std::make_shared<NobodyReads>();
  }
  void upgrade(std::function<void(std::shared_ptr<net::Socket>)> ready) override {
    if (!answered_.exchange(true)) exchange_->upgrade(std::move(ready));
  }

 private:
  std::shared_ptr<net::Exchange> exchange_;
  Post post_;
  std::atomic<bool> answered_{false};
};

Watchdog::Watchdog(const WatchedStore& store, std::string path, WatchedStore::Clock clock, Post post)
    : store_(store), path_(std::move(path)), clock_(std::move(clock)), post_(std::move(post)) {}

std::shared_ptr<net::Exchange> Watchdog::watch(std::shared_ptr<net::Exchange> exchange) {
  auto watched = std::make_shared<Watched>(std::move(exchange), post_);
  asked_.push_back({watched, clock_()});
  return watched;
}

std::string Watchdog::text(Instant now, Instant since) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - since).count();
  return "the disk of the store at " + path_ + " has not answered for " + std::to_string(seconds) + " s";
}

void Watchdog::refuse_those_who_wait(Instant now, const std::string& why) {
  for (const Asked& asked : asked_) {
    if (now - asked.at < request_waits_max) break;
    const auto exchange = asked.exchange.lock();
    if (exchange == nullptr) continue;
    const bool only_reads = exchange->request().method == "GET";
    net::Response refused = refusal(
        only_reads ? failed(why).remedy("try again when it does")
                   : unknown(why).remedy("what was asked may still be done when it does: look before you "
                                         "ask again; a submit with the same key is not done twice"),
        503);
    refused.retry_after_seconds = disk_retry_seconds;
    exchange->answer(std::move(refused));
  }
}

std::string Watchdog::look() {
  const Instant now = clock_();
  asked_.remove_if([](const Asked& asked) {
    const auto exchange = asked.exchange.lock();
    return exchange == nullptr || exchange->answered();
  });
  const Instant since = store_.waits_since();
  std::string said;
  if (told_of_ != Instant() && since != told_of_) {
    said = "the disk of the store at " + path_ + " answers again";
    told_of_ = {};
  }
  if (since == Instant()) return said;
  if (now - since >= request_waits_max) refuse_those_who_wait(now, text(now, since));
  const bool is_news = told_of_ != since && now - since >= disk_wait_told_after;
  const bool goes_on = told_of_ == since && !told_again_ && now - since >= disk_wait_told_again_after;
  if (is_news || goes_on) {
    told_of_ = since;
    told_again_ = goes_on;
    said = text(now, since) + ": nothing can be asked or changed until it does; running jobs go on";
  }
  return said;
}

}  // namespace tutti::controller
