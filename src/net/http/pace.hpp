// The pace of writes to many at once: a handful begins, then everybody else on the loop has had a turn before
// the next handful does. Without it, one event for thousands of readers holds up whoever is heard on the same
// loop. The loop's. For this module's own files only.
#pragma once

#include <deque>
#include <memory>
#include <new>

#include "net/http/session.hpp"

namespace tutti::net {

class Pace final : public std::enable_shared_from_this<Pace> {
 public:
  Pace(asio::io_context& context, std::size_t at_once) : context_(context), at_once_(at_once) {}

  // Returns when the caller may begin.
  asio::awaitable<void> turn() {
    if (!is_round_) post_round();
    if (begun_ < at_once_ && waiting_.empty()) {
      ++begun_;
      co_return;
    }
    const auto signal = std::make_shared<Signal>(context_.get_executor());
    waiting_.push_back(signal);
    co_await signal->wait();
  }

 private:
  void post_round() {
    asio::post(context_, [self = shared_from_this()] { self->next_round(); });
    is_round_ = true;  // not before: where there is no memory for one, whoever comes next begins it
  }
  void next_round() {
    is_round_ = false;
    begin(at_once_);
    if (begun_ == 0) return;
    try {
      post_round();
    } catch (const std::bad_alloc&) {
      begin(waiting_.size());  // nobody waits for a round that does not come
    }
  }
  void begin(std::size_t most) {
    for (begun_ = 0; begun_ < most && !waiting_.empty(); waiting_.pop_front()) {
      // Who has gone meanwhile has taken its signal along.
      const auto signal = waiting_.front().lock();
      if (signal == nullptr) continue;
      signal->set();
      ++begun_;
    }
  }

  asio::io_context& context_;
  const std::size_t at_once_;
  std::deque<std::weak_ptr<Signal>> waiting_;
  std::size_t begun_ = 0;  // in this round
  bool is_round_ = false;
};

}  // namespace tutti::net
