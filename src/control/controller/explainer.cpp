#include "control/controller/explainer.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

namespace tutti::controller {

Explainer::Explainer() : thread_([this] { run(); }) {}

void Explainer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// Those who have left make room for those who come.
Explainer::Seat Explainer::seat(const std::string& address) {
  const auto take = [&]() -> Seat {
    const std::lock_guard lock(seats_->mutex);
    if (!seats_->taken.take(address)) return nullptr;
    // Whoever asks may outlive this.
    return {this, [seats = seats_, address](const void*) {
              const std::lock_guard give(seats->mutex);
              seats->taken.give_back(address);
            }};
  };
  if (auto first = take()) return first;
  drop_those_who_left();
  return take();
}

void Explainer::drop_those_who_left() {
  std::vector<Item> dropped;  // their seats are given back without the lock
  const std::lock_guard lock(mutex_);
  const auto stays = [](const Item& item) { return !item.is_over(); };
  const auto left = std::stable_partition(waiting_.begin(), waiting_.end(), stays);
  dropped.assign(std::move_iterator(left), std::move_iterator(waiting_.end()));
  waiting_.erase(left, waiting_.end());
  others_wait_ = !waiting_.empty();
}

void Explainer::ask(Seat seat, const Make& make, Reply reply, IsOver is_over) {
  auto question = make();
  if (!question) return reply(std::move(question).error());
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(*question), std::move(reply), std::move(is_over), std::move(seat)});
    others_wait_ = true;
  }
  woken_.notify_one();
}

sched::Explanation Explainer::answer(const Item& item) const {
  const auto begun = std::chrono::steady_clock::now();
  const auto used_up = [&](int parts) {
    const Duration time_max = others_wait_ ? answer_time_in_line_max : answer_time_max;
    return stopping_ || item.is_over() || std::chrono::steady_clock::now() - begun >= time_max / parts;
  };
  // A start that is not found in half the time leaves the other half to what would start it sooner.
  return item.question.answer({.start = [&] { return used_up(2); }, .changes = [&] { return used_up(1); }});
}

void Explainer::run() {
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return !waiting_.empty() || stopping_; });
      if (stopping_) return;
      item = std::move(waiting_.front());
      waiting_.pop_front();
      others_wait_ = !waiting_.empty();
    }
    if (!item.is_over()) item.reply(answer(item));
  }
}

}  // namespace tutti::controller
