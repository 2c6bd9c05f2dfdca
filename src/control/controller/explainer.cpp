#include "control/controller/explainer.hpp"

#include <chrono>
#include <utility>

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

bool Explainer::has_room() {
  const auto is_full = [this] { return waiting_.size() + being_asked_ >= waiting_questions_max; };
  if (is_full()) std::erase_if(waiting_, [](const Item& item) { return item.is_over(); });
  return !is_full();
}

void Explainer::ask(const Make& make, Reply reply, IsOver is_over) {
  bool taken = false;
  {
    const std::lock_guard lock(mutex_);
    taken = has_room();
    if (taken) ++being_asked_;
  }
  if (!taken) return reply(failed("too many ask why their jobs wait").remedy("try again in a moment"));
  auto question = make();
  {
    const std::lock_guard lock(mutex_);
    --being_asked_;
    if (question) {
      waiting_.push_back({std::move(*question), std::move(reply), std::move(is_over)});
      others_wait_ = true;
      woken_.notify_one();
      return;
    }
  }
  reply(std::move(question).error());
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
